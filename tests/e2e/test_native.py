"""The native dialect, JSON and binary, spoken by Python `websockets` and by curl."""

import json
import subprocess

import pytest
from server import Server
from websockets.sync.client import connect

@pytest.fixture(scope="module", params=["true", "false"], ids=["private-tables", "shared-table"])
def server(request, tmp_path_factory):
    """A real server with four shards; its address."""
    config = f"[engine]\nshards = 4\nprivate_fd_tables = {request.param}\n"
    server = Server(config, tmp_path_factory.mktemp("server")).start()
    yield server.address
    assert server.stop() == 0


def curl(*arguments):
    command = ["curl", "--silent", "--show-error", "--max-time", "10", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def publish(server, body):
    return json.loads(curl("-X", "POST", f"http://{server}/v1/publish", "-d", json.dumps(body)))


def hear(peer):
    return json.loads(peer.recv(timeout=60))


def test_curl_publishes_and_gets(server):
    answer = publish(server, {"topic": "curl/a", "data": {"x": 1}})
    assert (answer["sequence"], answer["level"]) == (1, "memory") and answer["epoch"]
    value = json.loads(curl(f"http://{server}/v1/topics/curl/a"))
    assert (value["sequence"], value["data"]) == (1, {"x": 1})
    many = publish(server, {"topics": ["curl/b", "curl/c"], "text": "t"})["results"]
    assert [result["sequence"] for result in many] == [1, 1]
    listed = json.loads(curl(f"http://{server}/v1/topics?selector=curl/%23&limit=2"))
    assert [topic["topic"] for topic in listed["topics"]] == ["curl/a", "curl/b"]
    assert listed["next"] == "curl/b"
    for path in ["health", "ready", "metrics"]:
        assert curl("--fail", f"http://{server}/{path}")


def test_a_large_body_is_taken_over_a_kept_connection(server, tmp_path):
    body = tmp_path / "body.json"
    body.write_text(json.dumps({"topic": "curl/large", "text": "x" * 500_000}))
    request = ["--data-binary", f"@{body}", f"http://{server}/v1/publish"]
    answers = curl(*request, "--next", "--silent", *request)
    assert answers.count('"sequence"') == 2


def test_json_without_subprotocol(server):
    with connect(f"ws://{server}/v1/ws") as peer:
        peer.send(json.dumps({"id": 1, "type": "subscribe", "topic": "py/+"}))
        assert hear(peer)["type"] == "subscribed"
        publish(server, {"topic": "py/new", "data": 7})
        assert (hear(peer)["type"], hear(peer)["data"]) == ("topic", 7)


def varint(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def control(command):
    text = json.dumps(command).encode()
    return b"\x00" + varint(len(text)) + text


def records(message):
    """The records of a binary message, by hand from docs/protocol.md#binary-dialect."""
    at = 0

    def take_varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def take(count):
        nonlocal at
        at += count
        return message[at - count : at]

    while at < len(message):
        tag = take(1)[0]
        if tag == 0:
            yield json.loads(take(take_varint()))
        elif tag == 0x40:
            identity, sequence = take_varint(), take_varint()
            yield {"type": "published", "id": identity, "sequence": sequence, "epoch": take(take_varint()).decode()}
        else:
            number = take_varint()
            sequence = int.from_bytes(take(2), "big") if tag < 0x20 else take_varint()
            yield {"type": "publication", "number": number, "low": sequence & 0xFFFF, "payload": bytes(take(take_varint()))}


def test_binary_by_hand(server):
    with connect(f"ws://{server}/v1/ws", subprotocols=["tidegate.v1"]) as peer:
        assert peer.subprotocol == "tidegate.v1"
        heard = []

        def hear_until(count):
            while len(heard) < count:
                heard.extend(records(peer.recv(timeout=60)))

        peer.send(control({"type": "hello", "batch": True}) + control({"id": 2, "type": "subscribe", "topic": "bin/a"}))
        hear_until(2)
        number = heard[1]["topics"][0]["number"]
        for sequence in range(1, 101):
            payload = bytes([sequence]) * sequence
            record = bytes([0x33]) + varint(sequence + 1) + varint(5) + b"bin/a" + varint(len(payload)) + payload
            peer.send(record)
        hear_until(202)
        published = [record for record in heard if record["type"] == "published"]
        assert [record["sequence"] for record in published] == list(range(1, 101))
        assert [record["id"] for record in published] == list(range(1, 101))
        publications = [record for record in heard if record["type"] == "publication"]
        assert [record["low"] for record in publications] == list(range(1, 101))
        assert all(record["number"] == number for record in publications)
        assert publications[99]["payload"] == bytes([100]) * 100


def test_a_resume_brings_what_was_missed(server):
    with connect(f"ws://{server}/v1/ws") as peer:
        peer.send(json.dumps({"type": "subscribe", "topic": "py/resume"}))
        start = hear(peer)["topics"][0]
        assert (start["head"], bool(start["epoch"])) == (0, True), "a position before anything was published"
    for number in range(10):
        publish(server, {"topic": "py/resume", "data": number})
    with connect(f"ws://{server}/v1/ws") as peer:
        position = {"epoch": start["epoch"], "sequence": 0}
        peer.send(json.dumps({"type": "subscribe", "topic": "py/resume", "from": position}))
        assert hear(peer)["topics"][0]["recovered"] is True
        assert [hear(peer)["data"] for _ in range(10)] == list(range(10))

"""Less data, same truth: conflation, intervals, throttling, filters, deltas, pieces, lag, memory, from outside.

The client is Python's `websockets`; deltas are decoded by `vcdiff-decoder` and `jsonpatch`, which we did not write.
"""

import asyncio
import base64
import json
import socket
import time
import urllib.request
import zlib

import jsonpatch
import pytest
import vcdiff_decoder
import websockets
from server import Server, until


CONFIG = """
[[topics]]
selector = "values/#"
history_count = 1
[[topics]]
selector = "paced/#"
conflation = "always"
interval_ms = 200
[[topics]]
selector = "book/#"
conflation = "lagging"
conflation_key = "/symbol"
[[topics]]
selector = "vital/#"
conflation = "unsubscribe"
[[topics]]
selector = "log/#"
history_count = 50
conflation = "off"
[[classes]]
name = "phones"
messages_per_second = 20
[[access.tokens]]
token = "t"
name = "ann"
class = "phones"
publish = ["#"]
subscribe = ["#"]
[limits]
fragment_bytes = 4096
payload_bytes_max = 20000000
message_bytes_max = 21000000
body_bytes_max = 21000000
lag_told_ms = 300
lag_unsubscribe_ms = 500
"""


@pytest.fixture
def server(tmp_path):
    server = Server(CONFIG, tmp_path).start()
    yield server
    server.kill()


def publish(server, topic, data):
    body = json.dumps({"topic": topic, "data": data}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/publish", body)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["sequence"]


def publish_many(server, publications):
    body = json.dumps({"publications": [{"topic": t, "data": d} for t, d in publications]}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/v1/publish", body)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert all("sequence" in result for result in json.load(answer)["results"])


def counter(server, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith(f"tidegate_{name}{{"))


class Client:
    """A session of the JSON dialect."""

    def __init__(self, socket):
        self.socket = socket

    @classmethod
    async def connect(cls, server, hello=None, **options):
        url = f"ws://127.0.0.1:{server.port}/v1/ws"
        client = cls(await websockets.connect(url, max_size=None, **options))
        if hello is not None:
            await client.say(type="hello", **hello)
            assert (await client.hear())["type"] == "welcome"
        return client

    async def say(self, **command):
        await self.socket.send(json.dumps(command))

    async def hear(self, timeout=60):
        return json.loads(await asyncio.wait_for(self.socket.recv(), timeout))

    async def subscribe(self, topic, **options):
        await self.say(id=1, type="subscribe", topic=topic, **options)
        answer = await self.hear()
        assert answer["type"] == "subscribed", answer
        return answer

    async def hear_publications(self, last):
        """Everything up to the publication with the sequence `last`."""
        heard = []
        while not heard or heard[-1]["sequence"] < last:
            event = await self.hear()
            if event["type"] in ("publication", "delta"):
                heard.append(event)
        return heard


def test_an_interval_gathers_and_conflation_always_keeps_only_the_newest(server):
    async def run():
        gathers = await Client.connect(server)
        await gathers.subscribe("prices/a", interval_ms=300)
        newest = await Client.connect(server)
        await newest.subscribe("prices/a", interval_ms=300, conflation="always")
        began = time.monotonic()
        last = [publish(server, "prices/a", n) for n in range(1, 31)][-1]
        assert [e["data"] for e in await gathers.hear_publications(last)] == list(range(1, 31))
        assert time.monotonic() - began >= 0.29, "what comes in the interval comes at its end"
        heard = [e["data"] for e in await newest.hear_publications(last)]
        assert heard[0] == 1 and heard[-1] == 30 and len(heard) <= 4, heard
        assert counter(server, "batches_held_total") >= 2
        assert counter(server, "conflated_total") == 30 - len(heard)

    asyncio.run(run())


def test_a_topic_with_an_interval_paces_every_reader(server):
    async def run():
        client = await Client.connect(server)
        await client.subscribe("paced/a")
        last = [publish(server, "paced/a", n) for n in range(1, 41)][-1]
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/topics/paced/a") as answer:
            assert json.load(answer)["data"] == 40, "its value is never old"
        heard = [e["data"] for e in await client.hear_publications(last)]
        assert heard[0] == 1 and heard[-1] == 40 and len(heard) <= 5, heard

    asyncio.run(run())


def test_a_filter_lets_through_what_it_accepts(server):
    async def run():
        client = await Client.connect(server)
        await client.subscribe("prices/+", filter="data.price > 100.0 && topic != 'prices/x'")
        for n in range(90, 111):
            publish(server, "prices/x", {"price": n})
            publish(server, "prices/y", {"price": n})
        heard = []
        while len(heard) < 10:
            event = await client.hear()
            if event["type"] == "publication":
                heard.append((event["topic"], event["data"]["price"]))
        assert heard == [("prices/y", n) for n in range(101, 111)]
        assert counter(server, "filtered_total") == 32
        await client.say(id=2, type="subscribe", topic="prices/+", filter="data.all(x, x > 1)")
        refused = await client.hear()
        assert (refused["type"], refused["code"]) == ("refused", 4220) and "loop" in refused["error"]

    asyncio.run(run())


def order_book(n):
    return {"symbol": "ABC", "last": 100 + n, "levels": [{"price": 90 + i, "size": i * 7} for i in range(40)]}


@pytest.mark.parametrize("kind", ["vcdiff", "json-patch"])
def test_deltas_are_small_and_make_what_was_published(server, kind):
    async def run():
        client = await Client.connect(server)
        await client.subscribe("books/abc", delta=kind)
        values, base = {}, None
        for n in range(1, 11):
            text = json.dumps(order_book(n))
            body = json.dumps({"topic": "books/abc", "data": order_book(n)})
            assert text in body
            sequence = publish(server, "books/abc", order_book(n))
            event = await client.hear()
            assert event["sequence"] == sequence
            if event["type"] == "publication":
                value = event["data"]
                base = text.encode()
            elif kind == "vcdiff":
                assert event["base"] == sequence - 1
                base = vcdiff_decoder.decode(base, base64.b64decode(event["vcdiff"]))
                assert zlib.crc32(base) == event["crc"]
                value = json.loads(base)
            else:
                assert event["base"] == sequence - 1
                value = jsonpatch.apply_patch(values[sequence - 1], event["patch"])
                canonical = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
                assert zlib.crc32(canonical) == event["crc"]
                assert len(json.dumps(event)) < len(text) / 3
            values[sequence] = value
            assert value == order_book(n)
        assert counter(server, "deltas_total") >= 8

    asyncio.run(run())


def test_a_throttled_session_gets_as_much_as_its_class_may(server):
    async def run():
        client = await Client.connect(server, hello={"token": "t"})
        await client.subscribe("values/#")
        await client.subscribe("other/a")
        began = time.monotonic()
        publish_many(server, [(f"values/{n % 5}", n) for n in range(400)])
        publish_many(server, [("other/a", n) for n in range(40)])
        newest, heard = {}, 0
        while newest.get("other/a") != 39 or len(newest) < 6:
            event = await client.hear()
            if event["type"] == "publication":
                newest[event["topic"]] = event["data"]
                heard += 1
        seconds = time.monotonic() - began
        assert heard <= 20 * seconds + 20, (heard, seconds)
        assert {t: d for t, d in newest.items() if t != "other/a"} == {f"values/{n}": 395 + n for n in range(5)}
        assert counter(server, "rests_total") >= 1

    asyncio.run(run())


def slow_socket(server, *commands):
    """A WebSocket whose peer does not read, and takes little; it has subscribed."""
    before = counter(server, "subscriptions")
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.connect(("127.0.0.1", server.port))
    raw.sendall(
        b"GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    for command in commands:
        text = json.dumps(command).encode()
        raw.sendall(bytes([0x81, 0x80 | 126]) + len(text).to_bytes(2, "big") + bytes(4) + text)
    until(lambda: counter(server, "subscriptions") == before + len(commands), "it does not subscribe")
    return raw


def read_events(raw, until, timeout=60):
    """The events that come, up to the first for which `until` is true."""
    raw.settimeout(timeout)
    stream = raw.makefile("rb")
    while stream.readline().strip():
        pass
    events = []
    while True:
        head = stream.read(2)
        length = head[1] & 127
        if length > 125:
            length = int.from_bytes(stream.read(2 if length == 126 else 8), "big")
        payload = stream.read(length)
        if head[0] & 15 == 8:
            events.append({"type": "close", "code": int.from_bytes(payload[:2], "big")})
        else:
            events.append(json.loads(payload))
        if until(events[-1]):
            return events


def stall(server, topic, count=400, size=20_000):
    for n in range(count):
        publish(server, topic, {"symbol": f"s{n % 3}", "n": n, "fill": "x" * size})


def lags_by(server, ms):
    """Whether the server knows of a client that is behind by more than that."""
    return any(one["lag_ms"] > ms for one in server.get("/v1/slow")["slow"])


def test_a_slow_client_is_told_and_shown_and_ends_with_the_newest(server):
    subscribe = {"id": 1, "type": "subscribe", "topic": "values/a", "from": "now"}
    raw = slow_socket(server, subscribe)
    stall(server, "values/a")
    until(lambda: lags_by(server, 300), "it is not slow")
    publish(server, "values/a", "the last")
    [slow] = server.get("/v1/slow")["slow"]
    assert slow["topic"] == "values/a" and slow["conflation"] == "lagging"
    assert slow["waits_for"] == "connection" and slow["lag_ms"] > 300 and slow["lag_bytes"] > 20_000
    events = read_events(raw, lambda event: event.get("data") == "the last")
    lags = [event["ms"] for event in events if event["type"] == "lag"]
    assert lags and lags[0] >= 300, lags
    heard = [event["sequence"] for event in events if event["type"] == "publication"]
    assert heard == sorted(set(heard)) and len(heard) < 300
    assert counter(server, "conflated_total") == 401 - len(heard), "every one is accounted for"
    assert counter(server, "gaps_total") == 0
    until(lambda: server.get("/v1/slow")["slow"] == [], "it stays slow")


def test_a_conflation_key_keeps_the_newest_of_each_entity(server):
    raw = slow_socket(server, {"id": 1, "type": "subscribe", "topic": "book/a", "from": "now"})
    stall(server, "book/a")
    publish(server, "book/a", {"symbol": "end"})
    events = read_events(raw, lambda event: event.get("data") == {"symbol": "end"})
    newest = {e["data"]["symbol"]: e["data"].get("n") for e in events if e["type"] == "publication"}
    assert newest == {"s0": 399, "s1": 397, "s2": 398, "end": None}
    assert counter(server, "conflated_total") > 0


def test_conflation_unsubscribe_takes_the_topic_away_and_says_so(server):
    raw = slow_socket(server, {"id": 1, "type": "subscribe", "topic": "vital/a", "from": "now"})
    stall(server, "vital/a")
    until(lambda: lags_by(server, 500), "it is not slow")
    events = read_events(raw, lambda event: event["type"] == "unsubscribed")
    assert events[-1] == {"type": "unsubscribed", "selectors": ["vital/a"], "reason": "lagged"}
    assert counter(server, "lagged_unsubscribes_total") == 1


def test_a_log_is_complete_or_says_what_is_missing(server):
    raw = slow_socket(server, {"id": 1, "type": "subscribe", "topic": "log/a", "from": "now", "conflation": "off"})
    stall(server, "log/a", count=1000)
    publish(server, "log/a", "the last")
    events = read_events(raw, lambda event: event.get("data") == "the last")
    last = 0
    for event in events:
        if event["type"] == "publication":
            assert event["sequence"] == last + 1
            last = event["sequence"]
        elif event["type"] == "gap":
            last = event["to"]
    assert last == 1001 and counter(server, "conflated_total") == 0


def test_a_large_publication_comes_in_pieces_and_holds_nothing_up(server):
    async def run():
        large = "L" * 10_000_000
        client = await Client.connect(server, hello={"fragments": True})
        await client.subscribe("feed/#")
        await client.subscribe("large/a")
        publisher = asyncio.to_thread(publish, server, "large/a", large)
        sequence = asyncio.create_task(publisher)
        pieces, between, number = bytearray(), 0, 0
        while len(pieces) < len(large) + 2:
            if number < 50 and pieces:
                await asyncio.to_thread(publish, server, "feed/a", number)
                number += 1
            event = await client.hear()
            if event["type"] == "fragment":
                assert event["topic"] == "large/a" and event["offset"] == len(pieces)
                assert event["total"] == len(large) + 2
                pieces += base64.b64decode(event["base64"])
                assert len(event["base64"]) <= 4096 * 4 // 3 + 4
            elif event["type"] == "publication":
                assert event["topic"] == "feed/a"
                between += 1
        assert json.loads(pieces) == large and await sequence == 1
        assert between >= 20, "the feed goes on between the pieces"
        # Without having asked for pieces it comes whole.
        plain = await Client.connect(server)
        await plain.subscribe("large/a")
        assert (await plain.hear())["data"] == large

    asyncio.run(run())


def test_memory_is_shed_in_the_declared_order(tmp_path):
    budget = 300_000_000
    config = f"[[topics]]\nselector = \"#\"\nhistory_count = 1000000\nhistory_bytes = 1000000000\n[limits]\nmemory_bytes_max = {budget}\n"
    server = Server(config, tmp_path).start()
    try:
        fill = "x" * 50_000
        slow = slow_socket(server, {"id": 1, "type": "subscribe", "topic": "a/#", "from": "now"})
        for _ in range(200):
            publish_many(server, [(f"a/{n % 7}", fill) for n in range(60)])
        used = int(open(f"/proc/{server.process.pid}/statm").read().split()[1]) * 4096
        assert used < budget * 1.15, f"{used} bytes in use"
        assert counter(server, "shed_bytes_total") > 200_000_000
        assert "shedding histories" in server.errors()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v1/topics/a/0", timeout=60) as answer:
            assert json.load(answer)["data"] == fill, "the value stays"
        slow.close()
    finally:
        server.kill()


def test_new_sessions_are_refused_when_memory_is_used_up(tmp_path):
    server = Server("[limits]\nmemory_bytes_max = 1000000\n", tmp_path).start()
    try:
        # How much memory is used is looked at now and then.
        response = until(lambda: refusal_of(server), "it is not refused")
        assert response.status_code == 503
        body = json.loads(response.body)
        assert body["code"] == 4106 and "memory_bytes_max" in body["error"]
        assert server.get("/health") == {"status": "ok"}
    finally:
        server.kill()


def refusal_of(server):
    """What the server answers to a new session, unless it takes it."""

    async def run():
        client = await Client.connect(server)
        await client.socket.close()

    try:
        asyncio.run(run())
    except websockets.exceptions.InvalidStatus as refused:
        return refused.response

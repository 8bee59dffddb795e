"""permessage-deflate, as the Python library `websockets` speaks it."""

import contextlib
import json
import urllib.request

from server import Server
from websockets.sync.client import connect

CONFIG = "[engine]\nshards = 2\n[compression]\non = true\nbytes_min = 100\n"


def bytes_out(server):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(line.split()[-1]) for line in lines if line.startswith("tidegate_sent_bytes_total{"))


def test_messages_are_compressed_in_both_directions(tmp_path):
    server, stack = Server(CONFIG, tmp_path).start(), contextlib.ExitStack()
    try:
        address = f"ws://127.0.0.1:{server.port}/v1/ws"
        book = [{"price": 100 + level / 4, "size": level * 10, "side": "bid"} for level in range(400)]
        peers = [stack.enter_context(connect(address)) for _ in range(5)]
        plain = stack.enter_context(connect(address, compression=None))
        for peer in [*peers, plain]:
            peer.send(json.dumps({"id": 1, "type": "subscribe", "topic": "a/b"}))
            assert json.loads(peer.recv(timeout=60))["type"] == "subscribed"
        assert all(peer.protocol.extensions for peer in peers) and not plain.protocol.extensions
        before = bytes_out(server)
        for number in range(3):
            command = {"type": "publish", "topic": "a/b", "data": [number, *book]}
            peers[number].send(json.dumps(command))
            for peer in [*peers, plain]:
                heard = json.loads(peer.recv(timeout=60))
                assert (heard["sequence"], heard["data"]) == (number + 1, [number, *book])
        sent, whole = bytes_out(server) - before, len(json.dumps(book))
        # One of the six got it whole; the other five together not a quarter of what they would have.
        assert 3 * whole < sent < 3 * whole * (1 + 5 / 4), (sent, whole)
    finally:
        stack.close()
        server.kill()


def test_nobody_gets_what_was_not_configured(tmp_path):
    server = Server("", tmp_path).start()
    try:
        with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as peer:
            assert not peer.protocol.extensions
            peer.send(json.dumps({"id": 1, "type": "ping"}))
            assert json.loads(peer.recv(timeout=60)) == {"type": "pong", "id": 1}
    finally:
        server.kill()


def test_a_topic_may_be_kept_from_being_compressed(tmp_path):
    config = CONFIG + '[[topics]]\nselector = "secret/#"\ncompress = false\n'
    server = Server(config, tmp_path).start()
    try:
        with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as peer:
            for topic, is_whole in [("open/a", False), ("secret/a", True)]:
                peer.send(json.dumps({"id": 1, "type": "subscribe", "topic": topic}))
                assert json.loads(peer.recv(timeout=60))["type"] == "subscribed"
                before = bytes_out(server)
                text = "the same again and " * 5_000  # far more than the metrics, which are sent in between
                peer.send(json.dumps({"type": "publish", "topic": topic, "text": text}))
                assert json.loads(peer.recv(timeout=60))["text"] == text
                sent = bytes_out(server) - before
                assert (sent > len(text)) == is_whole, (topic, sent)
    finally:
        server.kill()

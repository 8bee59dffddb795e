"""kill -9 of the real server at random times under load: nothing acknowledged is lost or doubled.

What this covers: the end of the process at any instruction. What it does not: the loss of power, where the
kernel's cache goes too; the simulated disk of crates/backbone stands in for that.
"""

import json
import os
import random
import subprocess
import threading
import time
import urllib.request

import pytest
from server import PROGRAM, Server, until
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

KILLS = int(os.environ.get("KILLS", "4"))
TOPICS = [f"k/{number}" for number in range(4)]
CONFIG = '[engine]\nshards = 2\n[store]\npath = "{store}"\n[[topics]]\nselector = "k/#"\nack = "disk"\n'
CONFIG += "history_count = 1000000\nmemory_count = 50\n"


class Publisher(threading.Thread):
    """Publishes numbers with keys; what is not acknowledged is published again, with its key."""

    def __init__(self, node, topic, over_http):
        super().__init__()
        self.node, self.topic, self.over_http = node, topic, over_http
        self.acknowledged, self.is_over, self.failure = {}, False, None

    def run(self):
        number = 1
        while not self.is_over:
            try:
                number = self.publish_over_http(number) if self.over_http else self.publish_over_ws(number)
            except (OSError, WebSocketException, TimeoutError):
                time.sleep(0.02)
            except AssertionError as failure:
                self.failure = failure
                return

    def take(self, number, answer):
        assert "sequence" in answer, answer
        assert answer["level"] == "disk", answer
        before = self.acknowledged.setdefault(number, (answer["epoch"], answer["sequence"]))
        assert before == (answer["epoch"], answer["sequence"]), (before, answer)

    def publish_over_http(self, number):
        while not self.is_over:
            body = {"topic": self.topic, "data": number, "key": f"{self.topic}-{number}"}
            url = f"http://127.0.0.1:{self.node.port}/v1/publish"
            with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=60) as answer:
                self.take(number, json.load(answer))
            number += 1
        return number

    def publish_over_ws(self, number):
        window = 20
        with connect(f"ws://127.0.0.1:{self.node.port}/v1/ws", open_timeout=5) as peer:
            sent = number
            # In the end it hears all answers first: a close waits behind what was not read.
            while not self.is_over or number < sent:
                while sent < number + window and not self.is_over:
                    key = f"{self.topic}-{sent}"
                    command = {"id": sent, "type": "publish", "topic": self.topic, "data": sent, "key": key}
                    peer.send(json.dumps(command))
                    sent += 1
                answer = json.loads(peer.recv(timeout=60))
                if answer["type"] == "published":
                    self.take(answer["id"], answer)
                    while number in self.acknowledged:
                        number += 1
                    # All readers share this process with it: who publishes as fast as it can only keeps them busy.
                    if number % window == 0:
                        time.sleep(0.02)
                else:
                    assert answer["type"] == "closing", answer
        return number


class Reader(threading.Thread):
    """Reads all topics, resumes from its positions, and checks that no number is missing or double."""

    def __init__(self, node):
        super().__init__()
        self.node, self.positions, self.seen = node, {}, {topic: [] for topic in TOPICS}
        self.is_over, self.failure, self.resumes = False, None, 0

    def run(self):
        while not self.is_over:
            try:
                self.read()
            except (OSError, WebSocketException):
                time.sleep(0.02)
            except AssertionError as failure:
                self.failure = failure
                return

    def read(self):
        with connect(f"ws://127.0.0.1:{self.node.port}/v1/ws", open_timeout=5) as peer:
            command = {"type": "subscribe", "topics": TOPICS, "from": {"last": 10**9}}
            peer.send(json.dumps({**command, "positions": self.positions}))
            while not self.is_over:
                try:
                    event = json.loads(peer.recv(timeout=0.5))
                except TimeoutError:
                    continue
                self.take(event)

    def take(self, event):
        if event["type"] == "subscribed":
            for topic in event["topics"]:
                known = self.positions.get(topic["topic"])
                start = {"epoch": topic["epoch"], "sequence": topic["start"]}
                if known:
                    self.resumes += 1
                    assert topic["recovered"] is True and start == known, (topic, known)
                self.positions[topic["topic"]] = start
        elif event["type"] == "publication":
            position = self.positions[event["topic"]]
            assert event["sequence"] == position["sequence"] + 1, (event, position)
            position["sequence"] += 1
            self.seen[event["topic"]].append(event["data"])
        else:
            assert event["type"] == "closing", event


@pytest.mark.long
def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tmp_path):
    seed = int(os.environ.get("SEED", random.randrange(10**6)))
    print("seed", seed)
    chance = random.Random(seed)
    node = Server(CONFIG, tmp_path).start()
    publishers = [Publisher(node, topic, topic == TOPICS[-1]) for topic in TOPICS]
    readers = [Reader(node) for _ in range(3)]
    # A client of the Rust SDK beside those that know only the protocol.
    command = [PROGRAM, "sub", "--server", f"ws://127.0.0.1:{node.port}", "--json", *TOPICS]
    sub = subprocess.Popen([*command, "--from", "last:1000000000"], stdout=subprocess.PIPE, text=True)
    lines = []
    collector = threading.Thread(target=lambda: lines.extend(sub.stdout), daemon=True)
    for thread in [*publishers, *readers, collector]:
        thread.start()
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.2, 1.2))
        node.kill()
        time.sleep(chance.uniform(0, 0.3))
        node.start()
    counts = {publisher: len(publisher.acknowledged) for publisher in publishers}
    for publisher in publishers:
        goes_on = lambda publisher=publisher: publisher.failure or len(publisher.acknowledged) > counts[publisher] + 30  # noqa: E731
        until(goes_on, "nothing is acknowledged after the last kill")
        publisher.is_over = True
    for publisher in publishers:
        publisher.join(60)
    heads = {topic: node.get(f"/v1/history/{topic}?last=1")["head"] for topic in TOPICS}

    def are_read():
        assert not any(reader.failure for reader in readers), [r.failure for r in readers]
        return all(len(reader.seen[topic]) >= heads[topic] for reader in readers for topic in TOPICS)

    until(are_read, lambda: [{t: len(s) for t, s in r.seen.items()} for r in readers])
    until(lambda: len(lines) >= sum(heads.values()), lambda: f"{len(lines)} lines of {heads}")
    for reader in readers:
        reader.is_over = True
        reader.join(10)
        assert reader.failure is None, reader.failure
        assert reader.resumes >= KILLS, reader.resumes
    sub.terminate()
    by_sdk = {topic: [] for topic in TOPICS}
    for line in map(json.loads, lines):
        by_sdk[line["topic"]].append((line["sequence"], line["data"]))
    count = 0
    for publisher in publishers:
        assert publisher.failure is None, publisher.failure
        topic, acknowledged = publisher.topic, publisher.acknowledged
        assert len({epoch for epoch, _ in acknowledged.values()}) == 1, "the epoch is kept"
        for reader in readers:
            seen = reader.seen[topic]
            assert len(seen) == len(set(seen)), f"{topic}: something came twice"
            for number, (_, sequence) in acknowledged.items():
                assert seen[sequence - 1] == number, f"{topic}: {number} at {sequence}"
        assert [sequence for sequence, _ in by_sdk[topic]] == list(range(1, heads[topic] + 1))
        assert [data for _, data in by_sdk[topic]] == readers[0].seen[topic]
        count += len(acknowledged)
    print(count, "acknowledged over", KILLS, "kills")
    assert count > 100
    assert node.stop() == 0
    assert "damaged" not in node.errors(), node.errors()

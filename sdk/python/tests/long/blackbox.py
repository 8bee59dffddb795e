"""The SDK against the real server, at random: subscriptions that overlap, with other options, over proxies that are cut; the
server killed; positions stored and gone on from; slow readers and streams.

A twin knows what each reader must have been told (twin.py). usage: [TRACE=FILE] blackbox.py [--seconds 600] [--seed N]
The seed chooses what is done; what of it happens first is up to the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[4] / "tests/support")]

from proxy import Proxy
from readers import Reader
from server import Server
from tidegate import Client, TidegateError
from wire_trace import trace
from twin import Truth, Violation, payload

from helpers import SHORT

CONFIG = """
[store]
path = "{store}"
[access]
anonymous = "all"
[[topics]]
selector = "kept/#"
ack = "disk"
history_count = 1000000
[[topics]]
selector = "mem/#"
history_count = 1000000
[[topics]]
selector = "short/#"
history_count = 4
[limits]
fragment_bytes = 20000
"""

TOPICS = ["kept/a", "kept/b", "mem/a", "mem/b", "mem/a/x", "short/a", "short/b"]
READERS = [("ws", "websocket", False), ("ws-skips", "websocket", True), ("sse", "sse", False), ("poll", "poll", False)]
QUIET_SECONDS = 60
"""How long nobody may be told anything while somebody lacks something."""


class World:
    """The server, who publishes, and who reads."""

    def __init__(self, chosen: random.Random, server: Server) -> None:
        self.chosen = chosen
        self.server = server
        self.truth = Truth()
        self.readers: list[Reader] = []
        self.publisher = Client(server.url, times=SHORT)
        self.publisher.on("error", lambda error: None)
        self.published = 0
        self.topics = list(TOPICS)
        self.counts: dict[str, int] = {}

    async def begin(self) -> None:
        """Opens the proxies."""
        for name, transport, skips in READERS:
            proxy = await Proxy.open(self.server.port)
            self.readers.append(Reader(name, self.chosen, proxy, self.truth, transport, skips))
        await self.publisher.ready()

    async def publish(self) -> None:
        """Some publications at once; whether one was kept that a kill caught is known to nobody."""
        chosen = self.chosen
        if chosen.random() < 0.03:
            self.topics.append(f"{chosen.choice(['kept', 'mem'])}/new{len(self.topics)}")
        topics = [chosen.choice(self.topics) for _ in range(chosen.choice([1, 3, 10, 100]))]
        waits = []
        for topic in topics:
            self.published += 1
            size = 50_000 if chosen.random() < 0.02 else chosen.choice([0, 40, 200])
            waits.append(self._publish_one(topic, self.published, size))
        await asyncio.gather(*waits)

    async def _publish_one(self, topic: str, number: int, size: int) -> None:
        try:
            done = await self.publisher.publish(topic, payload(topic, number, size))
            self.truth.learn(topic, done.epoch, done.sequence, number)
        except TidegateError as error:
            if error.code not in (4900, 4906):
                raise

    async def act(self) -> None:
        """One thing that happens."""
        chosen, reader = self.chosen, self.chosen.choice(self.readers)
        what = chosen.choices(
            ["publish", "subscribe", "stop", "go on", "cut", "mute", "rest", "kill"], [40, 12, 6, 8, 4, 1, 20, 0.4]
        )[0]
        self.counts[what] = self.counts.get(what, 0) + 1
        if what == "publish":
            await self.publish()
        elif what == "subscribe" and len(reader.readings) < 6:
            reader.subscribe()
        elif what in ("stop", "go on") and reader.readings:
            reading = chosen.choice(reader.readings)
            reader.stop(reading) if what == "stop" else reader.go_on(reading)
        elif what == "cut":
            reader.proxy.cut()
            await asyncio.sleep(chosen.choice([0, 0.02, 0.2]))
            reader.proxy.mend()
        elif what == "mute":
            reader.proxy.mute()
            await asyncio.sleep(0.1)
            reader.proxy.cut()
            reader.proxy.mend()
        elif what == "rest":
            await asyncio.sleep(chosen.choice([0, 0.001, 0.01, 0.05]))
        elif what == "kill":
            self.server.kill()
            await asyncio.sleep(chosen.choice([0, 0.1]))
            await asyncio.to_thread(self.server.start)
        for each in self.readers:
            each.check()

    async def quiet(self) -> None:
        """Waits until everybody has everything."""
        heads = {}
        for topic in self.topics:
            page = await self.publisher.history(topic, last=1)
            if page.head:
                heads[topic] = page.epoch, page.head
        told, began, until = 0, time.monotonic(), time.monotonic() + QUIET_SECONDS
        said_at = began
        while lacks := self._lacks(heads):
            if told != (told := self._told()):
                until = time.monotonic() + QUIET_SECONDS
            if time.monotonic() > until:
                raise Violation(f"nothing came for {QUIET_SECONDS} s, and somebody lacks something: {lacks}")
            if time.monotonic() - said_at > 10:
                said_at = time.monotonic()
                print(f"not quiet for {said_at - began:.0f} s, {told} told, {lacks[0]} and {len(lacks) - 1} more", flush=True)
            await asyncio.sleep(0.02)
            for reader in self.readers:
                reader.check()
        for reader in self.readers:
            for reading in list(reader.readings):
                reading.check_positions()
                if reading.is_over:
                    reader.go_on(reading)
            reader.note_skips(True)

    def _told(self) -> int:
        return sum(reading.twin.told for reader in self.readers for reading in reader.readings)

    def _lacks(self, heads: dict[str, tuple[str, int]]) -> list[str]:
        lacks = []
        for reader in self.readers:
            for reading in reader.readings:
                lack = reading.has_all(heads)
                if lack is not None:
                    lacks.append(f"{reading.twin.name} ({reading.subscription.state}) {lack}")
        return lacks

    async def close(self) -> None:
        """Ends everything."""
        for reader in self.readers:
            reader.client.close()
            await reader.client.wait_closed()
            await reader.proxy.close()
        self.publisher.close()
        await self.publisher.wait_closed()

    def progress(self) -> str:
        """How far it came, in one line."""
        told = sum(reading.twin.told for reader in self.readers for reading in reader.readings)
        gaps = sum(reading.twin.gaps for reader in self.readers for reading in reader.readings)
        return f"{self.published} published, {told} told to those who read now ({gaps} gaps), {self.counts}"


async def run(seed: int, seconds: float) -> None:
    """Lets things happen for so many seconds."""
    traced = os.environ.get("TRACE")
    write_trace = trace(Path(traced)) if traced else lambda: None
    began = told_at = time.monotonic()
    with Server(CONFIG) as server:
        world = World(random.Random(seed), server)
        await world.begin()
        try:
            while time.monotonic() - began < seconds:
                try:
                    for _ in range(world.chosen.randint(20, 200)):
                        await world.act()
                    await world.quiet()
                except Violation:
                    write_trace()
                    raise
                if time.monotonic() - told_at > 10:
                    told_at = time.monotonic()
                    print(f"seed {seed}, {told_at - began:.0f} s: {world.progress()}", flush=True)
        finally:
            await world.close()
    print(f"seed {seed}: good, {world.progress()}", flush=True)


def main() -> None:
    """Reads the command line."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=600)
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    given = asked.parse_args()
    print(f"seed {given.seed}, for {given.seconds:.0f} s", flush=True)
    asyncio.run(run(given.seed, given.seconds))


if __name__ == "__main__":
    main()

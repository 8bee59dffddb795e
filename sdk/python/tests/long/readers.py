"""Readers of the long test: clients over proxies, and what each of their subscriptions was told."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

from proxy import Proxy
from tidegate import Client, Gap, Positions, Publication, Subscription, TidegateError
from tidegate.selector import selects
from twin import Truth, Twin, Violation

from helpers import SHORT

SELECTORS = [
    "kept/a", "kept/b", "kept/+", "kept/#", "mem/a", "mem/b", "mem/+", "mem/#", "mem/+/x", "short/a", "short/+", "#", "+/a", "+/+",
]  # fmt: skip
STARTS: list[Any] = ["snapshot", "now", "all", {"last": 5}]
PLAIN: list[dict[str, Any]] = [{}, {}, {"priority": 3}, {"interval_ms": 20}, {"delta": "json-patch"}]
SKIPPING: list[dict[str, Any]] = [{"filter": "data.n % 3 == 0"}, {"conflation": "lagging"}, {"conflation": "always", "interval_ms": 30}]


class Reading:
    """One subscription, by handlers or by a loop that may be slow."""

    def __init__(self, reader: Reader, selectors: list[str], options: dict[str, Any], twin: Twin, pace: float | None) -> None:
        """With a `pace` it reads a stream, and rests so many seconds now and then."""
        self.reader = reader
        self.selectors = selectors
        self.options = options
        self.twin = twin
        self.skips = bool(options.get("filter") or options.get("conflation"))
        self.subscription: Subscription = reader.client.subscribe(selectors, **options)
        self.failed: BaseException | None = None
        self._pace = pace
        self._task: asyncio.Task[None] | None = None
        self.subscription.on("error", self._fail)
        if pace is None:
            for name in ("snapshot", "update", "gap"):
                self.subscription.on(name, self._take)
        else:
            capacity = reader.chosen.choice([50, 1_000])
            stream: Any = self.subscription.stream(capacity=capacity, gaps=True)
            self._task = asyncio.get_running_loop().create_task(self._read(stream))

    @property
    def is_over(self) -> bool:
        """Whether its loop ended because it was too slow."""
        return self._task is not None and self._task.done()

    def has_all(self, heads: dict[str, tuple[str, int]]) -> str | None:
        """What it lacks, if it lacks anything."""
        if self.is_over:
            return None
        for topic, (epoch, head) in heads.items():
            if not any(selects(selector, topic) for selector in self.selectors):
                continue
            at = self.subscription.positions.get(topic)
            if at is None or at["epoch"] != epoch or (at["sequence"] != head and not self.twin.may_skip):
                return f"{topic}: it is at {at}, and the head is {epoch} {head}"
        return None

    def check_positions(self) -> None:
        """Positions are of what was handed out, and pass over nothing."""
        for topic, at in self.subscription.positions.items():
            told = self.twin.at.get(topic)
            if told is not None and told["epoch"] == at["epoch"] and at["sequence"] > told["sequence"] and not self.twin.may_skip:
                raise Violation(f"{self.twin.name}: positions say {topic} {at}, and told was {told}")

    def stop(self) -> Positions:
        """Ends it; answers its positions as they would be stored."""
        self.check_positions()
        self.subscription.unsubscribe()
        stored: Positions = json.loads(json.dumps(self.subscription.positions))
        if self._task is not None:
            self._task.cancel()
        return stored

    def _take(self, told: Publication | Gap) -> None:
        try:
            self.twin.take(told)
            if self._pace is None and self.subscription.positions[told.topic] != self.twin.at[told.topic]:
                raise Violation(f"{self.twin.name}: told {told.topic} {self.twin.at[told.topic]}, positions say otherwise")
        except Violation as violation:
            self._fail(violation)

    def _fail(self, error: BaseException) -> None:
        self.failed = self.failed or error

    async def _read(self, stream: Any) -> None:
        try:
            async for told in stream:
                self._take(told)
                if self._pace and self.reader.chosen.random() < 0.1:
                    await asyncio.sleep(self._pace)
        except TidegateError as error:
            if error.code != 4903:
                self._fail(error)


class Reader:
    """A client, and its subscriptions."""

    def __init__(self, name: str, chosen: random.Random, proxy: Proxy, truth: Truth, transport: Any, skips: bool) -> None:
        self.name = name
        self.chosen = chosen
        self.proxy = proxy
        self.client = Client(proxy.url, times=SHORT, transports=[transport])
        self.client.on("error", lambda error: self.errors.append(error))
        self.errors: list[Exception] = []
        self.readings: list[Reading] = []
        self._truth = truth
        self._skips = skips
        self._count = 0

    def subscribe(self) -> Reading:
        """Adds a subscription as it comes."""
        selectors = self.chosen.sample(SELECTORS, self.chosen.choice([1, 1, 1, 2]))
        options = dict(self.chosen.choice(PLAIN + SKIPPING if self._skips else PLAIN))
        return self._begin(selectors, options | {"start": self.chosen.choice(STARTS)}, {})

    def stop(self, reading: Reading) -> Positions:
        """Ends one."""
        self.readings.remove(reading)
        return reading.stop()

    def go_on(self, reading: Reading) -> Reading:
        """Ends one, and goes on from its stored positions."""
        stored = self.stop(reading)
        options = {**reading.options, "start": "all", "positions": stored}
        return self._begin(reading.selectors, options, stored)

    def note_skips(self, is_quiet: bool) -> None:
        """Notes who shares what it reads with one that skips; when all is quiet what has ended does not count any more."""
        any_skips = any(reading.skips for reading in self.readings)
        for reading in self.readings:
            reading.twin.may_skip = any_skips or (reading.twin.may_skip and not is_quiet)

    def check(self) -> None:
        """Raises what went wrong."""
        for reading in self.readings:
            if reading.failed is not None:
                raise Violation(f"{self.name} {reading.selectors} {reading.options}: {reading.failed!r}")
        if self.errors:
            raise Violation(f"{self.name}: {self.errors!r}")

    def _begin(self, selectors: list[str], options: dict[str, Any], at: Positions) -> Reading:
        self._count += 1
        twin = Twin(f"{self.name}.{self._count} {selectors} {options}", self._truth, dict(at))
        pace = self.chosen.choice([None, None, None, 0.0, 0.001, 0.02])
        reading = Reading(self, selectors, options, twin, pace)
        self.readings.append(reading)
        self.note_skips(False)
        return reading

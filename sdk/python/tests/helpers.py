"""NamedTransports to await what a client tells."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from tidegate import Client, ConnectionChange, ConnectionTimes, Gap, Publication, Resumed, Subscription, TidegateError

SHORT = ConnectionTimes(first_ms=20, last_ms=100, full_ms=500)


def client_of(url: str | Sequence[str], **options: Any) -> Client:
    """A client whose pauses are short."""
    return Client(url, **{"times": SHORT, **options})


async def enters(client: Client, state: str) -> None:
    """Returns when the client's connection is in `state`; it may be already."""
    reached = asyncio.Event()
    off = client.on("state", lambda change: reached.set() if change.state == state else None)
    try:
        if client.state != state:
            await reached.wait()
    finally:
        off()


async def until(holds: Callable[[], bool]) -> None:
    """Returns when something holds that nobody tells: looks again and again, as long as the test may take."""
    while not holds():
        await asyncio.sleep(0.005)


async def never() -> None:
    """Does not return within a test. The loop holds a timer, and whoever waits for it: an event it would not."""
    await asyncio.sleep(3_600)


def errors_of(client: Client) -> list[TidegateError]:
    """The errors with which connections end from now on."""
    errors: list[TidegateError] = []

    def note(change: ConnectionChange) -> None:
        if change.error is not None:
            errors.append(change.error)

    client.on("state", note)
    return errors


async def refused(awaitable: Any) -> TidegateError:
    """The error with which something fails."""
    try:
        answer = await awaitable
    except TidegateError as error:
        return error
    raise AssertionError(f"it did not fail, and answered {answer!r}")


class Notes:
    """What a subscription tells, in order."""

    def __init__(self, subscription: Subscription, note: Callable[[Any], Any] = lambda told: told) -> None:
        self.told: list[Any] = []
        self._note = note
        self._more = asyncio.Event()
        subscription.on("snapshot", self._take)
        subscription.on("update", self._take)
        subscription.on("gap", self._take)
        subscription.on("resumed", self._take)
        subscription.on("error", self._take)

    async def take(self, count: int) -> list[Any]:
        """The first `count`, as soon as there are so many."""
        while len(self.told) < count:
            self._more.clear()
            await self._more.wait()
        taken, self.told = self.told[:count], self.told[count:]
        return taken

    def _take(self, told: Any) -> None:
        self.told.append(self._note(told))
        self._more.set()


def line(told: Any) -> str:
    """What was told, in one line."""
    match told:
        case Publication():
            name = "snapshot" if told.is_snapshot else "update"
            return f"{name} {told.topic} {told.sequence} {json.dumps(told.data)}"
        case Gap():
            return f"gap {told.topic} {'' if told.from_ is None else told.from_}..{told.to} {told.reason}"
        case Resumed():
            return f"resumed {told.topic} {'whole' if told.recovered else 'not whole'}, {told.missed} missed"
        case TidegateError():
            return f"error {told.code}"
    return repr(told)


class Heard(Notes):
    """The same, one line each."""

    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription, line)

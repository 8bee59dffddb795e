"""Which subscriptions may be asked for now. Pure.

A `subscribe` has the server restart what it overlaps with, from a place that only this one gives. While nobody here
knows where another is in what they share, that would lose what the other has not been told yet: so it waits until the
other is answered and, if that has patterns, until their topics were told, before the `pong` to a `ping`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from .overlaps import Overlaps
from .readers import Reader
from .selector import is_pattern


class Taker(Reader, Protocol):
    """Something that is asked for."""

    was_live: bool
    """It was live once: it is asked for with all that it knows."""


T = TypeVar("T", bound=Taker)


class Turns(Generic[T]):
    """Those that are asked for and those that wait for them, compared by identity."""

    def __init__(self, next_id: Callable[[], int]) -> None:
        self._next_id = next_id
        self.clear()

    def clear(self) -> None:
        """Forgets everything, because the connection is gone."""
        # Those of which the server knows where they are, but nobody here does. Those that were live before do not wait
        # for each other: all of them ask for everything.
        self._unplaced: Overlaps[T] = Overlaps()
        self._returning: Overlaps[T] = Overlaps()
        self._open: dict[int, T] = {}
        # Of these, those that were answered, but whose patterns' topics may be on their way.
        self._unsettled: dict[int, T] = {}
        # The same, once a ping was sent on their account, by its id.
        self._settling: dict[int, list[T]] = {}
        # Those that wait, in their order.
        self._held: dict[int, T] = {}

    def must_wait(self, taker: T, *, also_for_itself: bool) -> bool:
        """Whether it has to wait for others, or for the answer to its last `subscribe`; if so, `take_held` tells when."""
        but = None if also_for_itself else taker
        others = [self._unplaced] if taker.was_live else [self._unplaced, self._returning]
        waits = any(each.has(selector, but) for selector in taker.selectors for each in others)
        if waits:
            self._held[id(taker)] = taker
        else:
            self._held.pop(id(taker), None)
        return waits

    def begin(self, taker: T) -> None:
        """Notes that one is asked for of which nobody here knows where it will be."""
        self.place(taker)
        self._open[id(taker)] = taker
        (self._returning if taker.was_live else self._unplaced).add(taker)

    def handle_answered(self, taker: T) -> None:
        """Notes that the server answered one."""
        if id(taker) in self._open and any(is_pattern(selector) for selector in taker.selectors):
            self._unsettled[id(taker)] = taker
        else:
            self.place(taker)

    def handle_pong(self, id: int | None) -> None:
        """Notes that what was answered before a ping is known whole."""
        for taker in self._settling.pop(id, []) if id is not None else []:
            self.place(taker)

    def remove(self, taker: T) -> None:
        """Forgets one, because it ended."""
        self._held.pop(id(taker), None)
        self.place(taker)

    def place(self, taker: T) -> None:
        """Notes that nobody has to wait for one: it is known where it is, or it is not asked for any more."""
        if self._open.pop(id(taker), None) is None:
            return
        self._unsettled.pop(id(taker), None)
        for settling in self._settling.values():
            settling[:] = [each for each in settling if each is not taker]
        self._unplaced.remove(taker)
        self._returning.remove(taker)

    def is_open(self, taker: T) -> bool:
        """Whether nobody here knows yet where it is."""
        return id(taker) in self._open

    def take_held(self) -> list[T]:
        """Those that wait, each of which is to be asked for again."""
        held = list(self._held.values())
        self._held.clear()
        return held

    def poll_ping(self) -> int | None:
        """The id of a ping to be sent, if somebody waits for topics that may be on their way."""
        if not self._held or not self._unsettled:
            return None
        ping = self._next_id()
        self._settling[ping] = list(self._unsettled.values())
        self._unsettled.clear()
        return ping

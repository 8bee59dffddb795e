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
        # The same, once a ping was sent on their account, by its id; and which ping that is of each.
        self._settling: dict[int, list[T]] = {}
        self._settled_by: dict[int, int] = {}
        # Those that wait, with their place in the order.
        self._held: dict[int, tuple[int, T]] = {}
        self._held_count = 0
        # Those that wait for one; and of those that wait, the ones that may not have to any more.
        self._waiting_for: dict[int, list[T]] = {}
        self._freed: dict[int, T] = {}

    def must_wait(self, taker: T, *, also_for_itself: bool) -> bool:
        """Whether it has to wait for others, or for the answer to its last `subscribe`; if so, `take_held` tells when."""
        but = None if also_for_itself else taker
        others = [self._unplaced] if taker.was_live else [self._unplaced, self._returning]
        # One is enough: once that is placed, the next is looked for.
        in_the_way = next((found for each in others if (found := each.first(taker.selectors, but)) is not None), None)
        if in_the_way is None:
            self._held.pop(id(taker), None)
            return False
        self._held_count += 1
        self._held.setdefault(id(taker), (self._held_count, taker))
        self._waiting_for.setdefault(id(in_the_way), []).append(taker)
        return True

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

    def handle_pong(self, ping: int | None) -> None:
        """Notes that what was answered before a ping is known whole."""
        for taker in self._settling.pop(ping, []) if ping is not None else []:
            if self._settled_by.get(id(taker)) == ping:
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
        self._settled_by.pop(id(taker), None)
        self._freed.update((id(each), each) for each in self._waiting_for.pop(id(taker), []))
        self._unplaced.remove(taker)
        self._returning.remove(taker)

    def is_open(self, taker: T) -> bool:
        """Whether nobody here knows yet where it is."""
        return id(taker) in self._open

    def take_held(self) -> list[T]:
        """Those that may not have to wait any more, in their order; each is to be asked for again."""
        if not self._freed:
            return []
        freed = sorted((self._held[each] for each in self._freed if each in self._held), key=lambda held: held[0])
        self._freed.clear()
        return [taker for _, taker in freed]

    def poll_ping(self) -> int | None:
        """The id of a ping to be sent, if somebody waits for topics that may be on their way."""
        if not self._held or not self._unsettled:
            return None
        ping = self._next_id()
        self._settling[ping] = list(self._unsettled.values())
        self._settled_by.update(dict.fromkeys(self._unsettled, ping))
        self._unsettled.clear()
        return ping

"""Places that do not go into one command, because the server takes only so many bytes. Pure.

A pattern may select more topics than their places fit into one `subscribe`. It is asked for with as many as fit; the others
are asked for by name afterwards, some at a time, and the names given back: the pattern goes on reading them.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Generic, TypeVar

from .protocol import Command, Position, encode_command

T = TypeVar("T")

TOPICS_MAX = 1_000
"""Topics that are asked for by name at a time: a session may have only so many selectors."""

Places = dict[str, Position]
"""Places by topic."""


class Parts(Generic[T]):
    """What is to be asked for later, and for whom, compared by identity."""

    def __init__(self) -> None:
        self._bytes_max: int | None = None
        self._waiting: deque[tuple[T, Places]] = deque()
        # Their names are given back also if their owner has ended meanwhile.
        self._asked: dict[int, tuple[T | None, Places]] = {}

    def handle_connected(self, message_bytes_max: int | None) -> None:
        """Takes how large a command may be."""
        self._bytes_max = message_bytes_max

    def clear(self) -> None:
        """Forgets everything, because the connection is gone."""
        self._waiting.clear()
        self._asked.clear()

    def remove(self, owner: T) -> None:
        """Forgets what was to be asked for one."""
        self._waiting = deque(part for part in self._waiting if part[0] is not owner)
        self._asked = {id: (None if part[0] is owner else part[0], part[1]) for id, part in self._asked.items()}

    def split(self, owner: T, asked: Command, places: Places) -> tuple[Places, list[str]]:
        """The places that go with a command, and the topics of the others, which wait from now on."""
        self.remove(owner)
        if self._bytes_max is None or _bytes_of(places) + (own := len(encode_command(asked).encode())) < self._bytes_max:
            return places, []
        first, *others = _parts_of(places, self._bytes_max - own, self._bytes_max - own)
        self._waiting.extend((owner, part) for part in others)
        return first, [topic for part in others for topic in part]

    def next(self) -> tuple[T, Places] | None:
        """What to ask for next, once what was asked for before is answered."""
        return self._waiting.popleft() if self._waiting and not self._asked else None

    def handle_asked(self, id: int, owner: T, places: Places) -> None:
        """Notes that a part is asked for."""
        self._asked[id] = owner, places

    def handle_answered(self, id: int | None) -> tuple[T | None, Places] | None:
        """The part that was asked for with this command, if it is one."""
        return None if id is None else self._asked.pop(id, None)

    def halve(self, owner: T, places: Places) -> bool:
        """Has a part asked for as two; answers whether that can be."""
        topics = list(places)
        middle = len(topics) // 2
        for half in (topics[middle:], topics[:middle]):
            if middle > 0:
                self._waiting.appendleft((owner, {topic: places[topic] for topic in half}))
        return middle > 0


def _bytes_of(places: Places) -> int:
    """At least as many bytes as they have in a command, names included twice."""
    return sum(2 * len(json.dumps(topic)) + len(json.dumps(place["epoch"])) + 64 for topic, place in places.items())


def _parts_of(places: Places, first_bytes: int, other_bytes: int) -> list[Places]:
    parts: list[Places] = [{}]
    left = first_bytes
    for topic, place in places.items():
        size = _bytes_of({topic: place})
        is_full = len(parts) > 1 and len(parts[-1]) == TOPICS_MAX
        if size > left or is_full:
            parts.append({})
            left = other_bytes
        parts[-1][topic] = place
        left -= size
    return parts

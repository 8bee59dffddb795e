"""How far the application was handed what its subscription was told. Pure.

What arrived is further: it may wait to be told, or for a loop. Positions that are stored have to be of what was handed
out, or what waits would be lost to whoever goes on from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from .protocol import Position, Positions

Place = tuple[str, int]
"""An epoch and a sequence."""


@dataclass
class _Ahead:
    """What was told of a topic and is not handed out yet."""

    last: Place
    """The newest publication."""
    through: Place
    """Where the topic is after that: a gap may follow."""


class Progress:
    """The positions of one subscription, as its user may store them. They stay when it ends."""

    def __init__(self, positions: Positions) -> None:
        """`positions` are those from which it goes on."""
        self._handed = {topic: (each["epoch"], each["sequence"]) for topic, each in positions.items()}
        self._ahead: dict[str, _Ahead] = {}

    def positions(self) -> dict[str, Position]:
        """Where it is in each topic."""
        return {topic: {"epoch": epoch, "sequence": sequence} for topic, (epoch, sequence) in self._handed.items()}

    def handle_told(self, topic: str, place: Place) -> None:
        """Notes that there is a publication, or something else that has to be taken, at a place."""
        self._ahead[topic] = _Ahead(place, place)

    def handle_passed(self, topic: str, place: Place) -> None:
        """Notes that there is nothing up to a place, after what was told before."""
        ahead = self._ahead.get(topic)
        if ahead is None:
            self._handed[topic] = place
        else:
            ahead.through = place

    def handle_handed(self, topic: str, place: Place) -> None:
        """Notes that the application has what is at a place. Of several that take it the furthest counts."""
        ahead = self._ahead.get(topic)
        if ahead is None:
            return
        if place == ahead.last:
            self._handed[topic] = ahead.through
            del self._ahead[topic]
            return
        before = self._handed.get(topic)
        is_further = before is None or (place[1] > before[1] if place[0] == before[0] else place[0] == ahead.last[0])
        if is_further:
            self._handed[topic] = place

"""What one subscription knows of the topics it reads: positions, gaps, what is a repetition. Pure.

The semantics are those of the Rust SDK's tracker: a gap is the authority, a new epoch starts over, what was taken
before and comes again is dropped by its sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Union

from .protocol import Event, GapReason, Headers, PayloadKind, Position, Positions, Start, decode_headers, decode_payload


@dataclass(frozen=True)
class Publication:
    """A publication as a subscriber gets it."""

    topic: str
    epoch: str
    sequence: int
    kind: PayloadKind
    """What the payload is."""
    data: Any
    """JSON as a value, text as `str`, bytes as `bytes`."""
    is_snapshot: bool
    """Whether it is the value that the topic had when the subscription began."""
    previous: int = 0
    """The sequence before it in the topic; 0 if there was none, or nobody knows."""
    headers: Headers = field(default_factory=dict)
    time_ms: int | None = None
    """When it was published, in milliseconds since 1970, if `time` was asked for."""
    principal: str | None = None
    """Who published it, if `principal` was asked for and the topic's policy has it recorded."""

    @property
    def position(self) -> Position:
        """Its place: "I have everything up to here." """
        return {"epoch": self.epoch, "sequence": self.sequence}


@dataclass(frozen=True)
class Gap:
    """Publications that cannot be had any more."""

    topic: str
    epoch: str
    from_: int | None
    """The first one's sequence; `None` if the numbering began anew."""
    to: int
    """The last one's: what follows begins after it."""
    reason: GapReason


@dataclass(frozen=True)
class Resumed:
    """A topic is read on from where it was left."""

    topic: str
    recovered: bool
    """Whether all that was missed follows. If not, a gap comes first."""
    missed: int
    """How many were published meanwhile, as far as the server kept count."""


@dataclass(frozen=True)
class Placed:
    """There is nothing to be told of a topic up to here. Only positions depend on it."""

    topic: str
    epoch: str
    sequence: int


Notification = Union[Publication, Gap, Resumed, Placed]
"""What an event means for the reader."""


@dataclass
class _Place:
    epoch: str
    sequence: int
    head: int
    """The newest sequence when reading began: up to here it is the snapshot, if one was asked for."""
    wants_snapshot: bool = False
    is_resuming: bool = False
    """It has to be told that reading goes on."""


class Tracker:
    """Follows the positions of one subscription's topics, across connections."""

    def __init__(self, start: Start, positions: Positions) -> None:
        """`positions` are places from which to resume."""
        self._wants_snapshots = start == "snapshot"
        self._places = {
            topic: _Place(position["epoch"], position["sequence"], head=0, is_resuming=True)
            for topic, position in positions.items()
        }

    def positions(self) -> dict[str, Position]:
        """Where it is in each topic."""
        return {
            topic: {"epoch": place.epoch, "sequence": place.sequence}
            for topic, place in self._places.items()
        }

    def is_before(self, topic: str, epoch: str, start: int) -> bool:
        """Whether it has a place in `topic`, of this numbering and before `start`."""
        place = self._places.get(topic)
        return place is not None and place.epoch == epoch and place.sequence < start

    def handle_disconnect(self) -> None:
        """Notes that the connection is gone: every topic has to be resumed."""
        # What comes into being meanwhile is news.
        self._wants_snapshots = False
        for place in self._places.values():
            place.is_resuming = True
            place.wants_snapshot = False

    def handle_topic(self, wire: Event, *, is_new: bool) -> list[Notification]:
        """Takes the description of a topic; if `is_new`, the place where it begins to be told, or goes on."""
        topic, epoch, head, start = wire["topic"], wire["epoch"], wire["head"], wire["start"]
        place = self._places.get(topic)
        if place is None:
            # Where nothing is to come but news, the first of it is no snapshot.
            wants_snapshot = self._wants_snapshots and start < head
            self._places[topic] = _Place(epoch, start, head, wants_snapshot)
            return [Placed(topic, epoch, start)]
        told: list[Notification] = []
        is_lost = is_new and wire.get("recovered") is False
        # A server that lost what it once told starts anew as well, whatever it calls its epoch.
        is_anew = place.epoch != epoch or (is_lost and head < place.sequence)
        if place.is_resuming:
            place.is_resuming = False
            missed = max(0, head - (0 if is_anew else place.sequence))
            told.append(Resumed(topic, recovered=not is_anew and not is_lost, missed=missed))
        if is_anew:
            self._places[topic] = _Place(epoch, start, head)
            told.append(Gap(topic, epoch, from_=None, to=start, reason="epoch"))
        elif is_new:
            place.head = max(place.head, head)
            if start <= place.sequence or is_lost:
                # If something is lost before it, a gap says so.
                told.append(Placed(topic, epoch, place.sequence))
            else:
                # Not from where it was asked for.
                told.append(Gap(topic, epoch, from_=place.sequence + 1, to=start, reason="history"))
                place.sequence = start
        return told

    def handle_gap(self, wire: Event) -> Gap | None:
        """Takes a gap. It moves the position, also after `recovered` was true."""
        topic, epoch, to = wire["topic"], wire["epoch"], wire["to"]
        place = self._places[topic]
        if place.epoch != epoch:
            self._places[topic] = _Place(epoch, to, head=0)
            return Gap(topic, epoch, from_=None, to=to, reason=wire["reason"])
        if to <= place.sequence:
            return None
        from_ = max(wire.get("from", 0), place.sequence + 1)
        place.sequence = to
        return Gap(topic, epoch, from_, to, wire["reason"])

    def handle_publication(self, wire: Event) -> Publication | None:
        """Takes a publication. One that was taken before means nothing."""
        topic, sequence = wire["topic"], wire["sequence"]
        place = self._places[topic]
        if sequence <= place.sequence:
            return None
        kind, data = decode_payload(wire)
        is_snapshot = place.wants_snapshot and sequence <= place.head
        place.sequence = sequence
        place.wants_snapshot = False
        said = wire.get("previous", sequence - 1), decode_headers(wire), wire.get("time_ms"), wire.get("principal")
        return Publication(topic, place.epoch, sequence, kind, data, is_snapshot, *said)

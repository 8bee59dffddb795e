"""What one subscription knows of the topics it reads: positions, gaps, what is a repetition. Pure.

The semantics are those of the Rust SDK's tracker: a gap is the authority, a new epoch starts over, what was taken
before and comes again is dropped by its sequence.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Union

from .protocol import Event, GapReason, PayloadKind, Position, Positions, Start, decode_payload


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
    quiet_through: int = 0
    """Gaps up to here are of no interest: the subscription joined another that had read so far."""
    is_resuming: bool = False
    """It has to be told that reading goes on."""
    is_late: bool = False
    """It is asked for later, by name: until then it may be read from further on."""
    is_described: bool = False
    """The server said where it reads from for this subscription. What comes before that is meant for others."""


class Tracker:
    """Follows the positions of one subscription's topics, across connections."""

    def __init__(self, start: Start, positions: Positions) -> None:
        """`positions` are places from which to resume."""
        self._wants_snapshots = start == "snapshot"
        self._wants_all = start == "all"
        self._places = {
            topic: _Place(position["epoch"], position["sequence"], head=0, is_resuming=True)
            for topic, position in positions.items()
        }

    def position(self, topic: str) -> Position | None:
        """Where it is in `topic`."""
        place = self._places.get(topic)
        return None if place is None else {"epoch": place.epoch, "sequence": place.sequence}

    def positions(self) -> dict[str, Position]:
        """Where it is in each topic."""
        return {
            topic: {"epoch": place.epoch, "sequence": place.sequence}
            for topic, place in self._places.items()
        }

    def is_described(self, topic: str) -> bool:
        """Whether the server said where it reads a topic from."""
        place = self._places.get(topic)
        return place is not None and place.is_described

    def undescribed(self) -> dict[str, Position]:
        """Where it is in those of which the server is yet to say from where it reads them."""
        return {
            topic: {"epoch": place.epoch, "sequence": place.sequence}
            for topic, place in self._places.items()
            if not place.is_described
        }

    def topics(self) -> Iterable[str]:
        """The topics of which it has a position."""
        return self._places.keys()

    def handle_disconnect(self) -> None:
        """Notes that the connection is gone: every topic has to be resumed."""
        # What comes into being meanwhile is news.
        self._wants_snapshots, self._wants_all = False, True
        for place in self._places.values():
            place.is_resuming = True
            place.wants_snapshot = False

    def handle_asked(self) -> None:
        """Notes that the server is asked to read from these places: each is described anew."""
        for place in self._places.values():
            place.is_described = place.is_late = False

    def handle_later(self, topics: Iterable[str]) -> None:
        """Notes that the server is told of some places later: until then it does not read from there."""
        for topic in topics:
            self._places[topic].is_late = True

    def is_before(self, topic: str, epoch: str, start: int, *, is_known_to_all: bool) -> bool:
        """Whether it is before `start` in what it reads of `topic`.

        `is_known_to_all` says that it knows all topics that there were when it began: of others it has nothing.
        """
        place = self._places.get(topic)
        if place is None:
            return is_known_to_all and start > 0
        return place.is_described and place.epoch == epoch and place.sequence < start

    def handle_overtaken(self, topic: str, epoch: str) -> None:
        """Notes that a topic is to be read from where this one is, of which it may know nothing yet."""
        self._places.setdefault(topic, _Place(epoch, 0, head=0))

    def join(self, topic: str, position: Position, start: int) -> None:
        """Joins a reader that is at `position` in `topic`: what that one has no interest in is no gap here."""
        self._places[topic] = _Place(
            epoch=position["epoch"],
            sequence=start,
            head=position["sequence"],
            wants_snapshot=self._wants_snapshots,
            quiet_through=position["sequence"],
        )

    def handle_topic(self, wire: Event, *, is_unfinished: bool = False) -> list[Notification]:
        """Takes the place where the server starts to read a topic.

        `is_unfinished` says that pieces are still to come of something before that place: it moves nothing then.
        """
        topic, epoch, head, start = wire["topic"], wire["epoch"], wire["head"], wire["start"]
        is_lost = wire.get("recovered") is False
        place = self._places.get(topic)
        if place is None:
            # Where nothing is to come but news, the first of it is no snapshot, even if the topic is described again before.
            wants_snapshot = self._wants_snapshots and start < head
            # If it is resumed for another, and not whole, a gap says what is not there.
            sequence = 0 if self._wants_all and is_lost else start
            self._places[topic] = _Place(epoch, sequence, head, wants_snapshot, is_described=True)
            return [Placed(topic, epoch, sequence)]
        is_beyond = place.epoch == epoch and start > place.sequence
        if place.is_late and wire.get("recovered") is None and is_beyond:
            return []
        place.is_late = False
        told: list[Notification] = []
        was_described, place.is_described = place.is_described, True
        # A server that lost what it once told starts anew as well, whatever it calls its epoch.
        is_anew = place.epoch != epoch or (is_lost and head < place.sequence)
        if place.is_resuming:
            place.is_resuming = False
            missed = max(0, head - (0 if is_anew else place.sequence))
            told.append(Resumed(topic, recovered=not is_anew and not is_lost, missed=missed))
        if is_anew:
            self._places[topic] = _Place(epoch, start, head, is_described=True)
            told.append(Gap(topic, epoch, from_=None, to=start, reason="epoch"))
        else:
            place.head = max(place.head, head)
            if not was_described and not is_lost and start > place.sequence:
                # Not from where it was asked for, and the server does not say why.
                told.append(Gap(topic, epoch, from_=place.sequence + 1, to=start, reason="history"))
                place.sequence = start
            else:
                # If something is lost in between, a gap says so.
                if not is_unfinished and not is_lost:
                    place.sequence = max(place.sequence, start)
                if not was_described or start == place.sequence:
                    told.append(Placed(topic, epoch, place.sequence))
        return told

    def handle_noted(self, wire: Event, *, is_unfinished: bool) -> list[Notification]:
        """Takes the place from which a topic is read for others too, unless that is beyond where it was asked for."""
        place = self._places.get(wire["topic"])
        is_beyond = place is not None and place.epoch == wire["epoch"] and wire["start"] > place.sequence
        if is_beyond and wire.get("recovered") is not False:
            return []
        return self.handle_topic(wire, is_unfinished=is_unfinished)

    def handle_gap(self, wire: Event) -> list[Notification]:
        """Takes a gap. It moves the position, also after `recovered` was true."""
        topic, epoch, to = wire["topic"], wire["epoch"], wire["to"]
        place = self._places.get(topic)
        if place is None or not place.is_described:
            return []
        if place.epoch != epoch:
            self._places[topic] = _Place(epoch, to, head=0, is_resuming=place.is_resuming, is_described=True)
            return [Gap(topic, epoch, from_=None, to=to, reason=wire["reason"])]
        if to <= place.sequence:
            return []
        from_ = max(wire.get("from", 0), place.sequence + 1)
        place.sequence = to
        if to <= place.quiet_through:
            return []
        return [Gap(topic, epoch, from_, to, wire["reason"])]

    def handle_publication(self, wire: Event) -> list[Notification]:
        """Takes a publication. One that was taken before means nothing."""
        topic, sequence = wire["topic"], wire["sequence"]
        place = self._places.get(topic)
        if place is None or not place.is_described or sequence <= place.sequence:
            return []
        kind, data = decode_payload(wire)
        is_snapshot = place.wants_snapshot and sequence <= place.head
        place.sequence = sequence
        place.wants_snapshot = False
        return [Publication(topic, place.epoch, sequence, kind, data, is_snapshot)]

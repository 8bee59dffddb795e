"""Whole publications of what comes: pieces are put together, deltas applied. docs/protocol.md, 5a and 5b. Pure.

It stands before the subscriptions, because the server tells a session each topic once: what is a base, or is not
finished, is of the connection and not of one reader. Whatever comes after an unfinished publication of its topic waits
for it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Union

from .deltas import BadDelta, Deltas
from .protocol import Event


@dataclass(frozen=True)
class Broken:
    """A publication could not be made of what came: the topic has to be asked for again, whole."""

    topic: str


Whole = Union[Event, Broken]
"""A publication or a gap in its place, or that there is none to be had."""


@dataclass
class _Unfinished:
    wire: Event
    """Its first piece."""
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0

    @property
    def is_whole(self) -> bool:
        return bool(self.size >= self.wire["total"])


_Waiting = Union[_Unfinished, Event]


class Payloads:
    """Makes publications whole."""

    def __init__(self) -> None:
        # Deltas were asked for on this connection. Whoever shares a topic may get them, even longer than who asked.
        self.expects_deltas = False
        self.deltas = Deltas()
        # What waits for an unfinished publication, by topic, in the order of the sequences. The first is unfinished.
        self._waiting: dict[str, list[_Waiting]] = {}

    def clear(self) -> None:
        """Forgets everything: the next connection knows nothing of what this one was sent."""
        self.expects_deltas = False
        self.deltas.clear()
        self._waiting.clear()

    def is_unfinished(self, topic: str) -> bool:
        """Whether pieces are still to come of something in `topic`: the server counts it as told."""
        return topic in self._waiting

    def forget(self, topic: str) -> None:
        """Forgets what came of a topic."""
        self._waiting.pop(topic, None)
        self.deltas.forget(topic)

    def restart(self, topic: str, start: int) -> None:
        """Notes that a topic is read from `start`: what is not finished after that comes again, from its beginning.

        Its pieces that are still on their way are of the reading before, and would stand before what comes first.
        """
        waiting = self._waiting.get(topic)
        if waiting is None:
            return
        waiting[:] = [each for each in waiting if _place(each) <= start]
        if not waiting:
            del self._waiting[topic]

    def forget_unless(self, is_read: Callable[[str], bool]) -> None:
        """Forgets the pieces of topics that nobody reads any more: the rest of them does not come."""
        for topic in [topic for topic in self._waiting if not is_read(topic)]:
            del self._waiting[topic]

    def take(self, wire: Event) -> list[Whole]:
        """Takes a publication, delta, piece or gap; answers what is whole now, in order."""
        topic = wire["topic"]
        if wire["type"] == "fragment":
            return self._take_piece(topic, wire)
        waiting = self._waiting.get(topic)
        if waiting is None or _place(wire) <= _place(waiting[0]):
            return [self._finish(wire)]
        _insert(waiting, wire)
        return []

    def _take_piece(self, topic: str, wire: Event) -> list[Whole]:
        waiting = self._waiting.get(topic, [])
        same = [each for each in waiting if isinstance(each, _Unfinished) and each.wire["sequence"] == wire["sequence"]]
        if wire["offset"] == 0:
            fresh = _Unfinished(wire)
            if same:
                waiting[waiting.index(same[0])] = fresh
            else:
                _insert(waiting, fresh)
            self._waiting[topic] = waiting
            same = [fresh]
        if not same:
            # The rest of something that nobody waits for any more.
            return []
        unfinished = same[0]
        if unfinished.size != wire["offset"]:
            return [self._break(topic)]
        unfinished.pieces.append(base64.b64decode(wire["base64"]))
        unfinished.size += len(unfinished.pieces[-1])
        return self._drain(topic, waiting)

    def _drain(self, topic: str, waiting: list[_Waiting]) -> list[Whole]:
        """Hands out what does not wait any more."""
        whole: list[Whole] = []
        while waiting and not (isinstance(waiting[0], _Unfinished) and not waiting[0].is_whole):
            whole.append(self._finish(waiting.pop(0)))
            if isinstance(whole[-1], Broken):
                return whole
        if not waiting:
            del self._waiting[topic]
        return whole

    def _finish(self, each: _Waiting) -> Whole:
        wire = each.wire if isinstance(each, _Unfinished) else each
        try:
            if isinstance(each, _Unfinished):
                wire = publication(wire, b"".join(each.pieces))
            elif wire["type"] == "delta":
                return publication(wire, *self.deltas.apply(wire))
            if self.expects_deltas and wire["type"] == "publication":
                self.deltas.keep(wire)
            return wire
        except (BadDelta, ValueError):
            return self._break(wire["topic"])

    def _break(self, topic: str) -> Broken:
        self.forget(topic)
        return Broken(topic)


def publication(wire: Event, payload: bytes, data: Any = None) -> Event:
    """A publication in the place of `wire`, of its payload's bytes. `data` spares parsing them if it is known.

    Raises `ValueError` if they are not of their kind.
    """
    made = {"type": "publication", "topic": wire["topic"], "sequence": wire["sequence"]}
    if wire["kind"] == "bytes":
        return {**made, "bytes": payload}
    text = payload.decode()
    if wire["kind"] == "text":
        return {**made, "text": text}
    return {**made, "data": json.loads(text) if data is None else data, "source": text}


def _place(each: _Waiting) -> int:
    """Where it stands in its topic: a gap where it ends."""
    wire = each.wire if isinstance(each, _Unfinished) else each
    return int(wire["to"] if wire["type"] == "gap" else wire["sequence"])


def _insert(waiting: list[_Waiting], each: _Waiting) -> None:
    """Puts it after all that are not later."""
    at = len(waiting)
    while at > 0 and _place(waiting[at - 1]) > _place(each):
        at -= 1
    waiting.insert(at, each)

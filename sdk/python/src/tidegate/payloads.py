"""Whole publications of what comes: pieces are put together, deltas applied. docs/protocol.md#deltas and docs/protocol.md#fragments.
Pure.

It stands before the subscriptions: what is a base, or is not finished, is of a reading and not of one reader. Whatever comes
after an unfinished publication waits for it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Union

from .deltas import BadDelta, Deltas
from .protocol import Event, extras_of


ReadingKey = Union[int, str]
"""What tells readings apart: their number, or without ids the topic."""

Whole = Union[Event, None]
"""A publication or a gap in its place; `None`: a publication could not be made of what came, and has to be asked for again."""


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
        # What waits for an unfinished publication, by reading, in the order of the sequences. The first is unfinished.
        self._waiting: dict[ReadingKey, list[_Waiting]] = {}

    def clear(self) -> None:
        """Forgets everything: the next connection knows nothing of what this one was sent."""
        self.expects_deltas = False
        self.deltas.clear()
        self._waiting.clear()

    def forget(self, key: ReadingKey) -> None:
        """Forgets what came of a reading."""
        self._waiting.pop(key, None)
        self.deltas.forget(key)

    def restart(self, key: ReadingKey, start: int) -> None:
        """Notes that a reading goes on after `start`: what is not finished after that comes again, from its beginning.

        Its pieces that are still on their way are of the reading before, and would stand before what comes first.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        waiting[:] = [each for each in waiting if _place(each) <= start]
        if not waiting:
            del self._waiting[key]

    def take(self, key: ReadingKey, wire: Event) -> list[Whole]:
        """Takes a publication, delta, piece or gap; answers what is whole now, in order."""
        if wire["type"] == "fragment":
            return self._take_piece(key, wire)
        waiting = self._waiting.get(key)
        if waiting is None or _place(wire) <= _place(waiting[0]):
            return [self._finish(key, wire)]
        _insert(waiting, wire)
        return []

    def _take_piece(self, key: ReadingKey, wire: Event) -> list[Whole]:
        waiting = self._waiting.get(key, [])
        same = [each for each in waiting if isinstance(each, _Unfinished) and each.wire["sequence"] == wire["sequence"]]
        if wire["offset"] == 0:
            fresh = _Unfinished(wire)
            if same:
                waiting[waiting.index(same[0])] = fresh
            else:
                _insert(waiting, fresh)
            self._waiting[key] = waiting
            same = [fresh]
        if not same:
            # The rest of something that nobody waits for any more.
            return []
        unfinished = same[0]
        if unfinished.size != wire["offset"]:
            self.forget(key)
            return [None]
        unfinished.pieces.append(base64.b64decode(wire["base64"]))
        unfinished.size += len(unfinished.pieces[-1])
        return self._drain(key, waiting)

    def _drain(self, key: ReadingKey, waiting: list[_Waiting]) -> list[Whole]:
        """Hands out what does not wait any more."""
        whole: list[Whole] = []
        while waiting and not (isinstance(waiting[0], _Unfinished) and not waiting[0].is_whole):
            whole.append(self._finish(key, waiting.pop(0)))
            if whole[-1] is None:
                return whole
        if not waiting:
            del self._waiting[key]
        return whole

    def _finish(self, key: ReadingKey, each: _Waiting) -> Whole:
        wire = each.wire if isinstance(each, _Unfinished) else each
        try:
            if isinstance(each, _Unfinished):
                wire = publication(wire, b"".join(each.pieces))
            elif wire["type"] == "delta":
                return publication(wire, *self.deltas.apply(key, wire))
            if self.expects_deltas and wire["type"] == "publication":
                self.deltas.keep(key, wire)
            return wire
        except (BadDelta, ValueError):
            self.forget(key)
            return None


def publication(wire: Event, payload: bytes, data: Any = None) -> Event:
    """A publication in the place of `wire`, of its payload's bytes. `data` spares parsing them if it is known.

    Raises `ValueError` if they are not of their kind.
    """
    made = {"type": "publication", "topic": wire["topic"], "sequence": wire["sequence"], **extras_of(wire)}
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

"""What each reader must have been told: nothing lost, repeated or damaged without a gap that says so.

The twin knows nothing of how an SDK works. It has what was published, and what each reader was told, in order.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from tidegate import Gap, Publication
from tidegate.protocol import Position

TRUE_GAPS = ("short/",)
"""Topics that keep little: there publications may be gone. All others keep everything."""


class Violation(AssertionError):
    """Somebody was told something wrong."""


def payload(topic: str, number: int, size: int) -> dict[str, Any]:
    """A payload that shows if it is damaged, or of another topic."""
    filler = f"{topic} {number} " * (size // 16)
    return {"topic": topic, "n": number, "filler": filler, "crc": zlib.crc32(filler.encode())}


class Truth:
    """What was published where, as far as anybody was told."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], int] = {}

    def learn(self, topic: str, epoch: str, sequence: int, number: int) -> None:
        """Takes the place of a publication; nobody may have been told another."""
        known = self._known.setdefault((topic, epoch, sequence), number)
        if known != number:
            raise Violation(f"{topic} {epoch} {sequence} was {known}, and now it is {number}")


@dataclass
class Twin:
    """One reader: where it is in each topic, and what that allows to come next."""

    name: str
    truth: Truth
    at: dict[str, Position] = field(default_factory=dict)
    may_skip: bool = False
    """Something that it shares with others, or its own buffer, may leave publications out."""
    told: int = 0
    gaps: int = 0

    def take(self, told: Publication | Gap) -> None:
        """Takes what the reader was told; raises `Violation` unless that may come next."""
        self.told += 1
        if isinstance(told, Gap):
            self._take_gap(told)
        else:
            self._take_publication(told)

    def _take_publication(self, told: Publication) -> None:
        data = told.data
        if data["topic"] != told.topic or data["crc"] != zlib.crc32(data["filler"].encode()):
            raise Violation(f"{self.name}: {told.topic} {told.sequence} is damaged")
        self.truth.learn(told.topic, told.epoch, told.sequence, data["n"])
        before = self.at.get(told.topic)
        if before is not None:
            if before["epoch"] != told.epoch:
                raise Violation(f"{self.name}: {told.topic} went from {before} to {told.position} without a gap")
            if told.sequence <= before["sequence"]:
                raise Violation(f"{self.name}: {told.topic} {told.sequence} came again, after {before}")
            if told.sequence > before["sequence"] + 1 and not self.may_skip:
                raise Violation(f"{self.name}: {told.topic} went from {before} to {told.sequence} without a gap")
        self.at[told.topic] = told.position

    def _take_gap(self, told: Gap) -> None:
        self.gaps += 1
        before = self.at.get(told.topic)
        if before is not None and before["epoch"] == told.epoch:
            if told.from_ != before["sequence"] + 1 and not self.may_skip:
                raise Violation(f"{self.name}: {told} does not follow {before}")
            if told.to <= before["sequence"]:
                raise Violation(f"{self.name}: {told} ends before {before}")
            if told.reason != "lagged" and not told.topic.startswith(TRUE_GAPS):
                raise Violation(f"{self.name}: {told}, but the topic keeps all; it was at {before}")
        elif told.from_ is not None and before is not None:
            raise Violation(f"{self.name}: {told} does not begin anew after {before}")
        if told.topic.startswith("kept/") and before is not None and before["epoch"] != told.epoch:
            raise Violation(f"{self.name}: {told} after {before}, but the store keeps its numbering")
        self.at[told.topic] = {"epoch": told.epoch, "sequence": told.to}

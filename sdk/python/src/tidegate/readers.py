"""Who reads which topic: an index over selectors, so that thousands of subscriptions cost a look-up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from .selector import is_pattern, selects


class Reader(Protocol):
    """Something that reads what its selectors select."""

    @property
    def selectors(self) -> Sequence[str]:
        """What it reads."""


R = TypeVar("R", bound=Reader)


class Readers(Generic[R]):
    """All readers, found by topic. Readers are compared by identity, and found in the order they were added."""

    def __init__(self) -> None:
        self._by_selector: dict[str, dict[int, R]] = {}
        self._patterns: dict[str, None] = {}
        # What was looked up; forgotten when anything changes.
        self._found: dict[str, list[R]] = {}

    def add(self, reader: R) -> None:
        """Adds a reader."""
        self._found.clear()
        for selector in reader.selectors:
            if is_pattern(selector):
                self._patterns[selector] = None
            self._by_selector.setdefault(selector, {})[id(reader)] = reader

    def remove(self, reader: R) -> None:
        """Removes a reader, which must have the selectors that it was added with."""
        self._found.clear()
        for selector in reader.selectors:
            readers = self._by_selector.get(selector, {})
            readers.pop(id(reader), None)
            if not readers:
                self._by_selector.pop(selector, None)
                self._patterns.pop(selector, None)

    def has(self, selector: str) -> bool:
        """Whether anybody has exactly this selector."""
        return selector in self._by_selector

    def having(self, selector: str) -> Iterable[R]:
        """Those that have exactly this selector."""
        return list(self._by_selector.get(selector, {}).values())

    def of(self, topic: str) -> list[R]:
        """Those that read `topic`. The list must not be changed."""
        known = self._found.get(topic)
        if known is not None:
            return known
        found = dict(self._by_selector.get(topic, {}))
        for pattern in self._patterns:
            if selects(pattern, topic):
                found.update(self._by_selector[pattern])
        readers = list(found.values())
        self._found[topic] = readers
        return readers

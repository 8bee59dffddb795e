"""Who reads which topic: an index over selectors, so that thousands of subscriptions cost a look-up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar



class Reader(Protocol):
    """Something that reads what its selectors select."""

    @property
    def selectors(self) -> Sequence[str]:
        """What it reads."""


R = TypeVar("R", bound=Reader)


class Readers(Generic[R]):
    """All readers, found by topic. Readers are compared by identity, and found in the order they were added."""

    def __init__(self) -> None:
        # By identity, each with when it was added.
        self._by_selector: dict[str, dict[int, tuple[int, R]]] = {}
        self._added = 0
        self._root: _Level = {}
        # What was looked up; forgotten when anything changes.
        self._found: dict[str, list[R]] = {}

    def add(self, reader: R) -> None:
        """Adds a reader."""
        self._found.clear()
        self._added += 1
        for selector in reader.selectors:
            _add(self._root, selector)
            self._by_selector.setdefault(selector, {})[id(reader)] = self._added, reader

    def remove(self, reader: R) -> None:
        """Removes a reader, which must have the selectors that it was added with."""
        self._found.clear()
        for selector in reader.selectors:
            readers = self._by_selector.get(selector, {})
            readers.pop(id(reader), None)
            if not readers:
                self._by_selector.pop(selector, None)
                _remove(self._root, selector.split("/"))

    def has(self, selector: str) -> bool:
        """Whether anybody has exactly this selector."""
        return selector in self._by_selector

    def having(self, selector: str) -> Iterable[R]:
        """Those that have exactly this selector."""
        return (reader for _, reader in self._by_selector.get(selector, {}).values())

    def of(self, topic: str) -> list[R]:
        """Those that read `topic`. The list must not be changed."""
        known = self._found.get(topic)
        if known is not None:
            return known
        found: dict[int, tuple[int, R]] = {}
        for selector in _selecting(self._root, topic.split("/"), topic.startswith("$")):
            found.update(self._by_selector[selector])
        readers = [reader for _, reader in sorted(found.values(), key=lambda added: added[0])]
        self._found[topic] = readers
        return readers


# A tree over the levels of selectors; under `END` stands the selector that ends there.
_Level = dict[str, Any]
END = "/"


def _add(root: _Level, selector: str) -> None:
    level = root
    for name in selector.split("/"):
        level = level.setdefault(name, {})
    level[END] = selector


def _remove(level: _Level, names: Sequence[str]) -> None:
    if not names:
        level.pop(END, None)
        return
    below = level.get(names[0])
    if below is not None:
        _remove(below, names[1:])
        if not below:
            del level[names[0]]


def _selecting(level: _Level, names: Sequence[str], is_servers: bool) -> Iterator[str]:
    """The selectors that select a topic of these levels. Wildcards in the first level select none of the server's own."""
    # "a/#" also selects "a": the level before it is included.
    if "#" in level and not is_servers and END in level["#"]:
        yield level["#"][END]
    if not names:
        if END in level:
            yield level[END]
        return
    for name in (names[0],) if is_servers else dict.fromkeys((names[0], "+")):
        if name in level:
            yield from _selecting(level[name], names[1:], False)

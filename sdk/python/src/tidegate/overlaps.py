"""Whose selectors overlap: a tree over their levels, so that thousands of patterns cost a walk and no comparison. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .readers import Reader

R = TypeVar("R", bound=Reader)


@dataclass
class _Node(Generic[R]):
    children: dict[str, _Node[R]] = field(default_factory=dict)
    # Those with a selector that ends here, by identity.
    readers: dict[int, R] = field(default_factory=dict)

    def all_below(self) -> Iterator[_Node[R]]:
        yield self
        for child in self.children.values():
            yield from child.all_below()


class Overlaps(Generic[R]):
    """Readers, found by selectors that may select a topic that theirs do."""

    def __init__(self) -> None:
        self._root: _Node[R] = _Node()

    def add(self, reader: R) -> None:
        """Adds a reader."""
        for selector in reader.selectors:
            node = self._root
            for level in selector.split("/"):
                node = node.children.setdefault(level, _Node())
            node.readers[id(reader)] = reader

    def remove(self, reader: R) -> None:
        """Removes a reader, if it is there, which must have the selectors that it was added with."""
        for selector in reader.selectors:
            _remove(self._root, selector.split("/"), reader)

    def first(self, selectors: Sequence[str], but: R | None = None) -> R | None:
        """One but `but` that may read a topic that any of `selectors` selects."""
        return next((reader for reader in self._found(selectors) if reader is not but), None)

    def of(self, selectors: Sequence[str]) -> list[R]:
        """All that may read a topic that any of `selectors` selects, each once."""
        return list({id(reader): reader for reader in self._found(selectors)}.values())

    def _found(self, selectors: Sequence[str]) -> Iterator[R]:
        for selector in selectors:
            for node in _meeting(self._root, selector.split("/")):
                yield from node.readers.values()


def _meeting(node: _Node[R], levels: Sequence[str]) -> Iterator[_Node[R]]:
    """The nodes of those selectors that overlap with what remains of one."""
    if levels[:1] == ["#"]:
        yield from node.all_below()
        return
    # "a" and "a/#" overlap, because "#" includes the level before it.
    rest_of_all = node.children.get("#")
    if rest_of_all is not None:
        yield rest_of_all
    if not levels:
        yield node
        return
    level, rest = levels[0], levels[1:]
    names = node.children if level == "+" else [name for name in (level, "+") if name in node.children]
    for name in names:
        if name != "#":
            yield from _meeting(node.children[name], rest)


def _remove(node: _Node[R], levels: Sequence[str], reader: R) -> None:
    if not levels:
        node.readers.pop(id(reader), None)
        return
    child = node.children.get(levels[0])
    if child is None:
        return
    _remove(child, levels[1:], reader)
    if not child.readers and not child.children:
        del node.children[levels[0]]

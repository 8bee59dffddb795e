"""Whose selectors overlap: a tree over their levels, so that thousands of patterns cost a walk and no comparison. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from .readers import Reader

R = TypeVar("R", bound=Reader)


@dataclass
class _Node(Generic[R]):
    children: dict[str, _Node[R]] = field(default_factory=dict)
    # Those with a selector that ends here, by identity.
    readers: dict[int, R] = field(default_factory=dict)

    def has(self, but: R | None) -> bool:
        return any(reader is not but for reader in self.readers.values())

    def has_below(self, but: R | None) -> bool:
        return self.has(but) or any(child.has_below(but) for child in self.children.values())


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

    def has(self, selector: str, but: R | None = None) -> bool:
        """Whether anybody but `but` may read a topic that `selector` selects."""
        return _meets(self._root, selector.split("/"), but)


def _meets(node: _Node[R], levels: Sequence[str], but: R | None) -> bool:
    if levels[:1] == ["#"]:
        return node.has_below(but)
    # "a" and "a/#" overlap, because "#" includes the level before it.
    rest_of_all = node.children.get("#")
    if rest_of_all is not None and rest_of_all.has(but):
        return True
    if not levels:
        return node.has(but)
    level, rest = levels[0], levels[1:]
    names = node.children if level == "+" else [name for name in (level, "+") if name in node.children]
    return any(_meets(node.children[name], rest, but) for name in names)


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

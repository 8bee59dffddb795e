"""Selectors: topics, or patterns over them. docs/protocol.md#terms."""

from __future__ import annotations


def is_pattern(selector: str) -> bool:
    """Whether `selector` is a pattern, not the name of one topic."""
    return any(level in ("+", "#") for level in selector.split("/"))


def selects(selector: str, topic: str) -> bool:
    """Whether `selector` selects `topic`."""
    if selector == topic:
        return True
    pattern, levels = selector.split("/"), topic.split("/")
    if topic.startswith("$") and pattern[0] in ("+", "#"):
        return False
    for index, wanted in enumerate(pattern):
        # "a/#" also selects "a": the level before it is included.
        if wanted == "#":
            return len(levels) >= index
        if index >= len(levels) or wanted not in ("+", levels[index]):
            return False
    return len(pattern) == len(levels)


def overlap(selector: str, other: str) -> bool:
    """Whether there may be a topic that both select."""
    wild = ("+", "#")
    levels, others = selector.split("/"), other.split("/")
    if levels[0] != others[0] and (levels[0].startswith("$") or others[0].startswith("$")):
        return False
    for one, two in zip(levels, others):
        if "#" in (one, two):
            return True
        if one != two and one not in wild and two not in wild:
            return False
    # "a/#" also selects "a".
    longer = max(levels, others, key=len)
    return len(levels) == len(others) or longer[min(len(levels), len(others))] == "#"


def rank(selector: str) -> tuple[int, ...]:
    """Sorts selectors of one topic, the most specific first: level by level a name before `+` before `#`."""
    return tuple({"+": 1, "#": 2}.get(level, 0) for level in selector.split("/"))

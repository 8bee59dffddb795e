"""Places that do not go into one command, because the server takes only so many bytes. Pure.

A pattern may select more topics than their places fit into one `subscribe`. It is asked for with as many as fit; the others
are asked for by name afterwards, some at a time, under an id of their own: they join what the pattern reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from .protocol import Command, Position, encode_command

TOPICS_MAX = 1_000
"""Topics that are asked for by name at a time: a session may have only so many selectors."""

Places = Mapping[str, Position]
"""Places by topic."""


def parts_of(places: Places, bytes_max: int | None, asked: Command) -> list[Places]:
    """Places in parts, of which each goes into a command: the first one into `asked`, which has none yet."""
    if bytes_max is None:
        return [places]
    left = bytes_max - len(encode_command(asked).encode())
    if _bytes_of(places) < left:
        return [places]
    parts: list[dict[str, Position]] = [{}]
    room = left
    for topic, place in places.items():
        size = _bytes_of({topic: place})
        is_full = len(parts) > 1 and len(parts[-1]) == TOPICS_MAX
        if size > room or is_full:
            parts.append({})
            room = left
        parts[-1][topic] = place
        room -= size
    return list(parts)


def _bytes_of(places: Places) -> int:
    """At least as many bytes as they have in a command, names included twice."""
    return sum(2 * len(json.dumps(topic)) + len(json.dumps(place["epoch"])) + 64 for topic, place in places.items())

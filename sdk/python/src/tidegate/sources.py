"""Events of a message with the exact text of their `data`. Pure.

A delta is made from the bytes of a payload as it was published, which parsing loses: spaces, the order of members, the
way in which numbers are written.
"""

from __future__ import annotations

import json
import re
from typing import Any

DECODER = json.JSONDecoder()
SPACE = re.compile(r"[ \t\n\r]*")


def events_with_sources(text: str) -> list[dict[str, Any]]:
    """The events of a message: one, or an array of them. Those with `data` have its text as `source`.

    Raises `ValueError` if it is not such a message.
    """
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        event, at = _event(text, at)
        events = [event]
    else:
        events = []
        at = _skip(text, at + 1)
        while text[at : at + 1] != "]":
            event, at = _event(text, at)
            events.append(event)
            at = _next(text, at, "]")
        at += 1
    if _skip(text, at) != len(text):
        raise ValueError("something follows the message")
    return events


def _event(text: str, at: int) -> tuple[dict[str, Any], int]:
    if text[at : at + 1] != "{":
        raise ValueError("an event is an object")
    event: dict[str, Any] = {}
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        name, at = DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if not isinstance(name, str) or text[at : at + 1] != ":":
            raise ValueError("a member has a name and a value")
        start = _skip(text, at + 1)
        event[name], at = DECODER.raw_decode(text, start)
        if name == "data":
            event["source"] = text[start:at]
        at = _next(text, at, "}")
    return event, at + 1


def _next(text: str, at: int, end: str) -> int:
    """Where the next one begins after a comma, or where `end` is."""
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        at = _skip(text, at + 1)
        if text[at : at + 1] != end:
            return at
    elif text[at : at + 1] == end:
        return at
    raise ValueError(f"there is neither a comma nor `{end}` at {at}")


def _skip(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return at if found is None else found.end()

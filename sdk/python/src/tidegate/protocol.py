"""The JSON dialect, `tidegate.v1.json`: what goes over the wire. docs/protocol.md#commands and docs/protocol.md#events."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Literal, TypedDict, Union

from .errors import SessionCode, TidegateError
from .sources import events_with_sources

SUBPROTOCOL = "tidegate.v1.json"
"""The WebSocket subprotocol."""

FEATURES = ["batch", "deltas", "devices", "extended", "fragments", "history", "ids", "requests", "subscribers"]
"""What a server may send this client, beside what every version does. docs/protocol.md#features."""

SOCKET_PATH = "/v1/ws"
"""Where a node's WebSocket is, unless its address says otherwise."""


class Position(TypedDict):
    """A place in a topic, in one life of its numbering. "I have everything up to here." """

    epoch: str
    sequence: int


class Last(TypedDict):
    """Start `last` publications before the newest, in each topic."""

    last: int


class Since(TypedDict):
    """Start at the first publication that is kept and not older, in milliseconds since 1970."""

    since: int


Positions = Mapping[str, Position]
"""Positions by topic. Plain JSON: it can be stored and given to a later subscription."""

Start = Union[Literal["snapshot", "now", "all"], Last, Since, Position]
"""Where a subscription starts to read."""

Conflation = Literal["off", "lagging", "always", "unsubscribe"]
"""What may be skipped: docs/protocol.md#subscription-options."""

Delta = Literal["none", "json-patch", "vcdiff"]
"""How a publication may be told as its difference from an earlier one: docs/protocol.md#deltas."""

PayloadKind = Literal["json", "text", "bytes"]
"""What kind of payload a publication has."""

GapReason = Literal["history", "epoch", "lagged"]
"""Why publications cannot be had: too old, another epoch, or this client was too slow."""

HeaderValue = Union[str, int, float, bool, bytes]
"""The value of a header."""

Headers = Mapping[str, HeaderValue]
"""What a publication has beside its payload: names and values. docs/protocol.md#headers."""

Command = dict[str, Any]
"""A command as it is sent."""

Event = Mapping[str, Any]
"""An event as it came. Types that are not known are passed over."""


def command(type: str, id: int, **members: object) -> Command:
    """A command of these members; those that are `None` are left out."""
    given = {name: value for name, value in members.items() if value is not None}
    return {"type": type, "id": id, **given}


def encode_command(command: Command) -> str:
    """A command as one message.

    Raises `TypeError` or `ValueError` if it holds what JSON cannot: other types, NaN, infinities, lone surrogates.
    """
    text = json.dumps(command, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text.encode()
    return text


def too_large(text: str, message_bytes_max: int | None) -> TidegateError | None:
    """Why the server would not take `text`, if it would not: such a message costs the connection."""
    # Most are short, and need no counting: a character has 4 bytes at most.
    if message_bytes_max is None or len(text) * 4 <= message_bytes_max:
        return None
    size = len(text.encode())
    if size <= message_bytes_max:
        return None
    why = f"it has {size} bytes, and message_bytes_max is {message_bytes_max}"
    how = "send less at a time, or raise the limit in the server's configuration"
    return TidegateError(SessionCode.MESSAGE_TOO_LARGE, f"cannot send the command: {why}; {how}")


def feature_of(command: Command) -> str | None:
    """What the server must have for a command, if that is something that not every server has: docs/protocol.md#features."""
    if "name" in command:
        return "subscribers"
    return {
        "history": "history",
        "handle": "requests",
        "request": "requests",
        "attach": "devices",
    }.get(command["type"])


def decode_message(text: str, *, with_sources: bool = False) -> list[Event]:
    """The events of one message: one, or an array of them (docs/protocol.md#batches). Raises `ValueError` if it is not that.

    `with_sources` adds the exact text of `data` to each event that has it, as `source`: deltas are made from that.
    """
    if with_sources and '"data"' in text:
        return list(events_with_sources(text))
    decoded = json.loads(text)
    events = decoded if isinstance(decoded, list) else [decoded]
    if not all(isinstance(event, dict) for event in events):
        raise ValueError("an event is an object")
    return events


def decode_headers(wire: Event) -> Headers:
    """The headers of a publication."""
    headers = wire.get("headers") or {}
    return {name: base64.b64decode(value["base64"]) if isinstance(value, dict) else value for name, value in headers.items()}


def encode_headers(headers: Headers | None) -> dict[str, Any] | None:
    """Headers as they are sent."""
    if not headers:
        return None
    return {
        name: {"base64": base64.b64encode(value).decode()} if isinstance(value, (bytes, bytearray)) else value
        for name, value in headers.items()
    }


def extras_of(wire: Event) -> dict[str, Any]:
    """What is said of a publication beside its place and its payload, as it came."""
    return {name: wire[name] for name in ("previous", "headers", "time_ms", "principal") if name in wire}


def decode_payload(wire: Event) -> tuple[PayloadKind, Any]:
    """The kind and value of a payload: JSON as it was parsed, text as `str`, bytes as `bytes`."""
    if "text" in wire:
        return "text", wire["text"]
    if "base64" in wire:
        return "bytes", base64.b64decode(wire["base64"])
    if "bytes" in wire:
        return "bytes", wire["bytes"]
    return "json", wire["data"]


def encode_payload(data: Any, kind: PayloadKind | None) -> dict[str, Any]:
    """A value as a payload: bytes as base64, a `str` as text if `kind` says so, everything else as JSON.

    Raises `TypeError` if it is not of that kind.
    """
    if isinstance(data, (bytes, bytearray, memoryview)) and kind in (None, "bytes"):
        return {"base64": base64.b64encode(data).decode()}
    if isinstance(data, str) and kind == "text":
        return {"text": data}
    if kind in (None, "json"):
        return {"data": data}
    raise TypeError(f"cannot publish {type(data).__name__} as {kind}: give a value of that kind")

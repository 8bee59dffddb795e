"""What a client is given, and what it answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Union

from .errors import TidegateError
from .protocol import Headers, PayloadKind

TokenProvider = Callable[[Union[TidegateError, None]], Union[str, None, Awaitable[Union[str, None]]]]
"""Asks for a token, or for none. It is told why the last one was not good any more, if there was one."""


@dataclass(frozen=True)
class Published:
    """Where a publication was kept, and how safely."""

    topic: str
    epoch: str
    sequence: int
    level: Literal["memory", "disk"]


@dataclass(frozen=True)
class Kept:
    """A publication of a history."""

    sequence: int
    time_ms: int
    """When it was published, in milliseconds since 1970."""
    kind: PayloadKind
    data: Any
    """JSON as a value, text as `str`, bytes as `bytes`."""
    headers: Headers = field(default_factory=dict)
    principal: str | None = None
    """Who published it, where the topic's policy has that recorded."""


@dataclass(frozen=True)
class HistoryPage:
    """A page of a topic's history, oldest first."""

    topic: str
    epoch: str
    head: int
    """The newest sequence."""
    start: int
    """The page comes after this; what lies between it and the first publication is not kept any more."""
    publications: list[Kept]


@dataclass(frozen=True)
class Request:
    """A request as its handler gets it."""

    topic: str
    kind: PayloadKind
    data: Any
    """JSON as a value, text as `str`, bytes as `bytes`."""
    session: str
    """The session that asks."""
    principal: str | None
    """Who asks, if the server knows."""
    timeout: float
    """How many seconds there were for the answer when the server passed it on."""


@dataclass(frozen=True)
class Reply:
    """What a handler answers, if it has to say what kind it is."""

    data: Any
    kind: PayloadKind | None = None
    """`bytes` go as bytes and everything else as JSON, unless this says otherwise."""


@dataclass(frozen=True)
class Response:
    """An answer to a request."""

    session: str
    """The session that answered."""
    kind: PayloadKind
    data: Any
    """JSON as a value, text as `str`, bytes as `bytes`."""

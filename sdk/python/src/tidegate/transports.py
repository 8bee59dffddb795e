"""The transports of this package, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from .connection import ConnectionTimes
from .fallback import FallbackPolicy
from .http import http_url
from .poll import poll_transport
from .sse import sse_transport
from .transport import OpenTransport
from .websocket import web_socket_transport, web_socket_url

TransportName = Literal["websocket", "sse", "poll"]
"""The transport of commands and events."""

MAKERS = {"websocket": web_socket_transport, "sse": sse_transport, "poll": poll_transport}

PATIENCE = 0.4
"""The part of the time for opening that each transport has: two that hang leave some for the third."""


def transports_to(urls: Sequence[str], names: Sequence[TransportName], times: ConnectionTimes) -> OpenTransport:
    """Opens the first of the transports `names` that gets through.

    Raises `ValueError` if a name is unknown, or an address is invalid.
    """
    unknown = [name for name in names if name not in MAKERS]
    if unknown or not names:
        raise ValueError(f"cannot travel with {unknown or 'nothing'}: use some of {list(MAKERS)}")
    for url in urls:
        web_socket_url(url) if "websocket" in names else http_url(url, "")
    transports = [(name, MAKERS[name]()) for name in names]
    return FallbackPolicy(transports, times.open_ms * PATIENCE / 1_000, lambda: asyncio.get_running_loop().time()).open

"""The transports that there are, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

from .connection import ConnectionTimes
from .fallback import Fallback
from .http import http_url
from .poll import poll_transport
from .sse import sse_transport
from .transport import OpenTransport
from .websocket import web_socket_transport, web_socket_url

TransportName = Literal["websocket", "sse", "poll"]
"""What commands and events travel with."""

MAKERS = {"websocket": web_socket_transport, "sse": sse_transport, "poll": poll_transport}

PATIENCE = 0.4
"""The part of the time for opening that each way has: two that hang leave some for the third."""


def ways_to(urls: Sequence[str], names: Sequence[TransportName], times: ConnectionTimes) -> OpenTransport:
    """What opens one of the transports `names`, the first that gets through.

    Raises `ValueError` if there is none of that name, or an address is none.
    """
    unknown = [name for name in names if name not in MAKERS]
    if unknown or not names:
        raise ValueError(f"cannot travel with {unknown or 'nothing'}: use some of {list(MAKERS)}")
    for url in urls:
        web_socket_url(url) if "websocket" in names else http_url(url, "")
    ways = [(name, MAKERS[name]()) for name in names]
    return Fallback(ways, times.open_ms * PATIENCE / 1_000, lambda: asyncio.get_running_loop().time()).open

"""How text travels to the server and back.

The connection's state machine knows no more than this, so that other transports than WebSocket can be put in its
place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class TransportHandlers(Protocol):
    """What a transport tells. After `handle_close` it tells nothing more."""

    def handle_open(self) -> None:
        """It is open: text can be sent."""

    def handle_text(self, text: str) -> None:
        """A message arrived: an event, or an array of them."""

    async def wait_for_room(self) -> None:
        """Returns when another message may be told: whoever reads what came is slower. Not asking is allowed."""

    def handle_close(self, code: int | None, text: str, retry_after_ms: float = 0) -> None:
        """It is closed, or could not be opened. `code` is the one that the server gave, if it gave one.

        `retry_after_ms` is how long the server wants nobody to come back: `Retry-After`.
        """


class Transport(Protocol):
    """An open transport, or one that is being opened."""

    @property
    def name(self) -> str:
        """What it is called, for `Client.transport`."""

    def send(self, text: str) -> None:
        """Sends one command. Only after `handle_open`."""

    def close(self) -> None:
        """Closes it; nothing is told any more."""

    async def wait_closed(self) -> None:
        """Waits until nothing of it is left: no task, no socket. Only after `close` or `handle_close`."""


OpenTransport = Callable[[str, TransportHandlers], Transport]
"""Begins to open a transport to a node's address, in the running event loop. It tells nothing before it answers."""

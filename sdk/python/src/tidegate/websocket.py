"""The WebSocket transport, over the package `websockets`."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from .base_transport import BaseTransport, Ended, retry_after_ms
from .protocol import SOCKET_PATH, SUBPROTOCOL
from .transport import OpenTransport, TransportHandlers

CLOSE_SECONDS = 1
"""How long a peer may take to answer a close frame."""


def web_socket_transport(**options: Any) -> OpenTransport:
    """Opens WebSockets; `options` go to `websockets.connect`, such as `ssl` or `additional_headers`."""

    def open_transport(address: str, handlers: TransportHandlers) -> WebSocketTransport:
        return WebSocketTransport(address, handlers, options)

    return open_transport


def web_socket_url(address: str) -> str:
    """The address of a node's WebSocket: `http` becomes `ws`, and a missing path the usual one.

    Raises `ValueError` if it is not such an address.
    """
    parts = urlsplit(address)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    if scheme not in ("ws", "wss") or not parts.hostname:
        raise ValueError(f"cannot connect to `{address}`: it is not an address; use one such as ws://localhost:8470")
    path = parts.path if parts.path not in ("", "/") else SOCKET_PATH
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


class WebSocketTransport(BaseTransport):
    """One WebSocket: a task that reads, and one that writes."""

    name = "websocket"

    def __init__(self, address: str, handlers: TransportHandlers, options: dict[str, Any]) -> None:
        # The connection's state machine watches over time and silence.
        self._options = {
            "subprotocols": [Subprotocol(SUBPROTOCOL)],
            "open_timeout": None,
            "ping_interval": None,
            "close_timeout": CLOSE_SECONDS,
            "max_size": None,
            **options,
        }
        super().__init__(address, handlers)

    async def _transfer(self) -> None:
        try:
            async with connect(web_socket_url(self._address), **self._options) as socket:
                self.was_reached = True
                self._handlers.handle_open()
                await self._exchange(socket)
        except ConnectionClosed as error:
            if error.rcvd is not None:
                raise Ended(error.rcvd.code, error.rcvd.reason) from error
        except InvalidStatus as error:
            self.was_reached = True
            raise Ended(*_refusal(error)) from error
        except Exception as error:
            # Something that resets a handshake is there, which cannot be said of something that cannot be found.
            self.was_reached |= not isinstance(error, OSError) or isinstance(error, ConnectionResetError)
            raise

    async def _exchange(self, socket: ClientConnection) -> None:
        """Reads until the connection ends, which raises; writes meanwhile."""
        writer = asyncio.get_running_loop().create_task(self._write(socket))
        try:
            while True:
                message = await socket.recv(decode=True)
                self._handlers.handle_text(str(message))
                # Messages that wait already come without a pause: without this one, whoever reads what they hold
                # would not run before the last of them.
                await asyncio.sleep(0)
                await self._handlers.wait_for_room()
        finally:
            writer.cancel()
            await asyncio.wait([writer])

    async def _write(self, socket: ClientConnection) -> None:
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            while self._outgoing:
                try:
                    await socket.send(self._outgoing.popleft())
                except ConnectionClosed:
                    return  # Whoever reads tells why.


def _refusal(error: InvalidStatus) -> tuple[int | None, str, float]:
    """The code and text of a refused handshake, and how long to stay away. docs/protocol.md#http-api."""
    pause = retry_after_ms(error.response.headers.get("Retry-After"))
    try:
        body = json.loads(error.response.body or b"")
        return int(body["code"]), str(body["error"]), pause
    except (ValueError, TypeError, KeyError):
        return None, f"cannot connect: the server answered with the status {error.response.status_code}", pause

"""Several transports to a server, the best first: those that do not get through are passed over.

To the client it is one transport. It opens the transports one after the other until the server is heard, and remembers by
address which transport that was, so that the next connection begins there. A transport is only passed over if another may do
better: not if nothing listens at the address, and not if the server itself says no.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .transport import OpenTransport, Transport, TransportHandlers

REMEMBERED_SECONDS = 3_600
"""How long a transport that is not the best is preferred: networks change."""

MANGLED = (None, 4208, 4210)
"""Codes of a connection that something on the path spoiled. A proxy that drops `Upgrade` makes the server say 4210."""

NamedTransports = Sequence[tuple[str, OpenTransport]]
"""Transports with their names, the best first."""


@dataclass
class _Found:
    index: int
    until: float
    # It failed once since: that may have been the server, so the next attempt is over the same transport.
    is_doubted: bool = False


class FallbackPolicy:
    """The transports, and what is known of them."""

    def __init__(self, transports: NamedTransports, patience_seconds: float, now: Callable[[], float]) -> None:
        """Each transport but the last has `patience_seconds` until the server is heard. `now` is in seconds."""
        self.transports = transports
        self.patience_seconds = patience_seconds
        self._now = now
        self._found: dict[str, _Found] = {}

    def open(self, address: str, handlers: TransportHandlers) -> Transport:
        """For the client: opens the first transport that gets through."""
        return _Attempt(self, address, handlers)

    def first_of(self, address: str) -> int:
        """The index of the transport to begin with."""
        found = self._found.get(address)
        if found is not None and found.until <= self._now():
            del self._found[address]
            return 0
        return 0 if found is None else found.index

    def handle_found(self, address: str, index: int) -> None:
        """Notes that the server was heard over a transport."""
        found = self._found.get(address)
        if found is not None and found.index == index:
            found.is_doubted = False
        else:
            self._found[address] = _Found(index, self._now() + REMEMBERED_SECONDS)

    def may_walk(self, address: str) -> bool:
        """Notes that a transport failed; answers whether to try the next at once."""
        found = self._found.get(address)
        if found is None or found.is_doubted:
            return True
        found.is_doubted = True
        return False

    def forget(self, address: str) -> None:
        """Notes that no transport got through."""
        self._found.pop(address, None)


class _Attempt:
    """One attempt to open, and what came of it."""

    def __init__(self, fallback: FallbackPolicy, address: str, handlers: TransportHandlers) -> None:
        self._fallback = fallback
        self._address = address
        self._handlers = handlers
        self._index = fallback.first_of(address)
        self._is_open = False
        self._is_heard = False
        # What has been sent before the server was heard: the next transport has to send it again.
        self._sent: list[str] = []
        self._left: list[Transport] = []
        self._failures: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._begin()

    @property
    def name(self) -> str:
        """The transport that is used."""
        return self._fallback.transports[self._index][0]

    def send(self, text: str) -> None:
        """Sends one command."""
        if not self._is_heard:
            self._sent.append(text)
        self._transport.send(text)

    def close(self) -> None:
        """Closes it; nothing is told any more."""
        self._stop_waiting()
        self._transport.close()

    async def wait_closed(self) -> None:
        """Waits until nothing is left of any transport."""
        for transport in (*self._left, self._transport):
            await transport.wait_closed()

    def handle_open(self) -> None:
        """A transport is open: says so, or says again what was said over the one before."""
        if self._is_open:
            for text in self._sent:
                self._transport.send(text)
        else:
            self._is_open = True
            self._handlers.handle_open()

    def handle_text(self, text: str) -> None:
        """The server was heard."""
        if not self._is_heard:
            self._stop_waiting()
            self._is_heard = True
            self._sent.clear()
            self._fallback.handle_found(self._address, self._index)
        self._handlers.handle_text(text)

    async def wait_for_room(self) -> None:
        """Returns when more may come."""
        await self._handlers.wait_for_room()

    def handle_close(self, code: int | None, text: str, retry_after_ms: float = 0) -> None:
        """A transport ended, or did not get through."""
        self._stop_waiting()
        was_reached = getattr(self._transport, "was_reached", True)
        is_spoiled = code in MANGLED or (code is not None and code < 4000)
        if self._is_heard or not was_reached or not is_spoiled or not self._fallback.may_walk(self._address):
            return self._handlers.handle_close(code, text, retry_after_ms)
        self._walk_on(code, text)

    def _begin(self) -> None:
        transports = self._fallback.transports
        if self._index + 1 < len(transports):
            self._timer = asyncio.get_running_loop().call_later(self._fallback.patience_seconds, self._give_up_transport)
        self._transport = transports[self._index][1](self._address, _TransportEvents(self))

    def _give_up_transport(self) -> None:
        self._timer = None
        self._transport.close()
        if self._fallback.may_walk(self._address):
            self._walk_on(None, "it did not answer in time")
        else:
            self._handlers.handle_close(None, f"cannot reach {self._address}: it did not answer in time")

    def _walk_on(self, code: int | None, text: str) -> None:
        self._failures.append(f"{self.name}: {text}")
        if self._index + 1 == len(self._fallback.transports):
            self._fallback.forget(self._address)
            return self._handlers.handle_close(code, "; ".join(self._failures))
        self._left.append(self._transport)
        self._index += 1
        self._begin()

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def is_current(self, transport: _TransportEvents) -> bool:
        """Whether this is what the transport in use tells."""
        return transport.index == self._index


class _TransportEvents:
    """What one transport tells. A transport that was left tells nothing more."""

    def __init__(self, walk: _Attempt) -> None:
        self._walk = walk
        self.index = walk._index

    def handle_open(self) -> None:
        if self._walk.is_current(self):
            self._walk.handle_open()

    async def wait_for_room(self) -> None:
        await self._walk.wait_for_room()

    def handle_text(self, text: str) -> None:
        if self._walk.is_current(self):
            self._walk.handle_text(text)

    def handle_close(self, code: int | None, text: str, retry_after_ms: float = 0) -> None:
        if self._walk.is_current(self):
            self._walk.handle_close(code, text, retry_after_ms)

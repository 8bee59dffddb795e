"""The base of the transports of this package: a task that transfers, and a queue of what is to be sent."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from datetime import datetime
from email.utils import parsedate_to_datetime

from .transport import TransportHandlers


class Ended(Exception):
    """The server, or something before it, ended the connection or refused it, with a code if it gave one."""

    def __init__(self, code: int | None, text: str, retry_after_ms: float = 0) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.retry_after_ms = retry_after_ms


class BaseTransport(ABC):
    """A transport that begins to open when it is created."""

    name: str

    def __init__(self, address: str, handlers: TransportHandlers) -> None:
        self._address = address
        self._handlers = handlers
        self._is_closed = False
        # Whether something listens at the address, be it a server or not.
        self.was_reached = False
        self._outgoing: deque[str] = deque()
        self._has_outgoing = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, text: str) -> None:
        """Sends one command, after those before it."""
        self._outgoing.append(text)
        self._has_outgoing.set()

    def close(self) -> None:
        """Closes it; nothing is told any more."""
        self._is_closed = True
        self._task.cancel()

    async def wait_closed(self) -> None:
        """Waits until its sockets are closed."""
        await asyncio.wait([self._task])

    @abstractmethod
    async def _transfer(self) -> None:
        """Opens it, tells that and all that comes, and sends what is to be sent; returns or raises when it ends."""

    async def _run(self) -> None:
        code, text, retry_after_ms = None, "", 0.0
        try:
            await self._transfer()
        except Ended as ended:
            code, text, retry_after_ms = ended.code, ended.text, ended.retry_after_ms
        except Exception as error:
            text = f"cannot reach {self._address}: {error or type(error).__name__}; check that it is up, and the network"
        if not self._is_closed:
            self._is_closed = True
            ended_so = f"cannot reach {self._address}: the connection ended without a reason ({code})"
            self._handlers.handle_close(code, text or ended_so, retry_after_ms)


def retry_after_ms(value: str | None) -> float:
    """The milliseconds that a `Retry-After` asks for: it is in seconds, or a date. 0 if there is none that can be read."""
    if value is None:
        return 0
    if value.strip().isdecimal():
        return int(value) * 1_000
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return 0
    return max(0.0, (until - datetime.now(until.tzinfo)).total_seconds() * 1_000)

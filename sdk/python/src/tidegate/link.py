"""The connection carried out: opens transports, asks for tokens, and ends what it began."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, Protocol

from .connection import Close, Connection, ConnectionAction, FetchToken, Open, Send
from .errors import LocalCode, TidegateError
from .options import TokenProvider
from .protocol import Event, decode_message, encode_command
from .transport import OpenTransport, Transport


class Owner(Protocol):
    """What a link tells its client."""

    def handle_event(self, event: Event) -> None:
        """An event came that is not the connection's own."""

    def drive(self) -> None:
        """Something happened: there may be something to do."""

    async def wait_for_room(self) -> None:
        """Returns when what comes can be told."""

    @property
    def needs_sources(self) -> bool:
        """Whether events need the exact text of their payloads."""


class Link:
    """What stands between the connection's state machine and the world."""

    def __init__(
        self, connection: Connection, open: OpenTransport, provider: TokenProvider | None, owner: Owner
    ) -> None:
        self._connection = connection
        self._open = open
        self._provider = provider
        self._owner = owner
        self._transport: Transport | None = None
        # The connection's name for the transport.
        self._serial = 0
        self._token_task: asyncio.Task[None] | None = None
        # What ends by itself, and is waited for by `wait_closed`.
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def transport(self) -> str | None:
        """The name of the transport, if there is one."""
        return None if self._transport is None else self._transport.name

    def perform(self, action: ConnectionAction) -> None:
        """Does what the connection asks for."""
        match action:
            case FetchToken(serial, refused):
                self.cancel_token()
                self._token_task = self.run(self._fetch_token(serial, refused))
            case Open(serial, url):
                self._open_transport(serial, url)
            case Send(asked):
                self.send(encode_command(asked))
            case Close():
                self._leave_transport()

    def send(self, text: str) -> None:
        """Sends one command, if there is a transport."""
        if self._transport is None:
            return
        try:
            self._transport.send(text)
        except Exception as error:
            self._connection.handle_close(self._serial, None, f"cannot send: {error}", now_ms())

    def cancel_token(self) -> None:
        """Stops waiting for a token."""
        if self._token_task is not None:
            self._token_task.cancel()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs something that `wait_closed` waits for."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    async def wait_closed(self) -> None:
        """Waits until the tasks have ended and the sockets are closed."""
        ending = list(self._ending)
        if ending:
            await asyncio.wait(ending)

    def handle_open(self, serial: int) -> None:
        """A transport is open."""
        self._connection.handle_open(serial, now_ms())
        self._owner.drive()

    def handle_close(self, serial: int, code: int | None, text: str, retry_after_ms: float) -> None:
        """A transport is closed."""
        self._connection.handle_close(serial, code, text, now_ms(), retry_after_ms)
        self._owner.drive()

    def handle_held_up(self) -> None:
        """Nothing is heard because nobody listens: loops are to take what came first."""
        self._connection.handle_heard(self._serial, now_ms())

    async def wait_for_room(self) -> None:
        """Returns when more may come."""
        await self._owner.wait_for_room()

    def handle_text(self, serial: int, text: str) -> None:
        """A transport heard something."""
        if not self._connection.is_current(serial):
            return
        self._connection.handle_heard(serial, now_ms())
        try:
            for event in decode_message(text, with_sources=self._owner.needs_sources):
                if not self._connection.is_current(serial):
                    break
                if not self._connection.handle_event(event, now_ms()):
                    self._owner.handle_event(event)
        except Exception as error:
            why = f"cannot read what the server sent: {error!r}; check that the address is a Tidegate server's"
            self._connection.handle_close(serial, None, why, now_ms())
        self._owner.drive()

    def _open_transport(self, serial: int, url: str) -> None:
        self._leave_transport()
        self._serial = serial
        try:
            self._transport = self._open(url, _TransportEvents(self, serial))
        except Exception as error:
            self._connection.handle_close(serial, None, f"cannot open {url}: {error}", now_ms())

    def _leave_transport(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self.run(self._transport.wait_closed())
        self._transport = None

    async def _fetch_token(self, serial: int, refused: TidegateError | None) -> None:
        try:
            given = None if self._provider is None else self._provider(refused)
            token = await given if inspect.isawaitable(given) else given
            self._connection.handle_token(serial, token, now_ms())
        except TidegateError as error:
            self._connection.handle_token_failed(serial, error, now_ms())
        except Exception as error:
            text = f"cannot get a token: {error!r}; check what the option `token` calls"
            failed = TidegateError(LocalCode.UNREACHABLE, text)
            failed.__cause__ = error
            self._connection.handle_token_failed(serial, failed, now_ms())
        self._owner.drive()


class _TransportEvents:
    """What one transport tells, with the connection's name for it."""

    def __init__(self, link: Link, serial: int) -> None:
        self._link = link
        self._serial = serial

    def handle_open(self) -> None:
        self._link.handle_open(self._serial)

    def handle_text(self, text: str) -> None:
        self._link.handle_text(self._serial, text)

    async def wait_for_room(self) -> None:
        await self._link.wait_for_room()

    def handle_close(self, code: int | None, text: str, retry_after_ms: float = 0) -> None:
        self._link.handle_close(self._serial, code, text, retry_after_ms)


def now_ms() -> float:
    """The event loop's clock, which never goes back, in milliseconds."""
    return asyncio.get_running_loop().time() * 1_000

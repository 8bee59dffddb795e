"""A handling as its user holds it: the handler, and what it is doing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Union

from .errors import LocalCode, TidegateError
from .handlings import Asked, HandlingChange, HandlingState
from .options import Reply, Request
from .protocol import decode_payload, encode_command, encode_payload
from .waiting import answer, fail, wait

RequestHandler = Callable[[Request], Union[Any, Awaitable[Any]]]
"""Answers a request: with a value, or a `Reply`; plain or a coroutine. What it raises is told to whoever asked."""


class Owner(Protocol):
    """What a handling asks of its client."""

    def unhandle(self, index: int) -> None:
        """Ends the handling."""

    def respond(self, ticket: tuple[int, int], members: dict[str, object]) -> None:
        """Answers a request."""

    def report(self, error: Exception) -> None:
        """Takes an error that nobody else takes care of."""

    @property
    def stopped_by(self) -> TidegateError | None:
        """Why the client stopped, if it did."""


class Handling:
    """Topics that are handled, across connections, until `unhandle`. As a context manager it ends itself."""

    def __init__(self, index: int, selectors: Sequence[str], handler: RequestHandler, owner: Owner) -> None:
        """Use `Client.handle`."""
        self._index = index
        self._selectors = tuple(selectors)
        self._handler = handler
        self._owner = owner
        self._state: HandlingState = "waiting"
        self._error: TidegateError | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def selectors(self) -> Sequence[str]:
        """What it handles, as it was asked for."""
        return self._selectors

    @property
    def state(self) -> HandlingState:
        """What it is at."""
        return self._state

    async def ready(self) -> None:
        """Waits until requests can come. Raises a `TidegateError` when it ends before, or the client stops."""
        if self._state == "live":
            return
        error = (self._error or _ended()) if self._state == "ended" else self._owner.stopped_by
        if error is not None:
            raise error
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await wait(waiter)
        finally:
            self._waiters.discard(waiter)

    def unhandle(self) -> None:
        """Ends it: no more requests come. Those that are open are still answered; closing the client cancels them."""
        if self._state != "ended":
            self._owner.unhandle(self._index)

    def __enter__(self) -> Handling:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unhandle()

    async def wait_closed(self) -> None:
        """Waits, after its end, until no handler runs any more."""
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _handle_told(self, told: HandlingChange | Asked) -> None:
        if isinstance(told, Asked):
            task = asyncio.get_running_loop().create_task(self._serve(told))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        self._state = told.state
        if told.state == "live":
            for waiter in self._waiters:
                answer(waiter, None)
        if told.state == "ended":
            self._handle_end(told.error)

    def _handle_end(self, error: TidegateError | None) -> None:
        self._error = error
        was_awaited = self._interrupt(error or _ended())
        if error is not None and not was_awaited:
            self._owner.report(error)

    def _interrupt(self, error: TidegateError) -> bool:
        """Fails those who wait for it; answers whether there were any."""
        return any([fail(waiter, error) for waiter in self._waiters])

    def _cancel(self) -> None:
        """Ends what it runs, because the client was closed: nobody waits for these answers."""
        for task in self._tasks:
            task.cancel()

    async def _serve(self, asked: Asked) -> None:
        members: dict[str, object] = {"error": "cannot answer: the handler was cancelled; send it again"}
        try:
            members = await self._answer_of(asked)
        except TidegateError as error:
            # Raised to say no, with a text for whoever asked.
            members = {"error": error.text}
        except Exception as error:
            # A mistake: both sides should know.
            text = str(error) or type(error).__name__
            members = {"error": text.encode(errors="replace").decode()}
            self._owner.report(error)
        finally:
            self._owner.respond(asked.ticket, members)

    async def _answer_of(self, asked: Asked) -> dict[str, object]:
        wire = asked.event
        kind, data = decode_payload(wire)
        timeout = wire["timeout_ms"] / 1_000
        request = Request(wire["topic"], kind, data, wire["from"], wire.get("principal"), timeout)
        given = self._handler(request)
        value = await given if inspect.isawaitable(given) else given
        reply = value if isinstance(value, Reply) else Reply(value)
        members = encode_payload(reply.data, reply.kind)
        # What JSON cannot hold has to be found out here, where somebody can be told.
        encode_command(members)
        return members


def _ended() -> TidegateError:
    return TidegateError(LocalCode.CLOSED, "cannot wait for the handling: it has ended; handle it again")

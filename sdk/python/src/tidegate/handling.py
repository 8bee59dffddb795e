"""A handling as its user holds it: the handler, and what it is doing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, Union

from . import client_handle
from .errors import TidegateError
from .handlings import Asked, AuthorizationWanted, HandlingChange
from .client_handle import ClientHandle, ended
from .options import Reply, Request
from .protocol import decode_payload, encode_command, encode_payload

RequestHandler = Callable[[Request], Union[Any, Awaitable[Any]]]
"""Answers a request: with a value, or a `Reply`; plain or a coroutine. What it raises is told to whoever asked."""


class Owner(client_handle.Owner, Protocol):
    """What a handling asks of its client."""

    def unhandle(self, index: int) -> None:
        """Ends the handling."""

    def respond(self, ticket: tuple[int, int], members: dict[str, object]) -> None:
        """Answers a request."""

    @property
    def address(self) -> str:
        """The node that it is connected to."""

    def authorize(self, index: int, connection: int, authorization: str) -> None:
        """Takes the authorization of a device that was wanted."""

    def refuse(self, index: int, connection: int, error: TidegateError) -> bool:
        """Takes why there is none; answers whether it is wanted again later."""


class Handling(ClientHandle[Owner]):
    """Topics that are handled, across connections, until `unhandle`. As a context manager it ends itself."""

    def __init__(self, index: int, selectors: Sequence[str], handler: RequestHandler, owner: Owner) -> None:
        """Use `Client.handle`."""
        super().__init__(index, selectors, owner)
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()

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

    def _handle_told(self, told: HandlingChange | Asked | AuthorizationWanted) -> None:
        if isinstance(told, Asked):
            self._run(self._serve(told))
            return
        assert isinstance(told, HandlingChange), "topics are handled by the session's right"
        self._enter(told.state, told.error)
        if told.state == "ended":
            was_awaited = self._interrupt(told.error or ended())
            if told.error is not None and not was_awaited:
                self._owner.report(told.error)

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

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

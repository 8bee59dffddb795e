"""The answers of all who handle a request."""

from __future__ import annotations

import asyncio

from .calls import Calls
from .errors import SessionCode, TidegateError
from .options import Response
from .protocol import Command, Event, decode_payload
from .requests import AfterBreak, Outcome

GRACE_SECONDS = 1.0
"""How long after a request's deadline the server's own word about it is waited for."""


async def ask_one(calls: Calls, asked: Command, timeout: float) -> Response:
    """Sends a request and waits for the answer. Raises `TidegateError`."""
    after_break: AfterBreak = "fail" if "key" not in asked else "ask-again-while-remembered"
    try:
        event = await asyncio.wait_for(calls.ask(asked, after_break, "request"), timeout + GRACE_SECONDS)
    except asyncio.TimeoutError:
        raise too_late(asked, timeout) from None
    return response_of(event)


class Responses:
    """What an `async for` loop reads: the answers as they come, until all came or the deadline passed.

    The request is sent when the loop begins. Raises a `TidegateError` in the loop if it was refused.
    """

    def __init__(self, calls: Calls, asked: Command, timeout: float) -> None:
        """Use `Client.request_all`."""
        self._calls = calls
        self._asked = asked
        self._timeout = timeout
        self._outcomes: asyncio.Queue[Outcome] | None = None
        self._ends_at = 0.0
        self._is_over = False
        self._missing: int | None = None

    @property
    def missing(self) -> int | None:
        """How many were asked and did not answer; `None` until the loop has ended."""
        return self._missing

    def __aiter__(self) -> Responses:
        return self

    async def __anext__(self) -> Response:
        """The next answer. Raises `TidegateError`."""
        if self._is_over:
            raise StopAsyncIteration
        outcome = await self._next()
        if isinstance(outcome.answer, TidegateError):
            self._is_over = True
            raise outcome.answer
        if outcome.is_last:
            self._is_over = True
            self._missing = outcome.answer.get("missing", 0)
            raise StopAsyncIteration
        return response_of(outcome.answer)

    async def _next(self) -> Outcome:
        loop = asyncio.get_running_loop()
        if self._outcomes is None:
            self._outcomes = asyncio.Queue()
            self._ends_at = loop.time() + self._timeout + GRACE_SECONDS
            self._calls.begin(self._asked, "fail", "request", self._outcomes.put_nowait)
        try:
            return await asyncio.wait_for(self._outcomes.get(), max(0.0, self._ends_at - loop.time()))
        except asyncio.TimeoutError:
            self._calls.forget(self._asked["id"])
            return Outcome(self._asked["id"], too_late(self._asked, self._timeout))


def response_of(event: Event) -> Response:
    """A `response` as its reader gets it."""
    return Response(event["from"], *decode_payload(event))


def too_late(asked: Command, timeout: float) -> TidegateError:
    """For those who hear nothing, not even that it is too late."""
    text = (
        f"cannot tell what became of the request to `{asked['topic']}`: there was no answer within {timeout:g} s; "
        "give it more time, or send it again with a `key`"
    )
    return TidegateError(SessionCode.DEADLINE_PASSED, text)

"""Commands that are answered, as something that can be awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .errors import TidegateError
from .protocol import Command, Event, encode_command, feature_of
from .requests import AfterBreak, Outcome, Requests, Subject
from .waiting import answer, fail, wait


class Calls:
    """Who waits for which outcome of the client's requests."""

    def __init__(self, requests: Requests, begin: Callable[[], None], drive: Callable[[], None]) -> None:
        """`begin` starts the client, or raises why it cannot; `drive` has it do what there is to do."""
        self._requests = requests
        self._begin = begin
        self._drive = drive
        self._waiting: dict[int, Callable[[Outcome], None]] = {}

    @property
    def are_awaited(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    async def ask(
        self,
        asked: Command,
        after_break: AfterBreak,
        subject: Subject = "publication",
        timeout: float | None = None,
    ) -> Event:
        """Sends a command and waits for its answer, `timeout` seconds at most. Raises `TidegateError`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Event] = loop.create_future()

        def take(outcome: Outcome) -> None:
            if isinstance(outcome.answer, TidegateError):
                fail(future, outcome.answer)
            else:
                answer(future, outcome.answer)

        self.begin(asked, after_break, subject, take)
        timer = None if timeout is None else loop.call_later(timeout, self._handle_late, asked["id"], timeout)
        try:
            return await wait(future)
        finally:
            if timer is not None:
                timer.cancel()
            self.forget(asked["id"])

    def begin(
        self, asked: Command, after_break: AfterBreak, subject: Subject, take: Callable[[Outcome], None]
    ) -> None:
        """Sends a command; `take` is called with each of its answers, until the last or `forget`."""
        self._begin()
        text = encode_command(asked)
        self._waiting[asked["id"]] = take
        self._requests.add(asked["id"], text, after_break, subject, feature_of(asked))
        self._drive()

    def forget(self, id: int) -> None:
        """Nobody waits for that any more."""
        self._requests.remove(id)
        self._waiting.pop(id, None)

    def _handle_late(self, id: int, timeout: float) -> None:
        self._requests.handle_late(id, timeout)
        self._drive()

    def tell_next(self) -> bool:
        """Tells the next outcome; answers whether there was one."""
        outcome = self._requests.poll_outcome()
        if outcome is None:
            return False
        take = self._waiting.get(outcome.id)
        if outcome.is_last:
            self._waiting.pop(outcome.id, None)
        if take is not None:
            take(outcome)
        return True

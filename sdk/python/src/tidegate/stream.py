"""A bounded buffer between what arrives and an `async for` loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, MutableSet
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar

from .errors import LocalCode, TidegateError

Item = TypeVar("Item")

WhenFull = Literal["fail", "drop-oldest"]
"""What happens to a full buffer when another item comes: the loop ends with an error, or the oldest is forgotten."""


class Stream(Generic[Item]):
    """What an `async for` loop reads. One reader at a time.

    A loop that is left may be entered again, as long as somebody holds the stream. Cancelling whoever waits for
    the next item loses none.
    """

    def __init__(
        self,
        capacity: int,
        when_full: WhenFull,
        awaited: MutableSet[Stream[Any]],
        handle_taken: Callable[[Item], None] = lambda item: None,
    ) -> None:
        """`awaited` holds those streams that somebody waits for. Use `Subscription.stream`."""
        if capacity < 1:
            raise ValueError(f"cannot hold {capacity}: a stream's capacity is at least 1")
        if when_full not in ("fail", "drop-oldest"):
            raise ValueError(f'cannot do `{when_full}` when full: use "fail" or "drop-oldest"')
        self._capacity = capacity
        self._when_full = when_full
        self._awaited = awaited
        self._handle_taken = handle_taken
        self._held: deque[Item] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_open = True
        self._error: TidegateError | None = None
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many were forgotten because the reader was too slow."""
        return self._dropped

    @property
    def _is_full(self) -> bool:
        """Whether another item would end it."""
        return self._is_open and self._when_full == "fail" and len(self._held) >= self._capacity

    def _push(self, item: Item) -> None:
        """Gives an item to the reader, or holds it."""
        if not self._is_open:
            return
        if len(self._held) >= self._capacity:
            if self._when_full == "fail":
                return self._overflow()
            self._held.popleft()
            self._dropped += 1
        self._held.append(item)
        self._wake()

    def _finish(self, error: TidegateError | None = None) -> None:
        """Ends it, with an error or without: what is held can still be taken before."""
        if self._is_open:
            self._is_open = False
            self._error = error
            self._wake()

    def close(self) -> None:
        """Ends it from the reader's side, and forgets what is held."""
        self._held.clear()
        self._error = None
        self._is_open = False
        self._wake()

    def __aiter__(self) -> Stream[Item]:
        return self

    async def __anext__(self) -> Item:
        """The next item; waits for it. Raises the error with which the stream ended, once."""
        while not self._held and self._is_open:
            await self._wait()
        if self._held:
            item = self._held.popleft()
            self._handle_taken(item)
            return item
        error, self._error = self._error, None
        raise StopAsyncIteration if error is None else error

    def __enter__(self) -> Stream[Item]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise RuntimeError("cannot wait for the stream: somebody else does; make a stream for each reader")
        self._waiter = asyncio.get_running_loop().create_future()
        self._awaited.add(self)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self._awaited.discard(self)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _overflow(self) -> None:
        text = (
            f"cannot hold another: {self._capacity} wait for their reader already; read faster, raise `capacity`, "
            'or use when_full="drop-oldest"'
        )
        self._finish(TidegateError(LocalCode.BUFFER_FULL, text))

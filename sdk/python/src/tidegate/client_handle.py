"""The user's handle to a subscription or handling, which outlives connections: its state, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar, Union

from .errors import LocalCode, TidegateError
from .handlings import HandlingState
from .subscriptions import SubscriptionState
from .waiting import answer, fail, wait

HandleState = Union[SubscriptionState, HandlingState]


class Owner(Protocol):
    """The services of the client that it needs."""

    def report(self, error: Exception) -> None:
        """Takes an error that nobody else takes care of."""

    @property
    def stopped_by(self) -> TidegateError | None:
        """Why the client stopped, if it did: nothing comes until it is started again."""


AnOwner = TypeVar("AnOwner", bound=Owner)


class ClientHandle(Generic[AnOwner]):
    """A subscription, or a handling."""

    def __init__(self, index: int, selectors: Sequence[str], owner: AnOwner) -> None:
        self._index = index
        self._selectors = tuple(selectors)
        self._owner = owner
        self._state: HandleState = "waiting"
        self._error: TidegateError | None = None
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def selectors(self) -> Sequence[str]:
        """The selectors, as they were given."""
        return self._selectors

    @property
    def state(self) -> HandleState:
        """The state."""
        return self._state

    @property
    def error(self) -> TidegateError | None:
        """Why the server ended it, if it did."""
        return self._error

    async def ready(self) -> None:
        """Waits until it is live. Raises a `TidegateError` when it ends before, or the client stops."""
        if self._state == "live":
            return
        error = (self._error or ended()) if self._state == "ended" else self._owner.stopped_by
        if error is not None:
            raise error
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await wait(waiter)
        finally:
            self._waiters.discard(waiter)

    def _enter(self, state: HandleState, error: TidegateError | None) -> None:
        """Notes what it is at now. `error` is why the server ended it, or put it off."""
        self._state = state
        if state == "live":
            for waiter in self._waiters:
                answer(waiter, None)
        if state == "ended":
            self._error = error

    def _interrupt(self, error: TidegateError) -> bool:
        """Ends all waiting, because nothing more comes; answers whether anybody waited."""
        return any([fail(waiter, error) for waiter in self._waiters])


def ended() -> TidegateError:
    """For those who wait for what has ended."""
    return TidegateError(LocalCode.CLOSED, "cannot wait for it to be live: it has ended; ask for it again")

"""A subscription as its user holds it: handlers, streams, and its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Union, overload
from weakref import WeakSet

from . import lasting
from .emitter import Emitter, Handler
from .errors import TidegateError
from .lasting import Lasting, ended
from .protocol import Position
from .stream import Stream, WhenFull
from .subscriptions import Lag, SubscriptionChange
from .tracker import Gap, Publication, Resumed, Told

EVENTS = frozenset({"snapshot", "update", "gap", "resumed", "lag", "state", "error"})


class Owner(lasting.Owner, Protocol):
    """What a subscription asks of its client."""

    def positions_of(self, index: int) -> dict[str, Position]:
        """Where the subscription is in each topic."""

    def unsubscribe(self, index: int) -> None:
        """Ends the subscription."""


class Subscription(Lasting[Owner]):
    """Something that is read, across connections, until it is unsubscribed. As a context manager it ends itself."""

    def __init__(self, index: int, selectors: Sequence[str], owner: Owner) -> None:
        """Use `Client.subscribe`."""
        super().__init__(index, selectors, owner)
        self._emitter = Emitter(EVENTS, lambda error, _: owner.report(error))
        # A loop that was left may leave a stream behind: only those that somebody holds, or waits for, are fed.
        self._streams: WeakSet[Stream[Any]] = WeakSet()
        self._gap_streams: WeakSet[Stream[Any]] = WeakSet()
        self._awaited: set[Stream[Any]] = set()

    @property
    def positions(self) -> dict[str, Position]:
        """Where it is in each topic: store it as JSON, and give it to a later subscription as `positions`.

        What a stream still holds for its loop counts as taken. A loop knows better how far it came:
        `Publication.position`.
        """
        return self._owner.positions_of(self._index)

    @overload
    def on(self, name: Literal["snapshot", "update"], handler: Callable[[Publication], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["gap"], handler: Callable[[Gap], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["resumed"], handler: Callable[[Resumed], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["lag"], handler: Callable[[Lag], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["state"], handler: Callable[[SubscriptionChange], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["error"], handler: Callable[[TidegateError], object]) -> Callable[[], None]: ...

    def on(self, name: str, handler: Handler) -> Callable[[], None]:
        """Adds a handler, a plain function; the function that it answers takes it away.

        `snapshot`: the value that a topic had when the subscription began. `update`: every other publication. `gap`:
        publications that cannot be had. `resumed`: after a break, a topic is read on from where it was left. `lag`:
        the server says how far behind this client is. `state`: it is at something else. `error`: the server ended it.
        """
        return self._emitter.on(name, handler)

    @overload
    def stream(
        self, *, capacity: int = ..., when_full: WhenFull = ..., gaps: Literal[False] = ...
    ) -> Stream[Publication]: ...
    @overload
    def stream(
        self, *, capacity: int = ..., when_full: WhenFull = ..., gaps: Literal[True]
    ) -> Stream[Union[Publication, Gap]]: ...

    def stream(self, *, capacity: int = 1_000, when_full: WhenFull = "fail", gaps: bool = False) -> Stream[Any]:
        """Reads publications in an `async for` loop, from now on. With `gaps`, gaps come in their place among them.

        At most `capacity` wait for the loop. When another comes, `when_full` says what happens: "fail" ends the loop
        with an error (4903) once what is held was taken, "drop-oldest" forgets the oldest and counts it in
        `Stream.dropped`. Leaving the loop ends nothing but the loop; a stream that nobody holds any more is forgotten.
        """
        stream: Stream[Any] = Stream(capacity, when_full, self._awaited)
        error = self._error or self._owner.stopped_by
        if error is not None or self._state == "ended":
            stream.finish(error)
        else:
            self._streams.add(stream)
            if gaps:
                self._gap_streams.add(stream)
        return stream

    def __aiter__(self) -> Stream[Publication]:
        """A stream with the default buffer. Leaving the loop ends the stream, not the subscription."""
        return self.stream()

    def unsubscribe(self) -> None:
        """Ends it, also while there is no connection. Nothing is told any more but its end."""
        if self._state != "ended":
            self._owner.unsubscribe(self._index)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unsubscribe()

    def _handle_told(self, told: Told | Lag | SubscriptionChange) -> None:
        """Takes what the client has for it."""
        if self._state == "ended":
            return
        match told:
            case SubscriptionChange():
                self._handle_change(told)
            case Publication():
                for stream in list(self._streams):
                    stream.push(told)
                self._emitter.emit("snapshot" if told.is_snapshot else "update", told)
            case Gap():
                for stream in list(self._gap_streams):
                    stream.push(told)
                self._emitter.emit("gap", told)
            case Resumed():
                self._emitter.emit("resumed", told)
            case Lag():
                self._emitter.emit("lag", told)

    def _interrupt(self, error: TidegateError) -> bool:
        """Ends open loops and waits, because nothing more comes; answers whether there were any."""
        open_streams = [stream for stream in self._streams if stream.is_open]
        for stream in open_streams:
            stream.finish(error)
        were_awaited = super()._interrupt(error)
        return bool(open_streams) or were_awaited

    def _handle_change(self, change: SubscriptionChange) -> None:
        self._enter(change.state, change.error)
        if change.state == "ended":
            self._handle_end(change.error)
        self._emitter.emit("state", change)

    def _handle_end(self, error: TidegateError | None) -> None:
        if error is None:
            for stream in list(self._streams):
                stream.finish()
            self._interrupt(ended())
            return
        was_awaited = self._interrupt(error)
        # Nobody may miss it: who has no handler here has it told by the client.
        is_handled = self._emitter.emit("error", error)
        if not is_handled and not was_awaited:
            self._owner.report(error)

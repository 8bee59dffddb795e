"""A subscription as its user holds it: handlers, streams, and its state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Union, overload
from weakref import WeakSet

from . import client_handle
from .emitter import Emitter, Handler
from .errors import TidegateError
from .client_handle import ClientHandle, ended
from .progress import Place, Progress
from .protocol import Position, Positions
from .stream import Stream, WhenFull
from .subscriptions import Complete, Lag, SubscriptionChange
from .tracker import Gap, Placed, Publication, Resumed, Notification

EVENTS = frozenset({"snapshot", "update", "gap", "complete", "resumed", "lag", "state", "error"})


class Owner(client_handle.Owner, Protocol):
    """What a subscription asks of its client."""

    def unsubscribe(self, index: int) -> None:
        """Ends the subscription."""

    def handle_room(self) -> None:
        """A loop took something: there is room for what waits for that."""


class Subscription(ClientHandle[Owner]):
    """Something that is read, across connections, until it is unsubscribed. As a context manager it ends itself."""

    def __init__(self, index: int, selectors: Sequence[str], owner: Owner, positions: Positions) -> None:
        """Use `Client.subscribe`."""
        super().__init__(index, selectors, owner)
        self._progress = Progress(positions)
        self._emitter = Emitter(EVENTS, lambda error, _: owner.report(error))
        # A loop that was left may leave a stream behind: only those that somebody holds, or waits for, are fed.
        self._streams: WeakSet[Stream[Any]] = WeakSet()
        self._gap_streams: WeakSet[Stream[Any]] = WeakSet()
        self._awaited: set[Stream[Any]] = set()

    @property
    def positions(self) -> dict[str, Position]:
        """Where it is in each topic: store it as JSON, and give it to a later subscription as `positions`.

        They are of what a handler was called with, that one included, or a loop took, whichever is further; they stay
        when it ends.
        """
        return self._progress.positions()

    @overload
    def on(self, name: Literal["snapshot", "update"], handler: Callable[[Publication], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["gap"], handler: Callable[[Gap], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["complete"], handler: Callable[[Complete], object]) -> Callable[[], None]: ...
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
        publications that cannot be had. `complete`: all that was published when it was asked for, also again after a break,
        was told (servers without ids do not say). `resumed`: after a break, a topic is read on from where it was left. `lag`:
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

        At most `capacity` wait for the loop. When another comes, `when_full` says what happens: "fail" lets the whole client
        wait until the loop takes one; if it takes none for 10 seconds (`ConnectionTimes.full_ms`) it ends with an error
        (4903) once what is held was taken. "drop-oldest" forgets the oldest and counts it in
        `Stream.dropped`. Leaving the loop ends nothing but the loop; a stream that nobody holds any more is forgotten.
        """
        stream: Stream[Any] = Stream(capacity, when_full, self._awaited, self._handle_taken)
        error = self._error or self._owner.stopped_by
        if error is not None or self._state == "ended":
            stream._finish(error)
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

    def _handle_told(self, told: Notification | Lag | Complete | SubscriptionChange) -> None:
        """Takes what the client has for it."""
        if self._state == "ended":
            return
        match told:
            case SubscriptionChange():
                self._handle_change(told)
            case Publication():
                self._progress.handle_told(told.topic, _place_of(told))
                for stream in list(self._streams):
                    stream._push(told)
                name = "snapshot" if told.is_snapshot else "update"
                if self._emitter.has(name):
                    self._handle_taken(told)
                self._emitter.emit(name, told)
            case Gap():
                self._handle_gap(told)
            case Placed():
                self._progress.handle_passed(told.topic, (told.epoch, told.sequence))
            case Resumed():
                self._emitter.emit("resumed", told)
            case Complete():
                self._emitter.emit("complete", told)
            case Lag():
                self._emitter.emit("lag", told)

    def _handle_gap(self, told: Gap) -> None:
        # Who goes on from before one that nobody heard of is told again.
        self._progress.handle_told(told.topic, _place_of(told))
        for stream in list(self._gap_streams):
            stream._push(told)
        if self._emitter.has("gap"):
            self._handle_taken(told)
        self._emitter.emit("gap", told)

    @property
    def _is_full(self) -> bool:
        """Whether a loop has to take something before more is told."""
        return any(stream._is_full for stream in self._streams)

    def _handle_taken(self, told: Publication | Gap) -> None:
        self._progress.handle_handed(told.topic, _place_of(told))
        self._owner.handle_room()

    def _interrupt(self, error: TidegateError) -> bool:
        """Ends open loops and waits, because nothing more comes; answers whether there were any."""
        open_streams = [stream for stream in self._streams if stream._is_open]
        for stream in open_streams:
            stream._finish(error)
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
                stream._finish()
            self._interrupt(ended())
            return
        was_awaited = self._interrupt(error)
        # Nobody may miss it: who has no handler here has it told by the client.
        is_handled = self._emitter.emit("error", error)
        if not is_handled and not was_awaited:
            self._owner.report(error)


def _place_of(told: Publication | Gap) -> Place:
    return told.epoch, told.to if isinstance(told, Gap) else told.sequence

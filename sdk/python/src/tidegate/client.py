"""The client: puts the state machines, a transport, a clock and the user's handlers together."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, overload

from .connection import (
    Action,
    Close,
    Connection,
    ConnectionChange,
    ConnectionOptions,
    ConnectionState,
    ConnectionTimes,
    FetchToken,
    Open,
    Send,
)
from .deltas import check_available
from .emitter import Emitter, Handler
from .errors import LocalCode, TidegateError
from .options import HistoryPage, Kept, Published, TokenProvider
from .protocol import (
    Command,
    Conflation,
    Delta,
    Event,
    PayloadKind,
    Position,
    Positions,
    Start,
    command,
    decode_message,
    decode_payload,
    encode_command,
    encode_payload,
)
from .requests import AfterBreak, Requests
from .subscription import Subscription
from .subscriptions import Lag, ReadOptions, SubscriptionChange, Subscriptions
from .transport import OpenTransport, Transport
from .waiting import answer, fail, wait
from .ways import TransportName, ways_to

EVENTS = frozenset({"state", "lag", "error"})


class Client:
    """A client of one server, or of the nodes of one. It belongs to one event loop, and to one thread.

    It connects when it is entered (`async with`) or first used, and again whenever it has to. Leaving it closes it.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        token: str | TokenProvider | None = None,
        name: str | None = None,
        times: ConnectionTimes = ConnectionTimes(),
        queue_max: int = 1_000,
        resend_ms: float = 240_000,
        transports: Sequence[TransportName] = ("websocket", "sse", "poll"),
        transport: OpenTransport | None = None,
    ) -> None:
        """A client of the server at `url`, such as `ws://localhost:8470`; of several nodes, the preferred one first.

        `token` is a token, or a function (plain or coroutine) that is asked for one at first, and whenever the server
        refuses the last. `name` is for the server's logs. `queue_max` commands may wait for a connection. A publish
        with a key is sent again after breaks for `resend_ms` milliseconds: the server forgets keys. `transports`
        are ways to the server, the best first: the next is taken where one does not get through. `transport` is one to
        use instead of them; `web_socket_transport`, `sse_transport` and `poll_transport` make them with options.

        Raises `ValueError` if an address is none, or there is no such way.
        """
        urls = [url] if isinstance(url, str) else list(url)
        if not urls:
            raise ValueError("cannot connect: there is no address; give at least one")
        self._open = transport or ways_to(urls, transports, times)
        self._provider = token if callable(token) else None
        self._connection = Connection(
            ConnectionOptions(
                urls=urls,
                has_tokens=self._provider is not None,
                token=token if isinstance(token, str) else None,
                name=name,
                times=times,
                random=random.random,
                next_id=self._next_id,
            )
        )
        self._subscriptions = Subscriptions(self._next_id, times, random.random)
        self._requests = Requests(queue_max, resend_ms)
        self._emitter = Emitter(EVENTS, self._report_handler)
        self._handles: dict[int, Subscription] = {}
        self._waiting: dict[int, asyncio.Future[Event]] = {}
        self._awaiting_ready: set[asyncio.Future[None]] = set()
        self._lags: deque[Lag] = deque()
        self._transport: Transport | None = None
        # The connection's name for the transport.
        self._serial = 0
        self._token_task: asyncio.Task[None] | None = None
        # What ends by itself, and is waited for by `wait_closed`.
        self._ending: set[asyncio.Task[None]] = set()
        self._stopped: TidegateError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._was_connected = False
        self._is_driving = False
        self._last_id = 0

    async def __aenter__(self) -> Client:
        """Begins to connect. Does not wait for it: `ready` does, and so does every command."""
        self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await self.wait_closed()

    @property
    def state(self) -> ConnectionState:
        """What the connection is at."""
        return self._connection.state

    @property
    def transport(self) -> str | None:
        """What the connection travels with, such as "websocket"; `None` while there is none."""
        return self._transport.name if self._transport is not None and self.state == "connected" else None

    @overload
    def on(self, name: Literal["state"], handler: Callable[[ConnectionChange], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["lag"], handler: Callable[[Lag], object]) -> Callable[[], None]: ...
    @overload
    def on(self, name: Literal["error"], handler: Callable[[Exception], object]) -> Callable[[], None]: ...

    def on(self, name: str, handler: Handler) -> Callable[[], None]:
        """Adds a handler, a plain function; the function that it answers takes it away.

        `state`: the connection is at something else. `lag`: the server says how far behind this client is. `error`:
        what nobody else took care of, such as an error raised by a handler, or a subscription or connection given up.
        Without a handler that goes to the event loop's exception handler, which logs it.
        """
        return self._emitter.on(name, handler)

    def connect(self) -> None:
        """Connects. Only needed after `close`, or after the client stopped."""
        self._stopped = None
        self._connection.start(_now())
        self._drive()

    async def ready(self) -> None:
        """Waits for a connection. Raises a `TidegateError` when the client gave up or was closed."""
        self._begin()
        if self.state == "connected":
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaiting_ready.add(waiter)
        try:
            await wait(waiter)
        finally:
            self._awaiting_ready.discard(waiter)

    def nudge(self) -> None:
        """Tries to connect now, instead of after a pause; or finds out whether the connection still works."""
        self._connection.nudge(_now())
        self._drive()

    def close(self) -> None:
        """Ends everything: subscriptions, commands that wait, the connection. See `wait_closed`."""
        error = TidegateError(LocalCode.CLOSED, "cannot go on: the client was closed; call `connect` first")
        self._stopped = error
        self._connection.stop()
        self._subscriptions.remove_all()
        self._fail_waiting(error)
        self._drive()

    async def wait_closed(self) -> None:
        """Waits, after `close`, until its tasks have ended and its sockets are closed."""
        ending = list(self._ending)
        if ending:
            await asyncio.wait(ending)

    def subscribe(
        self,
        selectors: str | Sequence[str],
        *,
        start: Start = "snapshot",
        positions: Positions | None = None,
        conflation: Conflation | None = None,
        interval_ms: int | None = None,
        priority: int | None = None,
        filter: str | None = None,
        delta: Delta | None = None,
        name: str | None = None,
    ) -> Subscription:
        """Reads what a selector selects, or several of them, now and after every break.

        `start` says where to begin: "snapshot" (the newest value, if one is kept), "now", "all" (everything there ever
        was), `{"last": N}`, or, with one plain topic, a position. `positions` are places from which to go on, by topic.

        `conflation` says what may be skipped: "off" nothing, "lagging" while this client is behind all but the newest
        of each topic, "always" all but the newest of each interval; "unsubscribe" ends it when this client lags too far
        behind. `interval_ms` is the least time between two batches. `priority`, from -9 to 9, says what is served first
        while this client is behind. `filter` is a CEL expression over `data` and `topic`. `delta="json-patch"` has
        changes told as differences; it takes `pip install 'tidegate[jsonpatch]'`. `name` is a durable subscriber's: the
        server remembers what was acknowledged under it.

        Handlers and streams that are added at once, before anything is awaited, miss nothing. Subscriptions that
        overlap share what the server sends; the options of the newest go for all of them, and one with a `name`
        should not overlap with others.

        What the server refuses is told by the subscription: `ready`, its loops, and the event `error`. Raises
        `TidegateError` if the client is closed (4901) or deltas cannot be read here (4905), and `ValueError` if several
        topics are to start from one position.
        """
        listed = [selectors] if isinstance(selectors, str) else list(dict.fromkeys(selectors))
        if delta not in (None, "none"):
            check_available(delta)
        # One that the server stopped may be started again: then it is asked for.
        if self.state != "stopped":
            self._begin()
        options = ReadOptions(
            start, positions or {}, conflation, interval_ms, priority, filter, delta, name
        )
        index = self._subscriptions.add(listed, options)
        handle = Subscription(index, listed, self)
        self._handles[index] = handle
        # Later, so that whoever subscribes can add handlers first.
        asyncio.get_running_loop().call_soon(self._drive)
        return handle

    async def publish(
        self,
        topic: str,
        data: Any,
        *,
        key: str | None = None,
        expect: int | None = None,
        kind: PayloadKind | None = None,
    ) -> Published:
        """Publishes, and answers where it was kept. While there is no connection it waits for one.

        `data` goes as bytes if it is that, else as JSON; `kind="text"` makes plain text of a `str`. `key` is an
        idempotency key: a second publication with it is not kept, and this one is sent again after a break. `expect`
        has it refused (4217) unless that is the topic's newest sequence; 0: nothing was published yet.

        Raises `TidegateError`: the server's refusals, 4900 (nobody knows whether it was kept), 4901, 4902; and
        `TypeError` or `ValueError` if `data` is nothing that can be published.
        """
        members = {"topic": topic, "key": key, "expect": expect}
        publish = command("publish", self._next_id(), **members) | encode_payload(data, kind)
        event = await self._ask(publish, "fail" if key is None else "ask-again-while-remembered")
        return Published(event["topic"], event["epoch"], event["sequence"], event["level"])

    async def history(
        self,
        topic: str,
        *,
        after: int | None = None,
        before: int | None = None,
        last: int | None = None,
        since: int | None = None,
        limit: int | None = None,
    ) -> HistoryPage:
        """A page of what is kept of one topic: the oldest `limit` (100) publications, unless one of the others is given.

        `after` and `before` are sequences, `last` is a number of publications, `since` is in milliseconds since 1970.
        Raises `TidegateError`.
        """
        members = {"topic": topic, "after": after, "before": before, "last": last, "since": since, "limit": limit}
        event = await self._ask(command("history", self._next_id(), **members), "ask-again")
        publications = [
            Kept(wire["sequence"], wire["time_ms"], *decode_payload(wire)) for wire in event["publications"]
        ]
        return HistoryPage(event["topic"], event["epoch"], event["head"], event["start"], publications)

    async def acknowledge(self, name: str, positions: Positions) -> None:
        """Tells the server how far the durable subscriber `name` came; returns once that is on disk.

        Raises `TidegateError`, such as 4218 if the server has no store.
        """
        await self._ask(command("acknowledge", self._next_id(), name=name, positions=positions), "ask-again")

    async def ping(self) -> float:
        """Asks the server for a sign of life; answers how long it took, in milliseconds. Raises `TidegateError`."""
        asked_at = _now()
        await self._ask(command("ping", self._next_id()), "ask-again")
        return _now() - asked_at

    # What subscriptions ask of their client.

    def positions_of(self, index: int) -> dict[str, Position]:
        """For `Subscription.positions`."""
        return self._subscriptions.positions(index)

    def unsubscribe(self, index: int) -> None:
        """For `Subscription.unsubscribe`."""
        self._subscriptions.remove(index)
        # Told directly: what waits to be told must not be any more.
        handle = self._handles.pop(index, None)
        if handle is not None:
            handle._handle_told(SubscriptionChange("ended"))
        self._drive()

    def report(self, error: Exception) -> None:
        """Tells what nobody else takes care of."""
        if self._emitter.has("error"):
            self._emitter.emit("error", error)
        else:
            context = {"message": "nobody handles the client's errors", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    @property
    def stopped_by(self) -> TidegateError | None:
        """Why the client stopped by itself, if it did."""
        return self._stopped if self.state == "stopped" else None

    def _report_handler(self, error: Exception, name: str) -> None:
        if name != "error":
            return self.report(error)
        # An `error` handler that raises is not asked to handle that.
        context = {"message": "a handler of the client's errors raised", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _begin(self) -> None:
        """Starts at the first use; after an end only `connect` does."""
        if self._stopped is not None:
            raise self._stopped
        if self.state == "idle":
            self.connect()

    async def _ask(self, asked: Command, after_break: AfterBreak) -> Event:
        self._begin()
        id, text = asked["id"], encode_command(asked)
        self._requests.add(id, text, after_break)
        future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self._waiting[id] = future
        self._drive()
        try:
            return await wait(future)
        finally:
            self._requests.remove(id)
            self._waiting.pop(id, None)

    def _drive(self) -> None:
        """Does all that there is to do. Handlers may call anything: what they cause is done here too, afterwards."""
        if self._is_driving:
            return
        self._is_driving = True
        try:
            while self._step():
                pass
        finally:
            self._is_driving = False
        self._set_timer()

    def _step(self) -> bool:
        action = self._connection.poll_action()
        if action is not None:
            self._perform(action)
            return True
        if self.state == "connected":
            asked = self._subscriptions.poll_command()
            text = self._requests.poll_text(_now()) if asked is None else encode_command(asked)
            if text is not None:
                self._send(text)
                return True
        news = self._subscriptions.poll_news()
        if news is not None:
            handle = self._handles.get(news.of)
            if isinstance(news.what, SubscriptionChange) and news.what.state == "ended":
                self._handles.pop(news.of, None)
            if handle is not None:
                handle._handle_told(news.what)
            return True
        if self._lags:
            self._emitter.emit("lag", self._lags.popleft())
            return True
        outcome = self._requests.poll_outcome()
        if outcome is None:
            return False
        waiting = self._waiting.get(outcome.id)
        if waiting is not None and isinstance(outcome.answer, TidegateError):
            fail(waiting, outcome.answer)
        elif waiting is not None and not isinstance(outcome.answer, TidegateError):
            answer(waiting, outcome.answer)
        return True

    def _perform(self, action: Action) -> None:
        match action:
            case FetchToken(serial, refused):
                self._cancel_token()
                self._token_task = self._run(self._fetch_token(serial, refused))
            case Open(serial, url):
                self._open_transport(serial, url)
            case Send(asked):
                self._send(encode_command(asked))
            case Close():
                self._leave_transport()
            case ConnectionChange():
                self._handle_change(action)

    def _send(self, text: str) -> None:
        if self._transport is None:
            return
        try:
            self._transport.send(text)
        except Exception as error:
            self._connection.handle_close(self._serial, None, f"cannot send: {error}", _now())

    def _open_transport(self, serial: int, url: str) -> None:
        self._leave_transport()
        self._serial = serial
        try:
            self._transport = self._open(url, _Heard(self, serial))
        except Exception as error:
            self._connection.handle_close(serial, None, f"cannot open {url}: {error}", _now())

    def _leave_transport(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._run(self._transport.wait_closed())
        self._transport = None

    def _handle_open(self, serial: int) -> None:
        self._connection.handle_open(serial, _now())
        self._drive()

    def _handle_close(self, serial: int, code: int | None, text: str) -> None:
        self._connection.handle_close(serial, code, text, _now())
        self._drive()

    def _handle_text(self, serial: int, text: str) -> None:
        if not self._connection.is_current(serial):
            return
        self._connection.handle_heard(serial, _now())
        try:
            for event in decode_message(text):
                if not self._connection.is_current(serial):
                    break
                self._handle_event(event)
        except Exception as error:
            why = f"cannot read what the server sent: {error!r}; check that the address is a Tidegate server's"
            self._connection.handle_close(serial, None, why, _now())
        self._drive()

    def _handle_event(self, event: Event) -> None:
        if self._connection.handle_event(event, _now()) or self._requests.handle_event(event):
            return
        self._subscriptions.handle_event(event, _now())
        if event["type"] == "lag":
            self._lags.append(Lag(event["ms"]))

    async def _fetch_token(self, serial: int, refused: TidegateError | None) -> None:
        try:
            given = None if self._provider is None else self._provider(refused)
            token = await given if inspect.isawaitable(given) else given
            self._connection.handle_token(serial, token, _now())
        except TidegateError as error:
            self._connection.handle_token_failed(serial, error, _now())
        except Exception as error:
            text = f"cannot get a token: {error!r}; check what the option `token` calls"
            failed = TidegateError(LocalCode.UNREACHABLE, text)
            failed.__cause__ = error
            self._connection.handle_token_failed(serial, failed, _now())
        self._drive()

    def _cancel_token(self) -> None:
        if self._token_task is not None:
            self._token_task.cancel()

    def _handle_change(self, change: ConnectionChange) -> None:
        if change.state == "connected":
            self._subscriptions.handle_connected()
            self._requests.handle_connected()
            for waiter in self._awaiting_ready:
                answer(waiter, None)
        elif self._was_connected:
            self._subscriptions.handle_disconnect()
            self._requests.handle_disconnect(_now())
        self._was_connected = change.state == "connected"
        if change.state in ("idle", "stopped"):
            self._cancel_token()
        was_awaited = change.state == "stopped" and change.error is not None and self._give_up(change.error)
        self._emitter.emit("state", change)
        if change.state == "stopped" and change.error is not None and not was_awaited:
            self.report(change.error)

    def _give_up(self, error: TidegateError) -> bool:
        """Ends all waiting, because there will be no connection; answers whether anybody waited."""
        if self.state == "stopped":
            self._stopped = error
        were_awaited = [handle._interrupt(error) for handle in self._handles.values()]
        return self._fail_waiting(error) or any(were_awaited)

    def _fail_waiting(self, error: TidegateError) -> bool:
        were_awaited = [fail(waiter, error) for waiter in self._awaiting_ready]
        self._requests.handle_stop(error)
        return any(were_awaited) or bool(self._waiting)

    def _run(self, coroutine: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return task

    def _set_timer(self) -> None:
        times = [at for at in (self._connection.wake_at, self._subscriptions.wake_at) if at is not None]
        at = min(times, default=None)
        # One that fires too early only looks again: cheaper than a new one for every message.
        if at is not None and self._timer is not None and self._timer.when() * 1_000 <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at is None else asyncio.get_running_loop().call_at(at / 1_000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._connection.handle_wake(_now())
        self._subscriptions.handle_wake(_now())
        self._drive()


class _Heard:
    """What one transport tells, for the client."""

    def __init__(self, client: Client, serial: int) -> None:
        self._client = client
        self._serial = serial

    def handle_open(self) -> None:
        self._client._handle_open(self._serial)

    def handle_text(self, text: str) -> None:
        self._client._handle_text(self._serial, text)

    def handle_close(self, code: int | None, text: str) -> None:
        self._client._handle_close(self._serial, code, text)


def _now() -> float:
    """The event loop's clock, which never goes back, in milliseconds."""
    return asyncio.get_running_loop().time() * 1_000

"""The client: what its users ask for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Literal, overload

from .connection import ConnectionChange, ConnectionState, ConnectionTimes
from .core import Core
from .deltas import check_available
from .device import Authorization, Device
from .emitter import Handler
from .errors import LocalCode, TidegateError
from .handling import Handling, RequestHandler
from .handlings import AttachedDevice, Topics
from .link import now_ms
from .options import HistoryPage, Kept, Published, Response, TokenProvider
from .protocol import Command, Conflation, Delta, Headers, PayloadKind, Positions, Start
from .protocol import command, decode_headers, decode_payload, encode_command, encode_headers, encode_payload
from .requests import AfterBreak, Requests
from .responses import Responses, ask_one
from .subscription import Subscription
from .subscriptions import Lag, ReadOptions
from .transport import OpenTransport
from .waiting import wait
from .transports import TransportName, transports_to


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
        publish_timeout: float = 10,
        transports: Sequence[TransportName] = ("websocket", "sse", "poll"),
        transport: OpenTransport | None = None,
    ) -> None:
        """A client of the server at `url`, such as `ws://localhost:8470`; of several nodes, the preferred one first.

        `token` is a token, or a function (plain or coroutine) that is asked for one at first, and whenever the server
        refuses the last. `name` is for the server's logs. `queue_max` commands may wait for a connection. A publish
        with a key is sent again after breaks for `resend_ms` milliseconds: the server forgets keys. A publish may take
        `publish_timeout` seconds, a wait for a connection included; `math.inf`: any time. `transports`
        are the transports to try, the best first: the next is taken where one does not get through. `transport` is one to
        use instead of them; `web_socket_transport`, `sse_transport` and `poll_transport` make them with options.

        Raises `ValueError` if an address is invalid, or a transport is unknown.
        """
        urls = [url] if isinstance(url, str) else list(url)
        if not urls:
            raise ValueError("cannot connect: there is no address; give at least one")
        opens = transport or transports_to(urls, transports, times)
        self._core = Core(urls, token, name, times, Requests(queue_max, resend_ms), opens)
        self._publish_timeout = publish_timeout

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
        return self._core.state

    def connect(self) -> None:
        """Connects. Only needed after `close`, or after the client stopped."""
        self._core.connect()

    @property
    def transport(self) -> str | None:
        """What the connection travels with, such as "websocket"; `None` while there is none."""
        return self._core.link.transport if self.state == "connected" else None

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
        return self._core.emitter.on(name, handler)

    async def ready(self) -> None:
        """Waits for a connection. Raises a `TidegateError` when the client gave up or was closed."""
        self._core.begin()
        if self.state == "connected":
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._core.awaiting_ready.add(waiter)
        try:
            await wait(waiter)
        finally:
            self._core.awaiting_ready.discard(waiter)

    def nudge(self) -> None:
        """Tries to connect now, instead of after a pause; or finds out whether the connection still works."""
        self._core.connection.nudge(now_ms())
        self._core.drive()

    def close(self) -> None:
        """Ends everything: subscriptions, commands that wait, the connection. See `wait_closed`."""
        error = TidegateError(LocalCode.CLOSED, "cannot go on: the client was closed; call `connect` first")
        self._core.stopped = error
        self._core.connection.stop()
        self._core.subscriptions.remove_all()
        self._core.handlings.remove_all()
        for handling in self._core.handlers.values():
            handling._cancel()
        self._core.fail_waiting(error)
        self._core.drive()

    async def wait_closed(self) -> None:
        """Waits, after `close`, until its tasks have ended and its sockets are closed."""
        await self._core.link.wait_closed()

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
        time: bool = False,
        principal: bool = False,
    ) -> Subscription:
        """Reads what a selector selects, or several of them, now and after every break.

        `start` says where to begin: "snapshot" (the newest value, if one is kept), "now", "all" (everything there ever
        was), `{"last": N}`, `{"since": MS}` (not older, in milliseconds since 1970), or, with one plain topic, a position. `positions` are places from which to go on, by topic.

        `conflation` says what may be skipped: "off" nothing, "lagging" while this client is behind all but the newest
        of each topic, "always" all but the newest of each interval; "unsubscribe" ends it when this client lags too far
        behind. `interval_ms` is the least time between two batches. `priority`, from -9 to 9, says what is served first
        while this client is behind. `filter` is a CEL expression over `data` and `topic`. `delta` has changes told
        as differences: "json-patch" takes `pip install 'tidegate[jsonpatch]'`, and "vcdiff" `'tidegate[vcdiff]'`. `name`
        is a durable subscriber's: the server remembers what was acknowledged under it. With `time` publications have the time
        of their publication, with `principal` who published them, where the topic's policy has that recorded.

        Handlers and streams that are added at once, before anything is awaited, miss nothing. Each
        subscription has its own options and place, also where they overlap.

        What the server refuses is told by the subscription: `ready`, its loops, and the event `error`. Raises
        `TidegateError` if the client is closed (4901) or deltas cannot be read here (4905), and `ValueError` if several
        topics are to start from one position.
        """
        listed = [selectors] if isinstance(selectors, str) else list(dict.fromkeys(selectors))
        if delta not in (None, "none"):
            check_available(delta)
        # One that the server stopped may be started again: then it is asked for.
        if self.state != "stopped":
            self._core.begin()
        options = ReadOptions(
            start, positions or {}, conflation, interval_ms, priority, filter, delta, name, time, principal
        )
        index = self._core.subscriptions.add(listed, options)
        reader = self._core.readers[index] = Subscription(index, listed, self._core, self._core.subscriptions.positions(index))
        # Later, so that whoever subscribes can add handlers first.
        asyncio.get_running_loop().call_soon(self._core.drive)
        return reader

    async def publish(
        self,
        topic: str,
        data: Any,
        *,
        key: str | None = None,
        expect: int | None = None,
        kind: PayloadKind | None = None,
        headers: Headers | None = None,
        timeout: float | None = None,
    ) -> Published:
        """Publishes, and answers where it was kept. While there is no connection it waits for one.

        `data` goes as bytes if it is that, else as JSON; `kind="text"` makes plain text of a `str`. `key` is an
        idempotency key: a second publication with it is not kept, and this one is sent again after a break. `expect`
        has it refused (4217) unless that is the topic's newest sequence; 0: nothing was published yet. `headers`
        are names and values beside the payload, at most 32 of 4,096 bytes in all. `timeout` is how many seconds it may
        take, instead of the client's `publish_timeout`.

        Raises `TidegateError`: the server's refusals, 4900 (the connection broke, or the time was up, before the answer:
        nobody knows whether it was kept), 4906 (the time was up before it was sent: it was not), 4901, 4902; and
        `TypeError` or `ValueError` if `data` is nothing that can be published.
        """
        members = {"topic": topic, "key": key, "expect": expect, "headers": encode_headers(headers)}
        publish = command("publish", self._core.next_id(), **members) | encode_payload(data, kind)
        after_break: AfterBreak = "fail" if key is None else "ask-again-while-remembered"
        seconds = self._publish_timeout if timeout is None else timeout
        event = await self._core.calls.ask(publish, after_break, timeout=seconds)
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
        event = await self._core.calls.ask(command("history", self._core.next_id(), **members), "ask-again")
        publications = [
            Kept(wire["sequence"], wire["time_ms"], *decode_payload(wire), decode_headers(wire), wire.get("principal"))
            for wire in event["publications"]
        ]
        return HistoryPage(event["topic"], event["epoch"], event["head"], event["start"], publications)

    async def read_history(
        self, topic: str, *, after: int | None = None, since: int | None = None, page_size: int | None = None
    ) -> AsyncIterator[Kept]:
        """Reads what is kept of one topic in an `async for` loop, oldest first, up to the newest that there is when it begins.

        `after` is a sequence, `since` in milliseconds since 1970. A page (of 100) is fetched when the one before was read. What
        retention has removed meanwhile is a hole in the sequences. Raises `TidegateError`: 4907 if the topic's numbering began
        anew meanwhile.
        """
        page = await self.history(topic, after=after, since=since, limit=page_size)
        epoch, head = page.epoch, page.head
        while page.publications:
            for kept in page.publications:
                yield kept
            last = page.publications[-1].sequence
            if last >= head:
                return
            page = await self.history(topic, after=last, limit=page_size)
            if page.epoch != epoch:
                text = f"cannot read on in the history of {topic}: its numbering began anew; read it again"
                raise TidegateError(LocalCode.RENUMBERED, text)

    async def acknowledge(self, name: str, positions: Positions) -> None:
        """Tells the server how far the durable subscriber `name` came; returns once that is on disk.

        Raises `TidegateError`, such as 4218 if the server has no store.
        """
        await self._core.calls.ask(command("acknowledge", self._core.next_id(), name=name, positions=positions), "ask-again")

    async def ping(self) -> float:
        """Asks the server for a sign of life; answers how long it took, in milliseconds. Raises `TidegateError`."""
        asked_at = now_ms()
        await self._core.calls.ask(command("ping", self._core.next_id()), "ask-again")
        return now_ms() - asked_at

    async def request(
        self,
        topic: str,
        data: Any,
        *,
        timeout: float = 10,
        session: str | None = None,
        principal: str | None = None,
        filter: str | None = None,
        key: str | None = None,
        kind: PayloadKind | None = None,
    ) -> Response:
        """Asks whoever handles `topic`, and waits for the answer, `timeout` seconds at most.

        `session`, `principal` and `filter` (a CEL expression over `session`, `principal` and `client`) say who may
        answer. `data` and `kind` are those of `publish`. With a `key` it is sent again after a break, and carried out
        once; without one a break raises 4900, because nobody can tell whether it was.

        Raises `TidegateError`: 4107 if nobody handles it, 4108 if there was no answer in time, 4109 if the session that
        had it ended, 4110 if all are busy, 4221 with the handler's text if that declined.
        """
        members = {"session": session, "principal": principal, "filter": filter, "key": key}
        asked = self._request(topic, data, kind, timeout, **members)
        return await ask_one(self._core.calls, asked, timeout)

    def request_all(
        self,
        topic: str,
        data: Any,
        *,
        timeout: float = 10,
        filter: str | None = None,
        kind: PayloadKind | None = None,
    ) -> Responses:
        """Asks all who handle `topic`, and `filter` accepts: `async for response in client.request_all(…)`.

        The loop ends when all have answered, or after `timeout` seconds; `Responses.missing` then tells how many did not.
        """
        return Responses(self._core.calls, self._request(topic, data, kind, timeout, filter=filter, all=True), timeout)

    def handle(
        self, topics: str | Sequence[str], handler: RequestHandler, *, concurrency: int | None = None
    ) -> Handling:
        """Answers requests to what the selectors select, now and after every break.

        `handler`, plain or a coroutine, is called with each `Request`; what it returns is the answer: `bytes` as bytes,
        a `Reply` as that says, everything else as JSON. What it raises is told to whoever asked, in words; what is no
        `TidegateError` is reported here too. At most `concurrency` (64) requests are open at a time. When the
        connection breaks, handlers run on, and their answers go nowhere; when the client is closed they are cancelled.

        What the server refuses is told by `Handling.ready`, or the event `error`. Raises `TidegateError` if the client
        is closed (4901), or handles one of the selectors already (4905).
        """
        listed = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
        if self.state != "stopped":
            self._core.begin()
        index = self._core.handlings.add(Topics(listed, concurrency))
        handling = self._core.handlers[index] = Handling(index, listed, handler, self._core)
        asyncio.get_running_loop().call_soon(self._core.drive)
        return handling

    def attach(
        self,
        device: str,
        handler: RequestHandler,
        *,
        key: str | None = None,
        authorization: Authorization | None = None,
        info: Any = None,
    ) -> Device:
        """Is asked as `device`, which is `APPLICATION/DEVICE`, now and after every break. docs/devices.md#devices-on-sessions.

        `handler` is called as in `handle`, with requests to `devices/APPLICATION/DEVICE`. `key` is one of the
        application's, with the role `device`. `authorization` is a function that is asked on each connection instead, such
        as `key_proof(id, key)`; if it raises, it is asked again later, or, after a `TidegateError` with a code from 4200
        to 4399, the device ends. With neither, the client's token must allow to handle that topic. `info` is
        JSON that is told with the device's presence.

        What the server refuses is told by `Device.ready`, or the event `error`; so is 4224, another connection attached
        under the name. Raises `TidegateError` if the client is closed (4901) or attached the device already (4905), and
        `TypeError` or `ValueError` if `info` is not JSON, or there are both a `key` and an `authorization`.
        """
        if key is not None and authorization is not None:
            raise ValueError(f"cannot attach `{device}` with both `key` and `authorization`: give one of them")
        # As it is now: what is changed later is not sent with the next connection. And no mistake is left for later.
        presented = None if key is None else f"Bearer {key}"
        told = json.loads(encode_command({"device": device, "info": info, "key": key}))["info"]
        if self.state != "stopped":
            self._core.begin()
        index = self._core.handlings.add(AttachedDevice(device, told, presented, authorization is not None))
        attached = self._core.handlers[index] = Device(index, device, handler, authorization, self._core)
        asyncio.get_running_loop().call_soon(self._core.drive)
        return attached

    def _request(
        self, topic: str, data: Any, kind: PayloadKind | None, timeout: float, **members: object
    ) -> Command:
        asked = command("request", self._core.next_id(), topic=topic, timeout_ms=max(1, round(timeout * 1_000)), **members)
        return asked | encode_payload(data, kind)

"""What goes on in a client: the state machines, fed with what happens and drained of what there is to do."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Sequence

from .calls import Calls
from .connection import Connection, ConnectionChange, ConnectionOptions, ConnectionState, ConnectionTimes
from .emitter import Emitter
from .errors import SessionCode, TidegateError
from .handling import Handling
from .handlings import Handlings
from .link import Link, now_ms
from .options import TokenProvider
from .protocol import Event, encode_command, feature_of, too_large
from .requests import Requests
from .subscription import Subscription
from .subscriptions import Lag, Notice, SubscriptionChange, Subscriptions
from .tracker import Gap, Publication
from .transport import OpenTransport
from .waiting import answer, fail

LOG = logging.getLogger("tidegate")

EVENTS = frozenset({"state", "lag", "error"})


class Core:
    """All of a client but what its users ask for."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str | TokenProvider | None,
        name: str | None,
        times: ConnectionTimes,
        requests: Requests,
        open: OpenTransport,
    ) -> None:
        """Use `Client`."""
        provider = token if callable(token) else None
        options = ConnectionOptions(
            urls=urls,
            has_tokens=provider is not None,
            token=token if isinstance(token, str) else None,
            name=name,
            times=times,
            random=random.random,
            next_id=self.next_id,
        )
        self.connection = Connection(options)
        self.link = Link(self.connection, open, provider, self)
        self.subscriptions = Subscriptions(self.next_id, times, random.random)
        self.handlings = Handlings(self.next_id, times, random.random)
        self.requests = requests
        self.calls = Calls(self.requests, self.begin, self.drive)
        self.emitter = Emitter(EVENTS, self._report_handler)
        # What its users hold of the subscriptions and handlings, by their index.
        self.readers: dict[int, Subscription] = {}
        self.handlers: dict[int, Handling] = {}
        self.awaiting_ready: set[asyncio.Future[None]] = set()
        self._lags: deque[Lag] = deque()
        self.stopped: TidegateError | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Until when what is to be told waits for a loop whose stream is full; there is no room for more then.
        self._waits_until: float | None = None
        self._full_ms = times.full_ms
        self._room = asyncio.Event()
        self._was_connected = False
        # Whether it was written down that the first connection failed, or there was one.
        self._is_warned = False
        self._is_driving = False
        self._last_id = 0

    @property
    def state(self) -> ConnectionState:
        """What the connection is at."""
        return self.connection.state

    def connect(self) -> None:
        """Connects. Only needed after `close`, or after the client stopped."""
        self.stopped = None
        self.connection.start(now_ms())
        self.drive()

    # What subscriptions, handlings and the link ask of it.

    def unsubscribe(self, index: int) -> None:
        """For `Subscription.unsubscribe`."""
        self.subscriptions.remove(index)
        # Notification directly: what waits to be told must not be any more.
        reader = self.readers.pop(index, None)
        if reader is not None:
            reader._handle_told(SubscriptionChange("ended"))
        self.drive()

    def handle_room(self) -> None:
        """For `Subscription`: a loop took something."""
        if self._waits_until is not None:
            self._waits_until = None
            asyncio.get_running_loop().call_soon(self.drive)

    async def wait_for_room(self) -> None:
        """For `Link`: returns when what comes can be told, or somebody waits for an answer among it."""
        await self._room.wait()

    def unhandle(self, index: int) -> None:
        """For `Handling.unhandle`."""
        self.handlings.remove(index)
        self.drive()

    def respond(self, ticket: tuple[int, int], members: dict[str, object]) -> None:
        """For `Handling`: answers a request."""
        self.handlings.respond(ticket, members)
        self.drive()

    @property
    def address(self) -> str:
        """For `Device`."""
        return self.connection.url

    def authorize(self, index: int, connection: int, authorization: str) -> None:
        """For `Device`: it may be attached."""
        self.handlings.authorize(index, connection, authorization)
        self.drive()

    def refuse(self, index: int, connection: int, error: TidegateError) -> bool:
        """For `Device`: it cannot be attached now; answers whether that is tried again."""
        is_put_off = self.handlings.refuse(index, connection, error, now_ms())
        self.drive()
        return is_put_off

    @property
    def needs_sources(self) -> bool:
        """For `Link`."""
        return self.subscriptions.needs_sources

    def handle_event(self, event: Event) -> None:
        """For `Link`: takes what came."""
        if self.requests.handle_event(event) or self.handlings.handle_event(event, now_ms()):
            return
        self.subscriptions.handle_event(event, now_ms())
        if event["type"] == "lag":
            self._lags.append(Lag(event["ms"]))

    def report(self, error: Exception) -> None:
        """Tells what nobody else takes care of."""
        if self.emitter.has("error"):
            self.emitter.emit("error", error)
        else:
            context = {"message": "nobody handles the client's errors", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    @property
    def stopped_by(self) -> TidegateError | None:
        """Why the client stopped by itself, if it did."""
        return self.stopped if self.state == "stopped" else None

    def _report_handler(self, error: Exception, name: str) -> None:
        if name != "error":
            return self.report(error)
        # An `error` handler that raises is not asked to handle that.
        context = {"message": "a handler of the client's errors raised", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def begin(self) -> None:
        """Starts at the first use; after an end only `connect` does."""
        if self.stopped is not None:
            raise self.stopped
        if self.state == "idle":
            self.connect()

    def drive(self) -> None:
        """Does all that there is to do. Handlers may call anything: what they cause is done here too, afterwards."""
        if self._is_driving:
            return
        self._is_driving = True
        try:
            while self._step():
                pass
        finally:
            self._is_driving = False
        if self._waits_until is None or self.calls.are_awaited:
            self._room.set()
        else:
            self._room.clear()
        self._set_timer()

    def _step(self) -> bool:
        action = self.connection.poll_action()
        if isinstance(action, ConnectionChange):
            self._handle_change(action)
        elif action is not None:
            self.link.perform(action)
        elif not (self.state == "connected" and self._send_next()) and not self._tell_next():
            return False
        return True

    def _send_next(self) -> bool:
        asked = self.subscriptions.poll_command() or self.handlings.poll_command()
        if asked is not None:
            if self.connection.lacks("deltas"):
                # Then all is told whole.
                asked.pop("delta", None)
            self._send(asked.get("id"), encode_command(asked), feature_of(asked), asked.get("request"))
            return True
        unsent = self.requests.poll_unsent(now_ms())
        if unsent is not None:
            self._send(*unsent)
        return unsent is not None

    def _send(self, id: int | None, text: str, feature: str | None, request: int | None = None) -> None:
        """Sends a command, unless the server would break the connection for its size, or cannot carry it out."""
        error = too_large(text, self.connection.message_bytes_max)
        if self.connection.lacks(feature):
            why = f"cannot send the command: this server has no `{feature}`; use one that has"
            error = TidegateError(SessionCode.MISSING_FEATURE, why)
        if error is None:
            self.link.send(text)
        elif request is not None:
            # An answer: whoever waits for it should know.
            self.link.send(encode_command({"type": "respond", "request": request, "error": error.text}))
        else:
            self.handle_event({"type": "refused", "id": id, "code": error.code, "error": error.text})

    def _tell_next(self) -> bool:
        notice = self.subscriptions.peek_notice()
        if notice is not None and not self._must_wait(notice):
            self.subscriptions.poll_notice()
            reader = self.readers.get(notice.of)
            if isinstance(notice.what, SubscriptionChange) and notice.what.state == "ended":
                self.readers.pop(notice.of, None)
            if reader is not None:
                reader._handle_told(notice.what)
            return True
        told = self.handlings.poll_notice()
        if told is not None:
            handling = self.handlers[told.of]
            handling._handle_told(told.what)
            if handling.state == "ended":
                self.link.run(self._let_finish(told.of))
            return True
        if self._lags:
            self.emitter.emit("lag", self._lags.popleft())
            return True
        return self.calls.tell_next()

    def _must_wait(self, notice: Notice) -> bool:
        """Whether a loop is to take something first. One that takes nothing for too long is not waited for."""
        reader = self.readers.get(notice.of)
        if reader is None or not isinstance(notice.what, (Publication, Gap)) or not reader._is_full:
            self._waits_until = None
            return False
        if self._waits_until is None:
            self._waits_until = now_ms() + self._full_ms
        return now_ms() < self._waits_until

    async def _let_finish(self, index: int) -> None:
        """Forgets a handling that has ended, once no handler of it runs any more."""
        await self.handlers[index].wait_closed()
        del self.handlers[index]

    def _handle_change(self, change: ConnectionChange) -> None:
        if change.state == "connected":
            self.subscriptions.handle_connected(self.connection.message_bytes_max, has_ids=self.connection.has("ids"))
            self.handlings.handle_connected()
            self.requests.handle_connected()
            for waiter in self.awaiting_ready:
                answer(waiter, None)
        elif self._was_connected:
            self.subscriptions.handle_disconnect()
            self.handlings.handle_disconnect()
            self.requests.handle_disconnect(now_ms())
        self._was_connected = change.state == "connected"
        self._warn(change)
        if change.state in ("idle", "stopped"):
            self.link.cancel_token()
        was_awaited = change.state == "stopped" and change.error is not None and self._give_up(change.error)
        self.emitter.emit("state", change)
        if change.state == "stopped" and change.error is not None and not was_awaited:
            self.report(change.error)

    def _warn(self, change: ConnectionChange) -> None:
        """Writes down once that the first connection failed, unless another attempt begins at once."""
        is_over = change.error is not None and (change.state == "stopped" or bool(change.retry_in_ms))
        if is_over and not self._is_warned:
            then = "it is not tried again" if change.state == "stopped" else "it is tried again until there is a connection"
            LOG.warning("no connection to %s: %s; %s", self.connection.tried, change.error, then)
        self._is_warned |= is_over or change.state == "connected"

    def _give_up(self, error: TidegateError) -> bool:
        """Ends all waiting, because there will be no connection; answers whether anybody waited."""
        if self.state == "stopped":
            self.stopped = error
        held: list[Subscription | Handling] = [*self.readers.values(), *self.handlers.values()]
        were_awaited = [each._interrupt(error) for each in held]
        return self.fail_waiting(error) or any(were_awaited)

    def fail_waiting(self, error: TidegateError) -> bool:
        were_awaited = [fail(waiter, error) for waiter in self.awaiting_ready]
        self.requests.handle_stop(error)
        return any(were_awaited) or self.calls.are_awaited

    def _set_timer(self) -> None:
        machines = (self.connection, self.subscriptions, self.handlings)
        times = [*(each.wake_at for each in machines), self._waits_until]
        at = min((each for each in times if each is not None), default=None)
        # One that fires too early only looks again: cheaper than a new one for every message.
        if at is not None and self._timer is not None and self._timer.when() * 1_000 <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if at is None else asyncio.get_running_loop().call_at(at / 1_000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if not self._room.is_set():
            # The server is not silent: it is not listened to.
            self.link.handle_held_up()
        self.connection.handle_wake(now_ms())
        self.subscriptions.handle_wake(now_ms())
        self.handlings.handle_wake(now_ms())
        self.drive()

"""What this client answers requests to: topics that it handles, and devices that it attaches. Pure.

docs/protocol.md#requests; docs/devices.md#devices-on-sessions.

A handling outlives connections, as a subscription does: it is asked for again on each. A request does not: it is
numbered by its connection, and what is answered after that is gone goes nowhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Union

from .backoff import Pauses, pause_ms
from .errors import LocalCode, SessionCode, TidegateError
from .protocol import Command, Event, command
from .selector import rank, selects

ANSWERED_MAX = 1_000
"""Answers of which it is remembered that they may be refused: the server says nothing about good ones."""

NOT_HANDLED = 4107
"""The code of an answer that says that this client handles no such requests."""

HandlingState = Literal["waiting", "asked", "live", "ended"]
"""What a handling is at."""


@dataclass(frozen=True)
class HandlingChange:
    """A handling is at something else."""

    state: HandlingState
    error: TidegateError | None = None


@dataclass(frozen=True)
class Asked:
    """A request came. `ticket` comes back with the answer."""

    ticket: tuple[int, int]
    event: Event


@dataclass(frozen=True)
class AuthorizationWanted:
    """A device is about to be attached, over this connection: by what right?"""

    connection: int


@dataclass(frozen=True)
class HandlingNotice:
    """What happened, and to which handling."""

    of: int
    what: Union[HandlingChange, Asked, AuthorizationWanted]


@dataclass(frozen=True)
class Topics:
    """Topics that are handled."""

    selectors: Sequence[str]
    concurrency: int | None
    needs_authorization = False
    """The session's own right goes."""

    def begin(self, id: int, authorization: str | None) -> Command:
        """The command that asks for it."""
        return command("handle", id, topics=list(self.selectors), concurrency=self.concurrency)

    def end(self, id: int) -> Command:
        """The command that ends it."""
        return command("unhandle", id, topics=list(self.selectors))


@dataclass(frozen=True)
class AttachedDevice:
    """A device, which is asked in a topic of its own. docs/devices.md#devices-on-sessions."""

    device: str
    """`APPLICATION/DEVICE`."""
    info: object
    """JSON that is told with its presence, or `None`."""
    authorization: str | None
    """One that stays. Without any the session's own right goes."""
    needs_authorization: bool
    """Whether somebody is to be asked for one on each connection."""

    @property
    def selectors(self) -> Sequence[str]:
        """Where it is asked."""
        return [f"devices/{self.device}"]

    def begin(self, id: int, authorization: str | None) -> Command:
        """The command that asks for it."""
        right = authorization or self.authorization
        return command("attach", id, device=self.device, authorization=right, info=self.info)

    def end(self, id: int) -> Command:
        """The command that ends it."""
        return command("detach", id, device=self.device)


Wanted = Union[Topics, AttachedDevice]
"""What is answered."""


@dataclass(eq=False)
class _Handling:
    index: int
    wanted: Wanted
    state: HandlingState = "waiting"
    asked_as: int | None = None
    refusals: int = 0
    due_at: float | None = None


class Handlings:
    """All handlings of one client, named by an index. Times are milliseconds."""

    def __init__(self, next_id: Callable[[], int], pauses: Pauses, random: Callable[[], float]) -> None:
        """`random` gives a number in [0, 1)."""
        self._next_id = next_id
        self._pauses = pauses
        self._random = random
        self._all: dict[int, _Handling] = {}
        # The open requests' numbers, and which connection they are of.
        self._open: set[int] = set()
        self._connection = 0
        # Requests whose answers the server has not refused so far, by the answer's id.
        self._answered: dict[int, int] = {}
        self._is_connected = False
        self._next_index = 0
        self._commands: deque[Command] = deque()
        self._notices: deque[HandlingNotice] = deque()

    def add(self, wanted: Wanted) -> int:
        """Adds one, and answers its index. Raises `TidegateError` (4905) if a selector of it is handled already."""
        known = (selector for each in self._all.values() for selector in each.wanted.selectors)
        taken = [selector for selector in known if selector in wanted.selectors]
        if taken:
            text = f"cannot handle `{taken[0]}`: this client does already; end that first, or handle it there"
            raise TidegateError(LocalCode.MISUSED, text)
        handling = _Handling(self._next_index, wanted)
        self._next_index += 1
        self._all[handling.index] = handling
        if self._is_connected:
            self._begin(handling)
        return handling.index

    def remove(self, index: int) -> None:
        """Ends one."""
        handling = self._all.get(index)
        if handling is None:
            return
        if self._is_connected and handling.state in ("asked", "live"):
            self._commands.append(handling.wanted.end(self._next_id()))
        self._end(handling)

    def remove_all(self) -> None:
        """Ends all of them. Only that is told any more: nobody waits for what it would lead to."""
        for handling in list(self._all.values()):
            self._end(handling)
        self._commands.clear()
        self._notices = deque(notice for notice in self._notices if isinstance(notice.what, HandlingChange))

    @property
    def wake_at(self) -> float | None:
        """When it has to be woken, if nothing happens before."""
        return min((each.due_at for each in self._all.values() if each.due_at is not None), default=None)

    def handle_connected(self) -> None:
        """Asks for everything."""
        self._is_connected = True
        for handling in self._all.values():
            self._begin(handling)

    def handle_disconnect(self) -> None:
        """Notes that the connection is gone, and with it the requests that were open."""
        self._is_connected = False
        self._connection += 1
        self._open.clear()
        self._answered.clear()
        self._commands.clear()
        for handling in self._all.values():
            handling.due_at, handling.refusals, handling.asked_as = None, 0, None
            self._enter(handling, "waiting")

    def handle_event(self, event: Event, now: float) -> bool:
        """Takes an event; answers whether it was about a handling."""
        if event["type"] == "request":
            self._handle_request(event)
            return True
        if event["type"] == "detached":
            self._handle_detached(event)
            return True
        id = event.get("id")
        if id in self._answered:
            self._handle_bad_answer(self._answered.pop(id), event)
            return True
        asked = None if id is None else next((each for each in self._all.values() if each.asked_as == id), None)
        if asked is None:
            return False
        asked.asked_as = None
        if event["type"] == "refused":
            self._handle_refused(asked, TidegateError(event["code"], event["error"]), now)
        else:
            asked.refusals = 0
            self._enter(asked, "live")
        return True

    def handle_wake(self, now: float) -> None:
        """Asks again for what was put off."""
        for handling in self._all.values():
            if handling.due_at is not None and handling.due_at <= now:
                self._begin(handling)

    def authorize(self, index: int, connection: int, authorization: str) -> None:
        """Takes what was wanted, unless that connection is gone."""
        handling = self._awaiting(index, connection)
        if handling is not None:
            self._ask(handling, authorization)

    def refuse(self, index: int, connection: int, error: TidegateError, now: float) -> bool:
        """Notes that there was no authorization; answers whether it is wanted again later.

        A code with which trying again would be useless ends the handling.
        """
        handling = self._awaiting(index, connection)
        if handling is None:
            return False
        if error.advice in ("change-first", "authenticate-first"):
            self._end(handling, error)
            return False
        self._put_off(handling, error, now)
        return True

    def respond(self, ticket: tuple[int, int], members: dict[str, object]) -> None:
        """Answers a request with a payload or an `error`, unless its connection is gone."""
        connection, number = ticket
        if connection == self._connection and number in self._open:
            self._open.discard(number)
            self._respond(number, members)

    def poll_command(self) -> Command | None:
        """The next command to send."""
        return self._commands.popleft() if self._commands else None

    def poll_notice(self) -> HandlingNotice | None:
        """What to tell next."""
        return self._notices.popleft() if self._notices else None

    def _begin(self, handling: _Handling) -> None:
        handling.due_at = None
        if handling.wanted.needs_authorization:
            self._notices.append(HandlingNotice(handling.index, AuthorizationWanted(self._connection)))
        else:
            self._ask(handling, None)

    def _awaiting(self, index: int, connection: int) -> _Handling | None:
        return self._all.get(index) if connection == self._connection and self._is_connected else None

    def _ask(self, handling: _Handling, authorization: str | None) -> None:
        handling.asked_as = self._next_id()
        self._commands.append(handling.wanted.begin(handling.asked_as, authorization))
        self._enter(handling, "asked")

    def _handle_detached(self, event: Event) -> None:
        """Ends a device whose name another connection has now. One that was asked for since is not meant."""
        if event.get("id") is not None:
            return
        for each in list(self._all.values()):
            is_it = isinstance(each.wanted, AttachedDevice) and each.wanted.device == event["device"]
            if is_it and each.state == "live":
                self._end(each, TidegateError(event["code"], event["error"]))

    def _handle_request(self, event: Event) -> None:
        ticket = (self._connection, event["request"])
        self._open.add(event["request"])
        # As the server chooses: the most specific selector. The event does not say which that was.
        ranks = [
            (rank(selector), each.index)
            for each in self._all.values()
            for selector in each.wanted.selectors
            if selects(selector, event["topic"])
        ]
        if not ranks:
            text = f"cannot handle `{event['topic']}`: that has just been ended here; send it again"
            # Somebody else may handle it.
            return self.respond(ticket, {"error": text, "code": NOT_HANDLED})
        self._notices.append(HandlingNotice(min(ranks)[1], Asked(ticket, event)))

    def _respond(self, number: int, members: dict[str, object]) -> None:
        # With an id the server says if it cannot take the answer; if it can, it says nothing.
        id = self._next_id()
        self._answered[id] = number
        if len(self._answered) > ANSWERED_MAX:
            del self._answered[next(iter(self._answered))]
        self._commands.append({"type": "respond", "id": id, "request": number, **members})

    def _handle_bad_answer(self, number: int, event: Event) -> None:
        """Tells whoever asked why there is no answer, unless it is too late for one."""
        if event["code"] != SessionCode.NOT_OPEN:
            self._commands.append({"type": "respond", "request": number, "error": event["error"]})

    def _handle_refused(self, handling: _Handling, error: TidegateError, now: float) -> None:
        if error.advice not in ("retry-now", "retry-later"):
            return self._end(handling, error)
        self._put_off(handling, error, now)

    def _put_off(self, handling: _Handling, error: TidegateError, now: float) -> None:
        pause = pause_ms(handling.refusals, error.code, 0, self._pauses, self._random)
        handling.refusals += 1
        handling.due_at = now + pause
        self._enter(handling, "waiting", error)

    def _enter(self, handling: _Handling, state: HandlingState, error: TidegateError | None = None) -> None:
        if handling.state != state:
            handling.state = state
            self._notices.append(HandlingNotice(handling.index, HandlingChange(state, error)))

    def _end(self, handling: _Handling, error: TidegateError | None = None) -> None:
        del self._all[handling.index]
        self._enter(handling, "ended", error)

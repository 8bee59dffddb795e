"""The topics that this client handles, and the requests that are open. docs/protocol.md, section 7b. Pure.

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
class HandlingNews:
    """What happened, and to which handling."""

    of: int
    what: Union[HandlingChange, Asked]


@dataclass(eq=False)
class _Handling:
    index: int
    selectors: list[str]
    concurrency: int | None
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
        self._news: deque[HandlingNews] = deque()

    def add(self, selectors: Sequence[str], concurrency: int | None) -> int:
        """Adds one, and answers its index. Raises `TidegateError` (4905) if a selector of it is handled already."""
        taken = [selector for each in self._all.values() for selector in each.selectors if selector in selectors]
        if taken:
            text = f"cannot handle `{taken[0]}`: this client does already; end that first, or handle it there"
            raise TidegateError(LocalCode.MISUSED, text)
        handling = _Handling(self._next_index, list(selectors), concurrency)
        self._next_index += 1
        self._all[handling.index] = handling
        if self._is_connected:
            self._ask(handling)
        return handling.index

    def remove(self, index: int) -> None:
        """Ends one."""
        handling = self._all.get(index)
        if handling is None:
            return
        if self._is_connected and handling.state in ("asked", "live"):
            self._commands.append(command("unhandle", self._next_id(), topics=handling.selectors))
        self._end(handling)

    def remove_all(self) -> None:
        """Ends all of them. What was just asked is not told any more: nobody waits for the answer."""
        for handling in list(self._all.values()):
            self._end(handling)
        self._commands.clear()
        self._news = deque(news for news in self._news if not isinstance(news.what, Asked))

    @property
    def wake_at(self) -> float | None:
        """When it has to be woken, if nothing happens before."""
        return min((each.due_at for each in self._all.values() if each.due_at is not None), default=None)

    def handle_connected(self) -> None:
        """Asks for everything."""
        self._is_connected = True
        for handling in self._all.values():
            self._ask(handling)

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
                self._ask(handling)

    def respond(self, ticket: tuple[int, int], members: dict[str, object]) -> None:
        """Answers a request with a payload or an `error`, unless its connection is gone."""
        connection, number = ticket
        if connection == self._connection and number in self._open:
            self._open.discard(number)
            self._respond(number, members)

    def poll_command(self) -> Command | None:
        """The next command to send."""
        return self._commands.popleft() if self._commands else None

    def poll_news(self) -> HandlingNews | None:
        """What to tell next."""
        return self._news.popleft() if self._news else None

    def _ask(self, handling: _Handling) -> None:
        handling.asked_as, handling.due_at = self._next_id(), None
        members = {"topics": list(handling.selectors), "concurrency": handling.concurrency}
        self._commands.append(command("handle", handling.asked_as, **members))
        self._enter(handling, "asked")

    def _handle_request(self, event: Event) -> None:
        ticket = (self._connection, event["request"])
        self._open.add(event["request"])
        # As the server chooses: the most specific selector. The event does not say which that was.
        ranks = [
            (rank(selector), each.index)
            for each in self._all.values()
            for selector in each.selectors
            if selects(selector, event["topic"])
        ]
        if not ranks:
            text = f"cannot handle `{event['topic']}`: that has just been ended here; send it again"
            return self.respond(ticket, {"error": text})
        self._news.append(HandlingNews(min(ranks)[1], Asked(ticket, event)))

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
        pause = pause_ms(handling.refusals, error.code, 0, self._pauses, self._random)
        handling.refusals += 1
        handling.due_at = now + pause
        self._enter(handling, "waiting", error)

    def _enter(self, handling: _Handling, state: HandlingState, error: TidegateError | None = None) -> None:
        if handling.state != state:
            handling.state = state
            self._news.append(HandlingNews(handling.index, HandlingChange(state, error)))

    def _end(self, handling: _Handling, error: TidegateError | None = None) -> None:
        del self._all[handling.index]
        self._enter(handling, "ended", error)

"""Commands that are answered: publish, history, acknowledge, request, ping. Pure.

Each waits for a connection, is sent, and then either answered or caught by a break. What a break means depends on
the command: asking again does no harm to a `history`, and none to a `publish` with an idempotency key as long as
the server remembers it. Of a publish without a key nobody can tell whether it was kept.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Literal

from .errors import LocalCode, TidegateError
from .protocol import Event

AfterBreak = Literal["ask-again", "ask-again-while-remembered", "fail"]
"""What becomes of a request whose connection breaks before the answer."""


Subject = Literal["publication", "request"]
"""What may have been carried out although nobody heard of it."""


@dataclass(frozen=True)
class Outcome:
    """The answer to a request, or why there is none."""

    id: int
    answer: Event | TidegateError
    is_last: bool = True
    """Whether no other answer follows."""


@dataclass
class _Request:
    id: int
    text: str
    after_break: AfterBreak
    subject: Subject
    feature: str | None
    is_sent: bool = False
    first_sent_at: float | None = None


class Requests:
    """All requests of one client. Times are milliseconds of any clock that does not go back."""

    def __init__(self, queue_max: int, resend_ms: float) -> None:
        """`queue_max` requests may wait for a connection; for `resend_ms` a keyed publish is sent again."""
        self._queue_max = queue_max
        self._resend_ms = resend_ms
        self._waiting: dict[int, _Request] = {}
        # In the order in which they are to be sent.
        self._unsent: dict[int, _Request] = {}
        self._outcomes: deque[Outcome] = deque()
        self._is_connected = False

    def add(
        self,
        id: int,
        text: str,
        after_break: AfterBreak,
        subject: Subject = "publication",
        feature: str | None = None,
    ) -> None:
        """Adds a request, as text, so that nobody can change it while it waits. See `poll_outcome`.

        `feature` is what the server must have for it.
        """
        if not self._is_connected and len(self._unsent) >= self._queue_max:
            why = (
                f"cannot take another command: {len(self._unsent)} wait for a connection already, and queue_max is "
                f"{self._queue_max}; wait for the connection, or raise it"
            )
            self._outcomes.append(Outcome(id, TidegateError(LocalCode.QUEUE_FULL, why)))
            return
        self._waiting[id] = self._unsent[id] = _Request(id, text, after_break, subject, feature)

    def remove(self, id: int) -> None:
        """Forgets a request: nobody waits for its answer any more. What was sent already may still be done."""
        self._waiting.pop(id, None)
        self._unsent.pop(id, None)

    def handle_connected(self) -> None:
        """Notes that commands can be sent."""
        self._is_connected = True

    def handle_disconnect(self, now: float) -> None:
        """Notes that the connection is gone, and decides about what it left unanswered."""
        self._is_connected = False
        again: dict[int, _Request] = {}
        for request in [request for request in self._waiting.values() if request.is_sent]:
            error = self._failure(request, now)
            if error is None:
                request.is_sent = False
                again[request.id] = request
            else:
                del self._waiting[request.id]
                self._outcomes.append(Outcome(request.id, error))
        # In the order in which they were asked for: those that were sent came first.
        self._unsent = again | self._unsent

    def handle_stop(self, error: TidegateError) -> None:
        """Fails everything, because there will be no connection."""
        for request in self._waiting.values():
            is_doubtful = request.after_break != "ask-again" and request.first_sent_at is not None
            failed = _unanswered(error.text, request) if is_doubtful else error
            self._outcomes.append(Outcome(request.id, failed))
        self._waiting.clear()
        self._unsent.clear()
        self._is_connected = False

    def handle_late(self, id: int, seconds: float) -> None:
        """Gives up on a request that has no answer within so many seconds."""
        request = self._waiting.get(id)
        if request is None:
            return
        self.remove(id)
        if request.first_sent_at is None:
            error = _not_sent(request, seconds)
        else:
            error = _unanswered(f"there was no answer within {seconds:g} s", request)
        self._outcomes.append(Outcome(id, error))

    def handle_event(self, event: Event) -> bool:
        """Takes an event; answers whether it was the answer to a request."""
        id = event.get("id")
        if id is None or id not in self._waiting:
            return False
        if event["type"] == "response" and event.get("more") is True:
            self._outcomes.append(Outcome(id, event, is_last=False))
            return True
        del self._waiting[id]
        is_refused = event["type"] == "refused"
        self._outcomes.append(Outcome(id, TidegateError(event["code"], event["error"]) if is_refused else event))
        return True

    def poll_unsent(self, now: float) -> tuple[int, str, str | None] | None:
        """The next command to send: its id, text and feature, while there is a connection."""
        if not self._is_connected or not self._unsent:
            return None
        request = self._unsent.pop(next(iter(self._unsent)))
        request.is_sent = True
        if request.first_sent_at is None:
            request.first_sent_at = now
        return request.id, request.text, request.feature

    def poll_outcome(self) -> Outcome | None:
        """The next outcome."""
        return self._outcomes.popleft() if self._outcomes else None

    def _failure(self, request: _Request, now: float) -> TidegateError | None:
        if request.after_break == "ask-again":
            return None
        sent_at = now if request.first_sent_at is None else request.first_sent_at
        is_remembered = now - sent_at < self._resend_ms
        if request.after_break == "ask-again-while-remembered" and is_remembered:
            return None
        return _unanswered("the connection broke before the answer", request)


def _not_sent(request: _Request, seconds: float) -> TidegateError:
    text = (
        f"cannot send the {request.subject}: there was no connection within {seconds:g} s, and it was not carried out; "
        "try again, or wait longer"
    )
    return TidegateError(LocalCode.NOT_SENT, text)


def _unanswered(why: str, request: _Request) -> TidegateError:
    what, verb = request.subject, "kept" if request.subject == "publication" else "carried out"
    how = (
        "give it an idempotency key (`key`), then it is sent again by itself"
        if request.after_break == "fail"
        else "send it again with the same key, if the server still remembers that"
    )
    text = f"cannot tell what became of the {what}, which may or may not have been {verb}: {why}; {how}"
    return TidegateError(LocalCode.UNANSWERED, text)

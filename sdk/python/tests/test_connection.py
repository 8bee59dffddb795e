"""The connection's state machine, without sockets and timers: what it does is compared line by line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegate import ConnectionChange, ConnectionTimes, TidegateError
from tidegate.backoff import pause_ms
from tidegate.connection import Action, Close, Connection, ConnectionOptions, FetchToken, Open, Send
from tidegate.protocol import FEATURES

TIMES = ConnectionTimes()
NO_CODE = 4904


class Driven:
    """A connection whose clock stands still unless it is moved, and whose pauses are their longest."""

    def __init__(self, urls: tuple[str, ...] = ("ws://a",), has_tokens: bool = False) -> None:
        self.now = 0.0
        self.serial = 0
        self.last_id = 0
        self.sent: list[dict[str, Any]] = []
        options = ConnectionOptions(urls, has_tokens, None, "desk", TIMES, lambda: 1.0, self._next_id)
        self.connection = Connection(options)
        self.connection.start(0)

    def did(self) -> list[str]:
        """What it wants done, one line each."""
        lines = []
        while (action := self.connection.poll_action()) is not None:
            lines.append(self._line(action))
        return lines

    def hear(self, **event: Any) -> None:
        self.connection.handle_event(event, self.now)

    def open(self) -> None:
        self.connection.handle_open(self.serial, self.now)

    def close(self, code: int | None = None) -> None:
        self.connection.handle_close(self.serial, code, "because", self.now)

    def stand(self) -> None:
        """Opens and greets."""
        self.did()
        self.open()
        self.hear(type="welcome", id=self.last_id)
        self.did()

    def wake(self, now: float) -> list[str]:
        self.now = now
        self.connection.handle_wake(now)
        return self.did()

    def _next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def _line(self, action: Action) -> str:
        match action:
            case ConnectionChange(state, error, retry_in_ms):
                pause = "" if retry_in_ms is None else f" {retry_in_ms:g} ms"
                return state + pause + ("" if error is None else f" ({error.code})")
            case Open(serial, url):
                self.serial = serial
                return f"open {url}"
            case FetchToken(serial, refused):
                self.serial = serial
                return "fetch token" + ("" if refused is None else f" instead of one refused with {refused.code}")
            case Send(command):
                self.sent.append(command)
                return f"send {command['type']}"
            case Close():
                return "close"


def test_the_way_up() -> None:
    driven = Driven()
    assert driven.did() == ["opening", "open ws://a"]
    driven.open()
    assert driven.did() == ["greeting", "send hello"]
    asks = {"batch": True, "fragments": True, "features": FEATURES}
    assert driven.sent == [{"type": "hello", "id": 1, **asks, "client": "desk"}]
    driven.hear(type="welcome", id=1)
    assert driven.did() == ["connected"]
    driven.connection.start(0)
    assert driven.did() == [], "starting twice is starting once"


def test_a_provider_is_asked_for_a_token_first_which_then_is_in_hello() -> None:
    driven = Driven(has_tokens=True)
    assert driven.did() == ["authorizing", "fetch token"]
    driven.connection.handle_token(driven.serial, "secret", 0)
    assert driven.did() == ["opening", "open ws://a"]
    driven.open()
    driven.did()
    assert driven.sent[0]["token"] == "secret"


LATE: dict[str, Callable[[Connection, int], None]] = {
    "an open transport": lambda connection, old: connection.handle_open(old, 0),
    "a closed transport": lambda connection, old: connection.handle_close(old, None, "", 0),
    "a token": lambda connection, old: connection.handle_token(old, "old", 0),
    "no token": lambda connection, old: connection.handle_token_failed(old, TidegateError(4300, ""), 0),
}


@pytest.mark.parametrize("late", LATE.values(), ids=LATE)
def test_what_comes_too_late_is_passed_over(late: Callable[[Connection, int], None]) -> None:
    driven = Driven()
    driven.did()
    old = driven.serial
    driven.connection.stop()
    driven.connection.start(0)
    assert driven.did() == ["close", "idle", "opening", "open ws://a"]
    late(driven.connection, old)
    assert driven.did() == []
    assert not driven.connection.is_current(old)


@pytest.mark.parametrize(
    ("code", "retry_after_ms", "expected"),
    [
        (4000, 0, ["close", "waiting 0 ms (4000)"]),
        (4000, 1000, ["close", "waiting 1250 ms (4000)"]),
        (4001, 0, ["close", "waiting 0 ms (4001)"]),
        (4100, 0, ["close", "waiting 250 ms (4100)"]),
        (4102, 4000, ["close", "waiting 5000 ms (4102)"]),
        (4208, 0, ["close", "stopped (4208)"]),
        (4300, 0, ["close", "stopped (4300)"]),
    ],
)
def test_a_server_that_closes_is_obeyed_by_the_range_of_its_code(
    code: int, retry_after_ms: int, expected: list[str]
) -> None:
    driven = Driven()
    driven.stand()
    driven.hear(type="closing", code=code, error="because", retry_after_ms=retry_after_ms)
    assert driven.did() == expected


@pytest.mark.parametrize(
    ("code", "expected"), [(4204, "stopped (4204)"), (1006, "waiting 250 ms (4904)"), (None, "waiting 250 ms (4904)")]
)
def test_a_close_frame_alone_says_as_much_as_closing(code: int | None, expected: str) -> None:
    driven = Driven()
    driven.stand()
    driven.close(code)
    assert driven.did() == ["close", expected]


def test_pauses_grow_until_a_connection_stood_for_a_while() -> None:
    driven = Driven()
    pauses = []
    for _ in range(4):
        driven.stand()
        driven.hear(type="closing", code=4000, error="")
        pauses.append(driven.did()[1])
        driven.wake(driven.connection.wake_at or 0)
    assert pauses == [f"waiting {ms} ms (4000)" for ms in (0, 500, 1000, 2000)]
    driven.stand()
    driven.now += TIMES.stable_ms
    driven.hear(type="closing", code=4000, error="")
    assert driven.did() == ["close", "waiting 0 ms (4000)"]


@pytest.mark.parametrize(
    ("attempt", "code", "retry_after_ms", "random", "expected"),
    [
        (0, NO_CODE, 0, 0, 125),
        (0, NO_CODE, 0, 1, 250),
        (3, NO_CODE, 0, 1, 2000),
        (50, NO_CODE, 0, 1, 30_000),
        (0, 4000, 0, 1, 0),
        (1, 4000, 0, 1, 500),
        (0, 4300, 0, 1, 0),
        (0, 4104, 0, 1, 250),
        (0, 4000, 1000, 0, 1000),
        (0, 4100, 1000, 1, 1250),
        (9, NO_CODE, 1000, 1, 30_000),
    ],
)
def test_pauses(attempt: int, code: int, retry_after_ms: float, random: float, expected: float) -> None:
    assert pause_ms(attempt, code, retry_after_ms, TIMES, lambda: random) == expected


def test_a_refused_token_is_replaced_before_the_next_attempt_at_once_the_first_time() -> None:
    driven = Driven(urls=("ws://a", "ws://b"), has_tokens=True)
    driven.did()
    for token, pause in (("old", 0), ("old as well", 0), ("also old", 500)):
        driven.connection.handle_token(driven.serial, token, 0)
        # The same node: the next one would refuse it as well.
        assert driven.did() == ["opening", "open ws://a"]
        driven.open()
        driven.hear(type="refused", id=driven.last_id, code=4300, error="unknown")
        assert driven.did() == ["greeting", "send hello", "close", f"waiting {pause} ms (4300)"]
        woken = driven.wake(driven.connection.wake_at or 0)
        assert woken == ["authorizing", "fetch token instead of one refused with 4300"]


@pytest.mark.parametrize("code", [4302, 4304])
def test_what_no_other_token_cures_is_final_whoever_has_tokens(code: int) -> None:
    driven = Driven(has_tokens=True)
    driven.did()
    driven.connection.handle_token(driven.serial, "good", 0)
    driven.did()
    driven.close(code)
    assert driven.did() == ["close", f"stopped ({code})"]


def test_a_token_that_was_good_is_used_again_after_a_break() -> None:
    driven = Driven(has_tokens=True)
    driven.did()
    driven.connection.handle_token(driven.serial, "good", 0)
    driven.stand()
    driven.close()
    driven.did()
    assert driven.wake(250) == ["opening", "open ws://a"]


@pytest.mark.parametrize(
    ("code", "expected"), [(4904, "waiting 250 ms (4904)"), (4100, "waiting 250 ms (4100)"), (4300, "stopped (4300)")]
)
def test_a_provider_that_fails_is_obeyed_by_its_code(code: int, expected: str) -> None:
    driven = Driven(has_tokens=True)
    driven.did()
    driven.connection.handle_token_failed(driven.serial, TidegateError(code, ""), 0)
    assert driven.did() == [expected]


def test_after_it_stopped_it_can_be_started_again_with_another_token() -> None:
    driven = Driven(has_tokens=True)
    driven.did()
    driven.connection.handle_token_failed(driven.serial, TidegateError(4300, ""), 0)
    driven.did()
    driven.connection.start(0)
    assert driven.did() == ["authorizing", "fetch token instead of one refused with 4300"]


def test_each_node_is_tried_before_pauses_grow() -> None:
    driven = Driven(urls=("ws://a", "ws://b"))
    lines = driven.did()
    for _ in range(4):
        driven.close()
        lines += driven.did() + driven.wake(driven.connection.wake_at or 0)
    assert [line for line in lines if line.startswith("open ")] == [f"open ws://{node}" for node in "ababa"]
    pauses = [line for line in lines if line.startswith("waiting")]
    assert pauses == [f"waiting {ms} ms (4904)" for ms in (250, 250, 500, 500)]


def test_opening_and_greeting_may_take_only_so_long() -> None:
    driven = Driven()
    driven.did()
    assert driven.wake(9_999) == []
    driven.open()
    driven.did()
    assert driven.wake(19_998) == []
    assert driven.wake(19_999) == ["close", "waiting 250 ms (4904)"]


def test_a_silent_server_is_pinged_then_given_up() -> None:
    driven = Driven()
    driven.stand()
    driven.connection.handle_heard(driven.serial, 1_000)
    assert driven.wake(25_000) == []
    assert driven.wake(26_000) == ["send ping"]
    assert driven.wake(36_000) == ["close", "waiting 250 ms (4904)"]


def test_one_that_answers_or_says_anything_else_is_not() -> None:
    driven = Driven()
    driven.stand()
    driven.wake(25_000)
    driven.connection.handle_heard(driven.serial, 34_000)
    assert driven.wake(35_000) == []
    driven.hear(type="pong", id=driven.last_id)
    assert driven.wake(59_999) == []
    assert driven.wake(60_000) == ["send ping"]


def test_a_nudge_ends_a_pause_and_asks_a_server_that_seems_to_be_there() -> None:
    driven = Driven()
    driven.did()
    driven.connection.nudge(0)
    assert driven.did() == []
    driven.stand()
    driven.connection.nudge(0)
    driven.connection.nudge(0)
    assert driven.did() == ["send ping"]
    driven.close()
    driven.did()
    driven.connection.nudge(1)
    assert driven.did() == ["opening", "open ws://a"]


@pytest.mark.parametrize("code", [4002, 4003])
def test_a_session_that_ended_is_opened_again_at_once_at_the_same_node(code: int) -> None:
    driven = Driven(("ws://a", "ws://b"))
    driven.stand()
    driven.hear(type="closing", code=code, error="")
    assert driven.did() == ["close", f"waiting 0 ms ({code})"]
    assert driven.wake(0) == ["opening", "open ws://a"]


def test_a_token_that_never_comes_is_given_up_and_asked_for_again() -> None:
    """99: it stayed `authorizing` for ever."""
    driven = Driven(has_tokens=True)
    assert driven.did() == ["authorizing", "fetch token"]
    assert driven.connection.wake_at == TIMES.token_ms
    assert driven.wake(TIMES.token_ms) == ["waiting 250 ms (4904)"]
    assert driven.wake(TIMES.token_ms + 250) == ["authorizing", "fetch token"]


def test_a_nudge_asks_for_a_token_again_and_the_old_one_comes_too_late() -> None:
    driven = Driven(has_tokens=True)
    driven.did()
    old = driven.serial
    driven.connection.nudge(1)
    assert driven.did() == ["authorizing", "fetch token"]
    driven.connection.handle_token(old, "late", 2)
    assert driven.did() == []
    driven.connection.handle_token(driven.serial, "t", 2)
    assert driven.did() == ["opening", "open ws://a"]


def test_how_long_the_server_wants_nobody_to_come_back_is_obeyed() -> None:
    """102: `Retry-After` was ignored."""
    driven = Driven()
    driven.did()
    driven.connection.handle_close(driven.serial, 4113, "because", 0, 60_000)
    assert driven.did() == ["close", "waiting 75000 ms (4113)"]

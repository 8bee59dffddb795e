"""Commands that are answered once, across breaks."""

from __future__ import annotations

import pytest

from tidegate import TidegateError
from tidegate.requests import AfterBreak, Requests


def requests(*, is_connected: bool = True) -> Requests:
    made = Requests(queue_max=3, resend_ms=1_000)
    if is_connected:
        made.handle_connected()
    return made


def texts(machine: Requests, now: float = 0) -> list[str]:
    polled = []
    while (unsent := machine.poll_unsent(now)) is not None:
        polled.append(unsent[1])
    return polled


def outcomes(machine: Requests) -> list[object]:
    polled: list[object] = []
    while (outcome := machine.poll_outcome()) is not None:
        answer = outcome.answer
        polled.append(answer.code if isinstance(answer, TidegateError) else answer["type"])
    return polled


@pytest.mark.parametrize(
    ("after_break", "break_at", "sent_again", "told"),
    [
        ("fail", 10, [], [4900]),
        ("ask-again-while-remembered", 999, ["#1"], []),
        ("ask-again-while-remembered", 1_000, [], [4900]),
        ("ask-again", 1e9, ["#1"], []),
    ],
)
def test_a_request_whose_connection_breaks_before_the_answer(
    after_break: AfterBreak, break_at: float, sent_again: list[str], told: list[int]
) -> None:
    machine = requests()
    machine.add(1, "#1", after_break)
    assert texts(machine) == ["#1"]
    machine.handle_disconnect(break_at)
    assert outcomes(machine) == told
    machine.handle_connected()
    assert texts(machine, break_at) == sent_again


def test_one_that_is_late_says_whether_it_was_sent_and_is_not_sent_any_more() -> None:
    machine = requests()
    machine.add(1, "#1", "ask-again-while-remembered")
    texts(machine)
    machine.handle_disconnect(0)
    machine.add(2, "#2", "fail")
    for id in (1, 2, 3):
        machine.handle_late(id, 0.05)
    assert outcomes(machine) == [4900, 4906]
    machine.handle_connected()
    assert texts(machine) == []


@pytest.mark.parametrize(
    ("after_break", "how"),
    [
        ("fail", "give it an idempotency key"),
        ("ask-again-while-remembered", "send it again with the same key"),
    ],
)
def test_the_error_of_one_in_doubt_says_what_to_do(after_break: AfterBreak, how: str) -> None:
    machine = requests()
    machine.add(1, "#1", after_break)
    texts(machine)
    machine.handle_disconnect(1_000)
    outcome = machine.poll_outcome()
    assert outcome is not None and f"may or may not have been kept: the connection broke before the answer; {how}" in str(
        outcome.answer
    )


def test_what_was_not_sent_yet_only_waits_behind_what_is_sent_again() -> None:
    machine = requests()
    machine.add(1, "#1", "ask-again")
    texts(machine)
    machine.add(2, "#2", "fail")
    machine.handle_disconnect(0)
    machine.add(3, "#3", "fail")
    assert texts(machine) == []
    machine.handle_connected()
    assert texts(machine) == ["#1", "#2", "#3"]


def test_answers_and_refusals_find_their_request_once() -> None:
    machine = requests()
    for id in (1, 2):
        machine.add(id, f"#{id}", "fail")
    texts(machine)
    published = {"type": "published", "id": 1}
    assert machine.handle_event(published)
    assert not machine.handle_event(published)
    assert machine.handle_event({"type": "refused", "id": 2, "code": 4217, "error": ""})
    assert not machine.handle_event({"type": "refused", "code": 4200, "error": ""})
    assert outcomes(machine) == ["published", 4217]


def test_no_more_wait_for_a_connection_than_may() -> None:
    machine = requests(is_connected=False)
    for id in (1, 2, 3, 4):
        machine.add(id, f"#{id}", "fail")
    assert outcomes(machine) == [4902]
    machine.remove(2)
    machine.add(5, "#5", "fail")
    machine.handle_connected()
    assert texts(machine) == ["#1", "#3", "#5"]


def test_when_there_will_be_no_connection_what_was_sent_is_in_doubt_and_what_was_not_is_not() -> None:
    machine = requests()
    machine.add(1, "#1", "fail")
    machine.add(2, "#2", "ask-again")
    texts(machine)
    machine.add(3, "#3", "fail")
    machine.handle_stop(TidegateError(4901, "closed"))
    assert outcomes(machine) == [4900, 4901, 4901]

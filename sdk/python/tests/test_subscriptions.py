"""The subscriptions' state machine: what it asks for, and what it tells of what comes."""

from __future__ import annotations

import base64
import json
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from helpers import line
from tidegate import ConnectionTimes, Lag, SubscriptionChange
from tidegate.canonical import canonical
from tidegate.subscriptions import ReadOptions, Subscriptions
from tidegate.tracker import Placed

Wire = dict[str, Any]


class Driven:
    """Subscriptions on a connection that stands, with short ways to make events."""

    def __init__(self) -> None:
        self._last_id = 0
        self.machine = Subscriptions(self._next_id, ConnectionTimes(), lambda: 1.0)
        self.machine.handle_connected()

    def hear(self, *events: Wire) -> None:
        for event in events:
            self.machine.handle_event(event, 0)

    def commands(self) -> list[Wire]:
        polled = []
        while (command := self.machine.poll_command()) is not None:
            polled.append(command)
        return polled

    def notices(self) -> list[str]:
        """What was told, one line each: the subscription's index, then what."""
        lines = []
        while (notice := self.machine.poll_notice()) is not None:
            what = notice.what
            if isinstance(what, Placed):
                continue
            if isinstance(what, SubscriptionChange):
                lines.append(f"{notice.of} {what.state}" + (f" ({what.error.code})" if what.error else ""))
            else:
                lines.append(f"{notice.of} lag {what.ms}" if isinstance(what, Lag) else f"{notice.of} {line(what)}")
        return lines

    def live(self, selectors: list[str], *topics: Wire, **options: Any) -> int:
        """Subscribes and has it answered; what was told until then is dropped."""
        index = self.machine.add(selectors, ReadOptions(**options))
        self.answer(*topics)
        self.notices()
        return index

    def settled(self) -> list[Wire]:
        """The commands other than pings, once pings were answered."""
        polled: list[Wire] = []
        while commands := self.commands():
            polled += [command for command in commands if command["type"] != "ping"]
            self.hear(*({"type": "pong", "id": each["id"]} for each in commands if each["type"] == "ping"))
        return polled

    def answer(self, *topics: Wire) -> None:
        """Answers the newest command."""
        self.hear({"type": "subscribed", "id": self.commands()[-1]["id"], "selectors": [], "topics": topics})

    def breaks(self) -> None:
        """The connection breaks, and stands again."""
        self.machine.handle_disconnect()
        self.machine.handle_connected()
        self.notices()

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id


def at(topic: str, head: int, start: int, **more: Any) -> Wire:
    return {"topic": topic, "epoch": "e1", "head": head, "start": start, **more}


def publication(topic: str, sequence: int) -> Wire:
    return {"type": "publication", "topic": topic, "sequence": sequence, "data": sequence}


def gap(topic: str, to: int, **more: Any) -> Wire:
    return {"type": "gap", "topic": topic, "epoch": "e1", "to": to, "reason": "history", **more}


def place(sequence: int) -> Wire:
    return {"epoch": "e1", "sequence": sequence}


def test_waiting_asked_live_and_waiting_again_after_a_break() -> None:
    driven = Driven()
    index = driven.machine.add(["a"], ReadOptions())
    driven.answer(at("a", 0, 0))
    driven.machine.handle_disconnect()
    driven.machine.remove(index)
    assert driven.notices() == ["0 asked", "0 live", "0 waiting", "0 ended"]
    driven.machine.handle_connected()
    assert driven.commands() == []


def test_the_options_go_into_the_command_and_defaults_do_not() -> None:
    driven = Driven()
    options = {"conflation": "always", "interval_ms": 500, "priority": -3, "filter": "data > 1", "name": "desk"}
    driven.machine.add(["a", "b/+"], ReadOptions(start={"last": 3}, delta="json-patch", **options))  # type: ignore[arg-type]
    driven.machine.add(["c"], ReadOptions())
    first, second = driven.commands()
    asked = {"type": "subscribe", "id": 1, "topics": ["a", "b/+"], "from": {"last": 3}, "delta": "json-patch"}
    assert first == asked | options
    assert second == {"type": "subscribe", "id": 2, "topics": ["c"]}


@pytest.mark.parametrize(
    ("code", "expected", "wake_at"),
    [
        (4301, ["0 asked", "0 ended (4301)"], None),
        (4207, ["0 asked", "0 ended (4207)"], None),
        (4104, ["0 asked", "0 waiting (4104)"], 250),
        (4001, ["0 asked", "0 waiting (4001)"], 0),
    ],
)
def test_refused(code: int, expected: list[str], wake_at: float | None) -> None:
    driven = Driven()
    driven.machine.add(["a"], ReadOptions())
    driven.hear({"type": "refused", "id": driven.commands()[0]["id"], "code": code, "error": "because"})
    assert driven.notices() == expected
    assert driven.machine.wake_at == wake_at
    driven.machine.handle_wake(1e9 if wake_at is None else wake_at)
    assert len(driven.commands()) == (0 if wake_at is None else 1)
    assert driven.machine.wake_at is None


def piece(sequence: int, offset: int, text: str) -> Wire:
    encoded = base64.b64encode(text.encode()).decode()
    place = {"topic": "a/b", "sequence": sequence, "total": 6, "offset": offset}
    return {"type": "fragment", **place, "kind": "text", "base64": encoded}


def test_a_topic_that_is_described_again_between_the_pieces_of_a_publication_loses_none() -> None:
    """The server does so when a reader falls far behind: it counts what it began to tell as told."""
    driven = Driven()
    index = driven.live(["a/+"], at("a/b", 0, 0), start="now")
    driven.hear(piece(1, 0, "abc"), {"type": "topic", **at("a/b", 2, 1)}, publication("a/b", 2))
    assert driven.notices() == [] and driven.machine.positions(index) == {"a/b": place(0)}
    driven.hear(piece(1, 3, "def"))
    assert driven.notices() == ['0 update a/b 1 "abcdef"', "0 update a/b 2 2"]


@pytest.mark.parametrize("anew", [{"type": "topic", **at("a/b", 0, 0)}, {**gap("a/b", 0, reason="epoch")}])
def test_what_is_unfinished_when_the_numbering_begins_anew_holds_up_nothing(anew: Wire) -> None:
    driven = Driven()
    driven.live(["a/+"], at("a/b", 6, 6), start="now")
    driven.hear(piece(7, 0, "abc"), {**anew, "epoch": "e2"}, piece(7, 3, "def"), publication("a/b", 1))
    driven.hear(*(publication("a/b", number) for number in range(2, 9)))
    updates = [f"0 update a/b {number} {number}" for number in range(1, 9)]
    assert driven.notices() == ["0 gap a/b ..0 epoch", *updates]


def test_ended_by_the_server_because_its_reader_was_too_slow() -> None:
    driven = Driven()
    driven.live(["a", "b"], at("a", 0, 0), at("b", 0, 0))
    driven.hear({"type": "unsubscribed", "selectors": ["a"]}, publication("a", 1), publication("b", 1))
    assert driven.notices() == ["0 update b 1 1"]
    driven.hear({"type": "unsubscribed", "selectors": ["b"], "reason": "lagged"})
    assert driven.notices() == ["0 ended (4102)"]


def test_ended_before_it_was_answered_the_answer_means_nothing() -> None:
    driven = Driven()
    driven.machine.remove(driven.machine.add(["a"], ReadOptions()))
    assert [command["type"] for command in driven.commands()] == ["subscribe", "unsubscribe"]
    driven.hear({"type": "subscribed", "id": 1, "selectors": ["a"], "topics": [at("a", 1, 0)]}, publication("a", 1))
    assert driven.notices() == ["0 asked", "0 ended"]


def test_the_snapshot_is_what_was_there_before_everything_else_is_an_update() -> None:
    driven = Driven()
    driven.live(["a/+"])
    driven.hear({"type": "topic", **at("a/x", 5, 4)}, publication("a/x", 5), publication("a/x", 6))
    driven.hear({"type": "topic", **at("a/new", 0, 0)}, publication("a/new", 1))
    assert driven.notices() == ["0 snapshot a/x 5 5", "0 update a/x 6 6", "0 update a/new 1 1"]


def test_news_is_no_snapshot_because_its_topic_was_described_again_before() -> None:
    driven = Driven()
    driven.live(["a/+"])
    driven.hear({"type": "topic", **at("a/new", 0, 0)}, {"type": "topic", **at("a/new", 2, 0)})
    driven.hear(publication("a/new", 1), publication("a/new", 2))
    assert driven.notices() == ["0 update a/new 1 1", "0 update a/new 2 2"]


def test_publications_of_a_history_are_no_snapshots() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 3), start={"last": 2})
    driven.hear(publication("a", 4), publication("a", 5))
    assert driven.notices() == ["0 update a 4 4", "0 update a 5 5"]


def test_lag_goes_to_all_and_the_unknown_to_nobody() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 0, 0))
    driven.hear({"type": "lag", "ms": 8}, {"type": "weather"}, publication("b", 1), gap("b", 3))
    driven.hear({"type": "refused", "code": 4200, "error": ""})
    assert driven.notices() == ["0 lag 8"]


GAPS: dict[str, tuple[list[Wire], list[str], int]] = {
    "in the middle": ([gap("a", 8, **{"from": 6}), publication("a", 9)], ["gap a 6..8 history", "update a 9 9"], 9),
    "without `from`": ([gap("a", 8, reason="lagged")], ["gap a 6..8 lagged"], 8),
    "what was taken is no gap": ([gap("a", 5, **{"from": 2})], [], 5),
    "only what was not taken is": ([gap("a", 7, **{"from": 2})], ["gap a 6..7 history"], 7),
    "a repetition after it is dropped": ([gap("a", 8), publication("a", 7)], ["gap a 6..8 history"], 8),
    "a new epoch begins below": (
        [gap("a", 2, epoch="e2", reason="epoch"), publication("a", 3)],
        ["gap a ..2 epoch", "update a 3 3"],
        3,
    ),
    "a new epoch begins at 0": ([gap("a", 0, epoch="e2", reason="epoch")], ["gap a ..0 epoch"], 0),
}


@pytest.mark.parametrize(("events", "expected", "sequence"), GAPS.values(), ids=GAPS)
def test_gaps_move_the_position_and_epochs_start_over(events: list[Wire], expected: list[str], sequence: int) -> None:
    driven = Driven()
    index = driven.live(["a"], at("a", 5, 5))
    driven.hear(*events)
    assert driven.notices() == [f"0 {line}" for line in expected]
    assert driven.machine.positions(index)["a"]["sequence"] == sequence


BREAKS: dict[str, tuple[Wire, list[Wire], list[str]]] = {
    "whole": (at("a", 8, 5, recovered=True), [], ["resumed a whole, 3 missed"]),
    "repetitions are dropped": (
        at("a", 6, 4, recovered=True),
        [publication("a", 5), publication("a", 6)],
        ["resumed a whole, 1 missed", "update a 6 6"],
    ),
    "not whole": (
        at("a", 9, 5, recovered=False),
        [gap("a", 7, **{"from": 6}), publication("a", 8)],
        ["resumed a not whole, 4 missed", "gap a 6..7 history", "update a 8 8"],
    ),
    "another epoch, told once": (
        at("a", 3, 1, epoch="e2", recovered=False),
        [gap("a", 1, epoch="e2", reason="epoch"), publication("a", 2)],
        ["resumed a not whole, 3 missed", "gap a ..1 epoch", "update a 2 2"],
    ),
    "a gap although it was whole": (
        at("a", 9, 5, recovered=True),
        [gap("a", 8, **{"from": 6}), publication("a", 9)],
        ["resumed a whole, 4 missed", "gap a 6..8 history", "update a 9 9"],
    ),
    "a server that forgot what it told": (
        at("a", 2, 2, recovered=False),
        [publication("a", 3)],
        ["resumed a not whole, 2 missed", "gap a ..2 epoch", "update a 3 3"],
    ),
}


@pytest.mark.parametrize(("topic", "events", "expected"), BREAKS.values(), ids=BREAKS)
def test_after_a_break(topic: Wire, events: list[Wire], expected: list[str]) -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5))
    driven.breaks()
    driven.hear(publication("a", 99), gap("a", 99))
    assert driven.notices() == [], "nothing is taken before the answer"
    [command] = driven.commands()
    assert (command["from"], command["positions"]) == ("all", {"a": place(5)})
    driven.hear({"type": "subscribed", "id": command["id"], "selectors": [], "topics": [topic]}, *events)
    assert driven.notices() == ["0 live", *(f"0 {line}" for line in expected)]


def test_a_topic_that_came_into_being_meanwhile_is_news_not_a_snapshot() -> None:
    driven = Driven()
    driven.live(["a/+"])
    driven.breaks()
    driven.answer()
    driven.notices()
    driven.hear({"type": "topic", **at("a/x", 2, 0)}, publication("a/x", 1), publication("a/x", 2))
    assert driven.notices() == ["0 update a/x 1 1", "0 update a/x 2 2"]


def test_unsubscribed_while_there_is_no_connection_it_is_not_asked_for_again() -> None:
    driven = Driven()
    index = driven.live(["a"], at("a", 5, 5))
    driven.machine.handle_disconnect()
    driven.machine.remove(index)
    driven.machine.handle_connected()
    assert driven.commands() == []


def test_positions_of_an_earlier_run_are_resumed_from() -> None:
    driven = Driven()
    driven.machine.add(["a", "b"], ReadOptions(positions={"a": {"epoch": "e1", "sequence": 3}}))
    driven.answer(at("a", 4, 3, recovered=True), at("b", 2, 1))
    driven.hear(publication("a", 4), publication("b", 2))
    told = ["0 resumed a whole, 1 missed", "0 update a 4 4", "0 snapshot b 2 2"]
    assert driven.notices() == ["0 asked", "0 live", *told]


@pytest.mark.parametrize("selectors", [["a", "b"], ["a/+"]])
def test_one_position_for_several_topics_is_refused_here(selectors: list[str]) -> None:
    with pytest.raises(ValueError, match="give `positions`"):
        Driven().machine.add(selectors, ReadOptions(start={"epoch": "e1", "sequence": 3}))


@pytest.mark.parametrize(
    ("start", "sequence", "own"),
    [("snapshot", 4, ["1 snapshot a 5 5"]), ("now", 5, []), ({"last": 2}, 3, ["1 update a 4 4", "1 update a 5 5"])],
)
def test_whoever_joins_is_told_its_own_start_and_the_other_nothing_twice(
    start: Any, sequence: int, own: list[str]
) -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5))
    driven.machine.add(["a"], ReadOptions(start=start))
    [command] = driven.commands()
    assert command["positions"] == {"a": place(sequence)}
    # The server restarts the topic from there.
    driven.hear({"type": "subscribed", "id": command["id"], "selectors": ["a"], "topics": [at("a", 6, sequence)]})
    driven.hear(*(publication("a", number) for number in range(sequence + 1, 7)))
    assert driven.notices()[2:] == [*own, "0 update a 6 6", "1 update a 6 6"]


def test_one_waits_for_another_that_is_not_answered_yet_and_then_asks_for_its_place() -> None:
    driven = Driven()
    for selector, start in (("a", "all"), ("a", "now"), ("+", "now"), ("b/+", "now")):
        driven.machine.add([selector], ReadOptions(start=start))  # type: ignore[arg-type]
    first, other = driven.commands()
    assert (first["topics"], other["topics"]) == (["a"], ["b/+"])
    driven.hear({"type": "subscribed", "id": first["id"], "selectors": ["a"], "topics": [at("a", 9, 0)]})
    second, third = driven.commands()
    assert (second["topics"], second["positions"]) == (["a"], {"a": place(0)})
    assert (third["topics"], third["positions"]) == (["+"], {"a": place(0)})


def test_of_a_pattern_the_topics_are_waited_for_but_only_once() -> None:
    driven = Driven()
    driven.machine.add(["+"], ReadOptions(start="all"))
    for _ in range(2):
        driven.machine.add(["+"], ReadOptions(start="now"))
    [first] = driven.commands()
    driven.hear({"type": "subscribed", "id": first["id"], "selectors": ["+"], "topics": []})
    [ping] = driven.commands()
    assert ping["type"] == "ping"
    driven.hear({"type": "topic", **at("a", 5, 0)}, {"type": "pong", "id": ping["id"]})
    assert [asked["positions"] for asked in driven.commands()] == [{"a": place(0)}] * 2


def test_what_was_live_before_is_asked_for_again_at_once_all_of_it() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 1, 1))
    driven.live(["+"], at("a", 1, 1))
    driven.breaks()
    driven.machine.add(["#"], ReadOptions())
    assert [asked["topics"] for asked in driven.commands()] == [["a"], ["+"]]


@pytest.mark.parametrize("what", ["ended", "refused", "put off", "taken away"])
def test_one_that_waits_goes_on_when_the_other_is_gone(what: str) -> None:
    driven = Driven()
    index = driven.machine.add(["a"], ReadOptions())
    driven.machine.add(["a", "b"], ReadOptions())
    [first] = driven.commands()
    if what == "ended":
        driven.machine.remove(index)
    elif what == "taken away":
        driven.hear({"type": "unsubscribed", "selectors": ["a"], "reason": "lagged"})
    else:
        driven.hear({"type": "refused", "id": first["id"], "code": 4301 if what == "refused" else 4001, "error": ""})
    [asked] = driven.commands()
    assert (asked["type"], asked["topics"]) == ("subscribe", ["b"] if what == "taken away" else ["a", "b"])


def test_what_waits_to_be_asked_for_again_is_told_nothing_that_it_would_seem_to_have_followed() -> None:
    driven = Driven()
    driven.machine.add(["+"], ReadOptions(delta="json-patch"))
    driven.answer()
    driven.hear({"type": "topic", **at("a", 0, 0)}, delta(1, 0, {"x": 2}, REPLACED), publication("a", 2))
    # The topics of the pattern are still on their way.
    [ping] = driven.commands()
    driven.hear({"type": "pong", "id": ping["id"]})
    [again] = driven.commands()
    assert again["positions"] == {"a": place(0)} and "delta" not in again
    driven.hear({"type": "subscribed", "id": again["id"], "selectors": ["+"], "topics": []})
    driven.hear({"type": "topic", **at("a", 2, 0, recovered=True)}, publication("a", 1), publication("a", 2))
    assert driven.notices() == ["0 asked", "0 live", "0 asked", "0 live", "0 update a 1 1", "0 update a 2 2"]


def test_a_gap_that_only_the_newer_ones_start_causes_is_told_to_nobody() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5))
    driven.machine.add(["a"], ReadOptions(start={"last": 5}))
    driven.answer(at("a", 5, 0, recovered=False))
    driven.hear(gap("a", 4, **{"from": 1}), publication("a", 5), publication("a", 6))
    assert driven.notices()[2:] == ["1 update a 5 5", "0 update a 6 6", "1 update a 6 6"]


def test_a_durable_subscriber_starts_where_its_name_left_off_not_where_others_are() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5))
    driven.machine.add(["a"], ReadOptions(name="desk"))
    assert "positions" not in driven.commands()[0]


def test_the_server_is_told_to_stop_only_what_nobody_reads_any_more() -> None:
    driven = Driven()
    first, second = driven.live(["a", "b"]), driven.live(["b", "c"])
    driven.machine.remove(first)
    driven.machine.remove(second)
    assert [command["topics"] for command in driven.commands()] == [["a"], ["b", "c"]]


def test_after_a_break_each_asks_for_the_earliest_place_that_any_of_them_needs() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 9, 9))
    driven.live(["a"], at("a", 9, 3, recovered=True), start=place(3))
    driven.hear(publication("a", 4))
    driven.breaks()
    assert [command["positions"] for command in driven.commands()] == [{"a": place(4)}, {"a": place(4)}]


def test_a_new_numbering_is_taken_by_all_who_read_the_topic_whoever_asked() -> None:
    """91: the other one dropped the new publications as repetitions, and told the rest under the old epoch."""
    driven = Driven()
    driven.live(["a/+"])
    driven.hear({"type": "topic", **at("a/x", 9, 9)})
    driven.machine.add(["a/x"], ReadOptions())
    [asked] = driven.settled()
    driven.hear({"type": "subscribed", "id": asked["id"], "selectors": ["a/x"], "topics": [at("a/x", 9, 9)]})
    again = [{**at("a/x", 1, 0, recovered=False), "epoch": "e2"}, {**at("a/x", 9, 0, recovered=False), "epoch": "e3"}]
    for topic in again:
        driven.breaks()
        pattern, plain = driven.commands()
        driven.hear({"type": "subscribed", "id": pattern["id"], "selectors": ["a/+"], "topics": []})
        driven.hear({"type": "subscribed", "id": plain["id"], "selectors": ["a/x"], "topics": [topic]})
        driven.hear(publication("a/x", 1))
        assert sorted(line for line in driven.notices() if "update" in line or "gap" in line) == [
            "0 gap a/x ..0 epoch",
            "0 update a/x 1 1",
            "1 gap a/x ..0 epoch",
            "1 update a/x 1 1",
        ]
    assert driven.machine.positions(0) == {"a/x": {"epoch": "e3", "sequence": 1}}


def test_who_wants_all_is_told_what_of_a_new_numbering_is_not_there_if_the_topic_is_resumed_for_another() -> None:
    driven = Driven()
    resumed = at("x", 33, 13, recovered=False)
    driven.live(["x"], resumed, positions={"x": {"epoch": "e0", "sequence": 5}})
    for pattern, options in [("#", ReadOptions(start="now")), ("+", ReadOptions(start="all"))]:
        driven.machine.add([pattern], options)
        for asked in driven.settled():
            driven.hear({"type": "subscribed", "id": asked["id"], "selectors": asked["topics"], "topics": []})
    driven.settled()
    driven.hear({"type": "topic", **resumed}, gap("x", 13, reason="epoch"), publication("x", 14))
    told = [line for line in driven.notices() if " gap " in line or " update " in line]
    assert sorted(told) == ["0 update x 14 14", "1 update x 14 14", "2 gap x 1..13 epoch", "2 update x 14 14"]


def test_an_answer_that_nobody_waits_for_any_more_says_all_the_same_where_the_topic_is_read() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 9, 9))
    other = driven.machine.add(["a"], ReadOptions(start="now"))
    [asked] = driven.commands()
    driven.machine.remove(other)
    driven.hear({"type": "subscribed", "id": asked["id"], "selectors": ["a"], "topics": [{**at("a", 0, 0), "epoch": "e2"}]})
    driven.hear(publication("a", 1))
    assert [line for line in driven.notices() if line.startswith("0")] == ["0 gap a ..0 epoch", "0 update a 1 1"]


@pytest.mark.parametrize("late", ["publication", "gap"])
def test_one_that_goes_on_from_a_position_takes_nothing_before_its_topic_is_described(late: str) -> None:
    """92: what was meant for another moved its place from 40 to 101, and 41 to 100 were lost."""
    driven = Driven()
    driven.live(["#"])
    driven.hear({"type": "topic", **at("a/x", 100, 100)})
    driven.machine.add(["a/+"], ReadOptions(positions={"a/x": {"epoch": "e1", "sequence": 40}}))
    [asked] = driven.settled()
    assert asked["positions"] == {"a/x": place(40)}
    driven.hear({"type": "subscribed", "id": asked["id"], "selectors": ["a/+"], "topics": []})
    driven.hear(publication("a/x", 101) if late == "publication" else gap("a/x", 101))
    driven.hear({"type": "topic", **at("a/x", 101, 40, recovered=True)})
    driven.hear(*(publication("a/x", number) for number in range(41, 103)))
    updates = [line for line in driven.notices() if line.startswith("1 ")]
    assert [line for line in updates if "asked" not in line and "live" not in line] == ["1 resumed a/x whole, 61 missed"] + [f"1 update a/x {number} {number}" for number in range(41, 103)]


def test_late_pieces_of_the_reading_before_do_not_stand_before_what_comes_first() -> None:
    """92: the last piece of 101 came after the topic was described from 40."""
    driven = Driven()
    driven.live(["#"])
    driven.hear({"type": "topic", **at("a/b", 100, 100)}, piece(101, 0, "abc"))
    driven.machine.add(["a/+"], ReadOptions(positions={"a/b": {"epoch": "e1", "sequence": 99}}))
    [asked] = driven.settled()
    driven.hear({"type": "subscribed", "id": asked["id"], "selectors": ["a/+"], "topics": []})
    driven.hear({"type": "topic", **at("a/b", 101, 99, recovered=True)}, piece(101, 3, "def"), publication("a/b", 100))
    driven.hear(piece(101, 0, "abc"), piece(101, 3, "def"))
    updates = [line for line in driven.notices() if "update" in line]
    assert updates == ["1 update a/b 100 100", '0 update a/b 101 "abcdef"', '1 update a/b 101 "abcdef"']


def test_what_is_described_from_beyond_where_it_was_asked_for_is_a_gap() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5))
    driven.breaks()
    driven.answer(at("a", 9, 7))
    assert driven.notices()[1:] == ["0 resumed a whole, 4 missed", "0 gap a 6..7 history"]


def test_what_is_left_of_those_that_overlap_is_asked_for_again_as_it_wants_to_be_read() -> None:
    """93: the filter of one that had ended still went for the other."""
    driven = Driven()
    driven.live(["a/x"], at("a/x", 5, 5))
    filtering = driven.live(["a/+"], filter="data > 7")
    driven.hear({"type": "topic", **at("a/x", 5, 5)})
    driven.notices()
    driven.machine.remove(filtering)
    unsubscribe, again = driven.commands()
    assert (unsubscribe["type"], unsubscribe["topics"]) == ("unsubscribe", ["a/+"])
    assert again == {"type": "subscribe", "id": again["id"], "topics": ["a/x"], "from": "all", "positions": {"a/x": place(5)}}


def test_what_is_left_is_asked_for_again_only_if_it_is_read_as_another_wanted() -> None:
    def left(*manners: dict[str, Any], removed: int) -> list[list[str]]:
        driven = Driven()
        for selector, manner in zip(["a/x", "a/+", "b", "a/#"], manners, strict=False):
            driven.live([selector], **manner)
        driven.commands()
        driven.machine.remove(removed)
        return [command["topics"] for command in driven.commands() if command["type"] == "subscribe"]

    plain: dict[str, Any] = {}
    filtered = {"filter": "data > 7"}
    assert left(plain, plain, filtered, removed=1) == []
    assert left(plain, filtered, plain, removed=2) == []
    assert left(plain, filtered, plain, removed=0) == []


def test_a_bridge_between_two_leaves_each_as_it_wants_to_be_read() -> None:
    driven = Driven()
    driven.live(["a/x"], at("a/x", 5, 5), filter="data > 1")
    driven.live(["a/y"], at("a/y", 5, 5), filter="data > 2")
    bridge = driven.live(["a/x", "a/y"], at("a/x", 5, 5), at("a/y", 5, 5))
    driven.live(["a/y"], at("a/y", 5, 5), filter="data > 3")
    driven.machine.remove(bridge)
    # The newest of all goes for `a/y` as before.
    assert [(command["topics"], command["filter"]) for command in driven.commands()] == [(["a/x"], "data > 1")]


def test_whoever_joins_gives_the_place_of_one_that_is_asked_for_and_has_read_nothing_yet() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 100, 100))
    driven.machine.add(["a"], ReadOptions(positions={"a": {"epoch": "e1", "sequence": 40}}))
    driven.machine.add(["a"], ReadOptions(start="now"))
    assert [asked["positions"] for asked in driven.commands()] == [{"a": place(40)}] * 2


def test_what_is_lost_for_another_moves_nobody_without_a_gap() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 13, 13))
    driven.hear({"type": "topic", **at("a", 22, 18, recovered=False)}, gap("a", 18, reason="epoch"), publication("a", 19))
    assert driven.notices() == ["0 gap a 14..18 epoch", "0 update a 19 19"]


def test_a_topic_that_came_into_being_meanwhile_is_read_from_where_the_older_ones_are() -> None:
    """Who is asked for later gives no place of a topic that nobody knew: the server reads on from its snapshot."""
    driven = Driven()
    driven.live(["a/+"])
    driven.machine.add(["#"], ReadOptions())
    [asked] = driven.settled()
    driven.hear({"type": "topic", **at("a/x", 0, 0)}, publication("a/x", 1))
    driven.hear({"type": "subscribed", "id": asked["id"], "selectors": ["#"], "topics": []})
    driven.hear({"type": "topic", **at("a/x", 5, 4)}, publication("a/x", 5), {"type": "topic", **at("a/y", 3, 2)})
    [again] = driven.settled()
    assert again["topics"] == ["a/+"]
    assert again["positions"] == {"a/x": place(1), "a/y": place(0)}


def test_what_is_described_for_another_before_the_answer_is_described_for_all_who_were_asked_for() -> None:
    """The server puts what it is asked for at the same time together, and describes a topic once."""
    driven = Driven()
    driven.live(["a"], at("a", 9, 9))
    driven.machine.add(["+"], ReadOptions(start="now"))
    driven.hear({"type": "subscribed", "id": driven.settled()[0]["id"], "selectors": ["+"], "topics": []})
    driven.hear({"type": "topic", **at("a", 9, 9, recovered=True)})
    driven.breaks()
    plain, pattern = driven.commands()
    anew = {**at("a", 1, 0, recovered=False), "epoch": "e2"}
    driven.hear({"type": "subscribed", "id": plain["id"], "selectors": ["a"], "topics": [anew]})
    driven.hear({"type": "subscribed", "id": pattern["id"], "selectors": ["+"], "topics": []}, publication("a", 1))
    assert [line for line in driven.notices() if line.startswith("1 ")] == [
        "1 live",
        "1 resumed a not whole, 1 missed",
        "1 gap a ..0 epoch",
        "1 update a 1 1",
    ]


def test_what_was_described_before_the_answer_does_not_count_once_something_of_it_was_told() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 9, 9))
    driven.machine.add(["+"], ReadOptions(start="now"))
    driven.hear({"type": "subscribed", "id": driven.settled()[0]["id"], "selectors": ["+"], "topics": []})
    driven.hear({"type": "topic", **at("a", 9, 9, recovered=True)})
    driven.breaks()
    plain, pattern = driven.commands()
    described = at("a", 11, 9, recovered=True)
    driven.hear({"type": "subscribed", "id": plain["id"], "selectors": ["a"], "topics": [described]}, publication("a", 10))
    driven.hear({"type": "subscribed", "id": pattern["id"], "selectors": ["+"], "topics": []}, publication("a", 11))
    driven.hear({"type": "topic", **described}, publication("a", 10), publication("a", 11))
    assert [line for line in driven.notices() if line.startswith("1 update")] == ["1 update a 10 10", "1 update a 11 11"]


def test_places_that_do_not_go_into_one_command_are_given_in_several() -> None:
    """98: the first break ended the subscription with 4206."""
    driven = Driven()
    driven.live(["a/+"])
    topics = [f"a/{number}" for number in range(3_000)]
    driven.hear(*({"type": "topic", **at(topic, 5, 5)} for topic in topics))
    driven.machine.handle_disconnect()
    driven.machine.handle_connected(100_000)
    given: dict[str, Wire] = {}
    by_name: set[str] = set()
    while commands := driven.settled():
        for command in commands:
            assert len(json.dumps(command)) <= 100_000
            if command["type"] == "unsubscribe":
                by_name -= set(command["topics"])
                continue
            given |= command["positions"]
            plain = [topic for topic in command["topics"] if topic != "a/+"]
            by_name |= set(plain)
            if not plain:
                driven.hear({"type": "subscribed", "id": command["id"], "selectors": [], "topics": []})
                # All are read on; those whose place is not known yet from the oldest that there is.
                known = {topic: {"recovered": True} if topic in command["positions"] else {} for topic in topics}
                driven.hear(*({"type": "topic", **at(topic, 6, 5 if more else 6, **more)} for topic, more in known.items()))
                driven.hear(*(publication(topic, 6) for topic, more in known.items() if not more))
            elif len(plain) > 500:
                driven.hear({"type": "refused", "id": command["id"], "code": 4207, "error": "too many"})
            else:
                described = [at(topic, 6, 5, recovered=True) for topic in plain]
                driven.hear({"type": "subscribed", "id": command["id"], "selectors": plain, "topics": described})
    assert given == dict.fromkeys(topics, place(5)) and not by_name - set(plain)
    driven.notices()
    driven.hear(*(publication(topic, 6) for topic in topics))
    assert sorted(driven.notices()) == sorted(f"0 update {topic} 6 6" for topic in topics)


def test_a_place_that_is_given_later_is_the_earliest_that_anybody_needs_then() -> None:
    driven = Driven()
    driven.live(["a/+"])
    driven.hear(*({"type": "topic", **at(f"a/{number}", 5, 5)} for number in range(200)))
    driven.machine.handle_disconnect()
    driven.machine.handle_connected(8_000)
    [pattern] = driven.settled()
    driven.hear({"type": "subscribed", "id": pattern["id"], "selectors": [], "topics": []})
    [part] = driven.settled()
    driven.machine.add(["a/199"], ReadOptions(positions={"a/199": {"epoch": "e1", "sequence": 3}}))
    [joined] = driven.settled()
    driven.hear({"type": "subscribed", "id": joined["id"], "selectors": ["a/199"], "topics": [at("a/199", 5, 3, recovered=True)]})
    while "a/199" not in part["topics"]:
        described = [at(topic, 5, 5, recovered=True) for topic in part["topics"]]
        driven.hear({"type": "subscribed", "id": part["id"], "selectors": part["topics"], "topics": described})
        [part] = [command for command in driven.settled() if command["type"] == "subscribe"]
    assert part["positions"]["a/199"] == place(3)


def test_what_was_asked_for_by_name_is_given_back_also_if_its_subscription_has_ended() -> None:
    driven = Driven()
    index = driven.live(["a/+"])
    driven.hear(*({"type": "topic", **at(f"a/{number}", 5, 5)} for number in range(100)))
    driven.machine.handle_disconnect()
    driven.machine.handle_connected(5_000)
    [pattern] = driven.settled()
    driven.hear({"type": "subscribed", "id": pattern["id"], "selectors": [], "topics": []})
    [part] = driven.settled()
    driven.machine.remove(index)
    assert [command["topics"] for command in driven.settled()] == [["a/+"]]
    driven.hear({"type": "subscribed", "id": part["id"], "selectors": part["topics"], "topics": []})
    assert [(command["type"], command["topics"]) for command in driven.settled()] == [("unsubscribe", part["topics"])]


def test_a_numbering_that_others_were_told_of_before_the_answer_is_taken_with_it() -> None:
    """A topic that another selects by name is not described again to a pattern."""
    driven = Driven()
    driven.live(["a"], at("a", 9, 9))
    driven.machine.add(["+"], ReadOptions(start="now"))
    driven.hear({"type": "subscribed", "id": driven.settled()[0]["id"], "selectors": ["+"], "topics": []})
    driven.hear({"type": "topic", **at("a", 9, 9, recovered=True)})
    driven.breaks()
    plain, pattern = driven.commands()
    anew = {**at("a", 0, 0, recovered=False), "epoch": "e2"}
    driven.hear({"type": "subscribed", "id": plain["id"], "selectors": ["a"], "topics": [anew]})
    driven.hear(gap("a", 0, epoch="e2", reason="epoch"))
    driven.hear({"type": "subscribed", "id": pattern["id"], "selectors": ["+"], "topics": []}, publication("a", 1))
    assert [line for line in driven.notices() if line.startswith("1 ")][2:] == ["1 gap a ..0 epoch", "1 update a 1 1"]


def test_who_is_read_to_from_beyond_its_place_asks_again_also_if_another_gave_that_place() -> None:
    """A pattern that catches up is told of its topics one after the other: who was asked for before did not know."""
    driven = Driven()
    driven.live(["a/+"], start="all")
    driven.machine.add(["a/x"], ReadOptions(positions={"a/x": {"epoch": "e1", "sequence": 90}}))
    [asked] = driven.settled()
    driven.hear({"type": "topic", **at("a/x", 99, 0)}, publication("a/x", 1))
    described = at("a/x", 99, 90, recovered=True)
    driven.hear({"type": "subscribed", "id": asked["id"], "selectors": ["a/x"], "topics": [described]})
    driven.hear(publication("a/x", 91))
    [again] = driven.settled()
    assert (again["topics"], again["positions"]) == (["a/+"], {"a/x": place(1)})
    assert [line for line in driven.notices() if line.startswith("0 update")] == ["0 update a/x 1 1"]


def delta(sequence: int, base: int, value: Any, patch: list[Wire], **more: Any) -> Wire:
    place = {"topic": "a", "sequence": sequence, "base": base}
    return {"type": "delta", **place, "crc": zlib.crc32(canonical(value)), "kind": "json", "patch": patch, **more}


REPLACED = [{"op": "replace", "path": "/x", "value": 2}]


def whole(sequence: int, value: Any) -> Wire:
    return {"type": "publication", "topic": "a", "sequence": sequence, "data": value}


def test_deltas_are_told_as_what_they_make() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 0, 0), delta="json-patch")
    driven.hear(whole(1, {"x": 1, "y": 1.5}), delta(2, 1, {"x": 2, "y": 1.5}, REPLACED))
    driven.hear(delta(3, 2, {"x": 2}, [{"op": "remove", "path": "/y"}]))
    values = [{"x": 1, "y": 1.5}, {"x": 2, "y": 1.5}, {"x": 2}]
    assert driven.notices() == [f"0 update a {number} {json.dumps(value)}" for number, value in enumerate(values, 1)]


def test_who_shares_a_topic_may_get_deltas_even_longer_than_who_asked_for_them() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 0, 0))
    asked = driven.live(["a"], at("a", 0, 0), delta="json-patch")
    driven.hear(whole(1, {"x": 1}))
    driven.machine.remove(asked)
    driven.notices()
    driven.hear(delta(2, 1, {"x": 2}, REPLACED))
    assert driven.notices() == ['0 update a 2 {"x": 2}']


BAD = {
    "of another base": delta(2, 0, {"x": 2}, REPLACED),
    "with another check": delta(2, 1, {"x": 2}, REPLACED, crc=7),
    "that does not apply": delta(2, 1, {"x": 2}, [{"op": "remove", "path": "/none"}]),
    "of another kind": {"type": "delta", "topic": "a", "sequence": 2, "base": 1, "crc": 1, "kind": "text", "vcdiff": "1sPE"},
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_after_a_delta_that_cannot_be_applied_the_topic_is_asked_for_whole_and_nothing_is_lost(bad: Wire) -> None:
    driven = Driven()
    driven.live(["a"], at("a", 0, 0), delta="json-patch")
    driven.live(["a"], at("a", 0, 0), start="now")
    driven.hear(whole(1, {"x": 1}), bad, delta(3, 2, {"x": 3}, REPLACED))
    first, second = driven.commands()
    assert "delta" not in first and first["positions"] == second["positions"] == {"a": place(1)}
    for command in (first, second):
        driven.hear({"type": "subscribed", "id": command["id"], "selectors": ["a"], "topics": [at("a", 3, 1)]})
        driven.hear(whole(2, {"x": 2}), whole(3, {"x": 3}))
    told = [notice for notice in driven.notices() if "update" in notice]
    assert sorted(told) == [f'{index} update a {number} {{"x": {number}}}' for index in (0, 1) for number in (1, 2, 3)]


def test_a_delta_that_cannot_be_applied_supersedes_what_was_asked_before_it() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 0, 0))
    driven.machine.add(["a"], ReadOptions(delta="json-patch"))
    driven.hear(delta(2, 1, {"x": 2}, REPLACED))
    old, *again = driven.commands()
    assert old["delta"] == "json-patch" and all("delta" not in command for command in again) and len(again) == 2
    driven.hear({"type": "subscribed", "id": old["id"], "selectors": ["a"], "topics": [at("a", 2, 0)]})
    assert "1 live" not in driven.notices()


def test_who_was_given_a_value_cannot_change_what_the_next_is_made_from() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 0, 0), delta="json-patch")
    value = {"x": 1, "list": [1]}
    driven.hear(whole(1, value))
    value["list"] = []
    driven.hear(delta(2, 1, {"x": 2, "list": [1]}, REPLACED))
    assert driven.notices()[1] == '0 update a 2 {"x": 2, "list": [1]}'


def test_ten_thousand_of_them_are_asked_for_and_told_in_no_time() -> None:
    driven = Driven()
    begun = time.process_time()
    for number in range(10_000):
        driven.machine.add([f"a/{number}"], ReadOptions())
    commands = driven.commands()
    for command in commands:
        [topic] = command["topics"]
        driven.hear({"type": "subscribed", "id": command["id"], "selectors": [topic], "topics": [at(topic, 0, 0)]})
        driven.hear(publication(topic, 1))
    assert len(commands) == 10_000
    assert len(driven.notices()) == 30_000
    # Twenty times what it takes of a processor: what this finds is work that grows with the square.
    assert time.process_time() - begun < 10


def lines_for(selectors_of: Callable[[int], list[str]], count: int) -> int:
    """How many lines of code it takes to ask for so many, have them answered, and come back after a break."""
    driven = Driven()
    lines = 0

    def note(frame: object, event: str, argument: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        for number in range(count):
            for selector in selectors_of(number):
                driven.machine.add([selector], ReadOptions())
        for _ in range(2):
            asked = driven.settled()
            while asked:
                for command in asked:
                    plain = [topic for topic in command["topics"] if "+" not in topic and "#" not in topic]
                    topics = [at(topic, 0, 0) for topic in plain]
                    driven.hear({"type": "subscribed", "id": command["id"], "selectors": command["topics"], "topics": topics})
                asked = driven.settled()
            driven.breaks()
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize(
    "selectors_of",
    [
        lambda number: [f"a/{number}"],
        lambda number: [f"a/{number}/+"],
        lambda number: [f"a/{number}/+", f"a/{number}/x"],
        lambda number: [f"+/{number}/#"],
    ],
    ids=["topics", "patterns", "patterns and topics of theirs", "patterns that begin with a wildcard"],
)
def test_twice_as_many_that_do_not_overlap_cost_twice_as_much(selectors_of: Callable[[int], list[str]]) -> None:
    """100: work grew with the square of their number."""
    some, twice = lines_for(selectors_of, 100), lines_for(selectors_of, 200)
    assert twice <= some * 2.5, f"{some} lines became {twice}"

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
from tidegate.selector import selects
from tidegate.subscriptions import Complete, ReadOptions, Subscriptions
from tidegate.tracker import Placed

Wire = dict[str, Any]


class Driven:
    """Subscriptions on a connection that stands, with short ways to make events."""

    def __init__(self) -> None:
        self._last_id = 0
        self.machine = Subscriptions(self._next_id, ConnectionTimes(), lambda: 1.0)
        self.machine.handle_connected()
        self._numbers: dict[str, int] = {}
        self._selectors: list[list[str]] = []

    def add(self, selectors: list[str], options: ReadOptions) -> int:
        self._selectors.append(selectors)
        return self.machine.add(selectors, options)

    def hear(self, *events: Wire) -> None:
        """What does not say so is of one reading of its topic, of all subscriptions that select it."""
        for event in events:
            self.machine.handle_event(self._numbered(event), 0)

    def _numbered(self, event: Wire) -> Wire:
        if "topics" in event:
            return {**event, "topics": [self._numbered(each) for each in event["topics"]]}
        if "topic" not in event:
            return event
        topic = event["topic"]
        numbered = {"number": self._numbers.setdefault(topic, len(self._numbers)), **event}
        if "head" in event and "subscriptions" not in event:
            readers = [id for id, each in enumerate(self._selectors, 1) if any(selects(one, topic) for one in each)]
            numbered["subscriptions"] = readers
        return numbered

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
            if isinstance(what, Complete):
                lines.append(f"{notice.of} complete")
            elif isinstance(what, SubscriptionChange):
                lines.append(f"{notice.of} {what.state}" + (f" ({what.error.code})" if what.error else ""))
            else:
                lines.append(f"{notice.of} lag {what.ms}" if isinstance(what, Lag) else f"{notice.of} {line(what)}")
        return lines

    def live(self, selectors: list[str], *topics: Wire, **options: Any) -> int:
        """Subscribes and has it answered; what was told until then is dropped."""
        index = self.add(selectors, ReadOptions(**options))
        self.answer(*topics)
        self.notices()
        return index

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
    index = driven.add(["a"], ReadOptions())
    driven.answer(at("a", 0, 0))
    driven.machine.handle_disconnect()
    driven.machine.remove(index)
    assert driven.notices() == ["1 asked", "1 live", "1 waiting", "1 ended"]
    driven.machine.handle_connected()
    assert driven.commands() == []


def test_the_options_go_into_the_command_and_defaults_do_not() -> None:
    driven = Driven()
    options = {"conflation": "always", "interval_ms": 500, "priority": -3, "filter": "data > 1", "name": "desk"}
    driven.add(["a", "b/+"], ReadOptions(start={"last": 3}, delta="json-patch", **options))  # type: ignore[arg-type]
    driven.add(["c"], ReadOptions())
    first, second = driven.commands()
    asked = {"type": "subscribe", "id": 1, "subscription": 1, "topics": ["a", "b/+"], "from": {"last": 3}, "delta": "json-patch"}
    assert first == asked | options
    assert second == {"type": "subscribe", "id": 2, "subscription": 2, "topics": ["c"]}


@pytest.mark.parametrize(
    ("code", "expected", "wake_at"),
    [
        (4301, ["1 asked", "1 ended (4301)"], None),
        (4207, ["1 asked", "1 ended (4207)"], None),
        (4104, ["1 asked", "1 waiting (4104)"], 250),
        (4001, ["1 asked", "1 waiting (4001)"], 0),
    ],
)
def test_refused(code: int, expected: list[str], wake_at: float | None) -> None:
    driven = Driven()
    driven.add(["a"], ReadOptions())
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
    assert driven.notices() == ['1 update a/b 1 "abcdef"', "1 update a/b 2 2"]


@pytest.mark.parametrize("anew", [{"type": "topic", **at("a/b", 0, 0)}, {**gap("a/b", 0, reason="epoch")}])
def test_what_is_unfinished_when_the_numbering_begins_anew_holds_up_nothing(anew: Wire) -> None:
    driven = Driven()
    driven.live(["a/+"], at("a/b", 6, 6), start="now")
    driven.hear(piece(7, 0, "abc"), {**anew, "epoch": "e2"}, piece(7, 3, "def"), publication("a/b", 1))
    driven.hear(*(publication("a/b", number) for number in range(2, 9)))
    updates = [f"1 update a/b {number} {number}" for number in range(1, 9)]
    assert driven.notices() == ["1 gap a/b ..0 epoch", *updates]


def test_ended_by_the_server_because_its_reader_was_too_slow() -> None:
    driven = Driven()
    driven.live(["a", "b"], at("a", 0, 0), at("b", 0, 0))
    driven.hear({"type": "unsubscribed", "selectors": ["a"]}, publication("a", 1), publication("b", 1))
    assert driven.notices() == ["1 update b 1 1"]
    driven.hear({"type": "unsubscribed", "selectors": ["b"], "reason": "lagged"})
    assert driven.notices() == ["1 ended (4102)"]


def test_ended_before_it_was_answered_the_answer_means_nothing() -> None:
    driven = Driven()
    driven.machine.remove(driven.add(["a"], ReadOptions()))
    assert [command["type"] for command in driven.commands()] == ["subscribe", "unsubscribe"]
    driven.hear({"type": "subscribed", "id": 1, "selectors": ["a"], "topics": [at("a", 1, 0)]}, publication("a", 1))
    assert driven.notices() == ["1 asked", "1 ended"]


def test_the_snapshot_is_what_was_there_before_everything_else_is_an_update() -> None:
    driven = Driven()
    driven.live(["a/+"])
    driven.hear({"type": "topic", **at("a/x", 5, 4)}, publication("a/x", 5), publication("a/x", 6))
    driven.hear({"type": "topic", **at("a/new", 0, 0)}, publication("a/new", 1))
    assert driven.notices() == ["1 snapshot a/x 5 5", "1 update a/x 6 6", "1 update a/new 1 1"]


def test_news_is_no_snapshot_because_its_topic_was_described_again_before() -> None:
    driven = Driven()
    driven.live(["a/+"])
    driven.hear({"type": "topic", **at("a/new", 0, 0)}, {"type": "topic", **at("a/new", 2, 0)})
    driven.hear(publication("a/new", 1), publication("a/new", 2))
    assert driven.notices() == ["1 update a/new 1 1", "1 update a/new 2 2"]


def test_publications_of_a_history_are_no_snapshots() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 3), start={"last": 2})
    driven.hear(publication("a", 4), publication("a", 5))
    assert driven.notices() == ["1 update a 4 4", "1 update a 5 5"]


def test_lag_goes_to_all_and_the_unknown_to_nobody() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 0, 0))
    driven.hear({"type": "lag", "ms": 8}, {"type": "weather"}, publication("b", 1), gap("b", 3))
    driven.hear({"type": "refused", "code": 4200, "error": ""})
    assert driven.notices() == ["1 lag 8"]


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
    assert driven.notices() == [f"1 {line}" for line in expected]
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
    assert driven.notices() == ["1 live", *(f"1 {line}" for line in expected)]


def test_a_topic_that_came_into_being_meanwhile_is_news_not_a_snapshot() -> None:
    driven = Driven()
    driven.live(["a/+"])
    driven.breaks()
    driven.answer()
    driven.notices()
    driven.hear({"type": "topic", **at("a/x", 2, 0)}, publication("a/x", 1), publication("a/x", 2))
    assert driven.notices() == ["1 update a/x 1 1", "1 update a/x 2 2"]


def test_unsubscribed_while_there_is_no_connection_it_is_not_asked_for_again() -> None:
    driven = Driven()
    index = driven.live(["a"], at("a", 5, 5))
    driven.machine.handle_disconnect()
    driven.machine.remove(index)
    driven.machine.handle_connected()
    assert driven.commands() == []


def test_positions_of_an_earlier_run_are_resumed_from() -> None:
    driven = Driven()
    driven.add(["a", "b"], ReadOptions(positions={"a": {"epoch": "e1", "sequence": 3}}))
    driven.answer(at("a", 4, 3, recovered=True), at("b", 2, 1))
    driven.hear(publication("a", 4), publication("b", 2))
    told = ["1 resumed a whole, 1 missed", "1 update a 4 4", "1 snapshot b 2 2"]
    assert driven.notices() == ["1 asked", "1 live", *told]


@pytest.mark.parametrize("selectors", [["a", "b"], ["a/+"]])
def test_one_position_for_several_topics_is_refused_here(selectors: list[str]) -> None:
    with pytest.raises(ValueError, match="give `positions`"):
        Driven().machine.add(selectors, ReadOptions(start={"epoch": "e1", "sequence": 3}))


def test_what_is_described_from_beyond_where_it_was_asked_for_is_a_gap() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5))
    driven.breaks()
    driven.answer(at("a", 9, 7, recovered=True))
    assert driven.notices()[1:] == ["1 resumed a whole, 4 missed", "1 gap a 6..7 history"]


def test_each_is_asked_for_under_its_id_from_its_own_place_and_ended_by_it() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 9, 0), start="all")
    driven.hear(publication("a", 1))
    driven.machine.remove(driven.add(["+"], ReadOptions(filter="data > 9")))
    asked, ended = driven.commands()
    assert (asked["subscription"], asked["filter"], "positions" in asked) == (2, "data > 9", False)
    assert ended == {"type": "unsubscribe", "id": ended["id"], "subscription": 2}
    driven.breaks()
    [again] = driven.commands()
    assert (again["subscription"], again["from"], again["positions"]) == (1, "all", {"a": place(1)})


def test_what_comes_under_a_number_is_told_those_that_it_serves() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5, subscriptions=[1]))
    driven.live(["+"], filter="data > 9")
    driven.hear({"type": "topic", **at("a", 5, 4, number=9, subscriptions=[2])})
    driven.hear({**publication("a", 5), "number": 9}, publication("a", 6), {**publication("a", 10), "number": 9})
    assert driven.notices() == ["2 snapshot a 5 5", "1 update a 6 6", "2 update a 10 10"]


@pytest.mark.parametrize(
    ("start", "begun", "own"),
    [("snapshot", 4, ["2 snapshot a 5 5"]), ("now", 5, []), ({"last": 2}, 3, ["2 update a 4 4", "2 update a 5 5"])],
)
def test_whoever_joins_a_reading_is_told_its_own_start_and_the_other_nothing_twice(start: Any, begun: int, own: list[str]) -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5))
    driven.live(["+"], start=start)
    # The server takes the reading back to there.
    driven.hear({"type": "topic", **at("a", 6, begun)}, *(publication("a", number) for number in range(begun + 1, 7)))
    assert driven.notices() == [*own, "1 update a 6 6", "2 update a 6 6"]


def test_where_another_begins_moves_nobody_and_is_no_gap() -> None:
    driven = Driven()
    driven.live(["#"], start="all")
    driven.hear({"type": "topic", **at("x", 3, 0, subscriptions=[1])}, publication("x", 1))
    driven.live(["x"], at("x", 3, 3), start="now")
    driven.hear(*(publication("x", number) for number in (2, 3, 4)))
    assert driven.notices() == ["1 update x 2 2", "1 update x 3 3", "1 update x 4 4", "2 update x 4 4"]


def test_a_description_of_the_new_one_alone_takes_nobody_out_of_a_reading_and_moves_nobody() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5))
    driven.live(["+"], start="now")
    driven.hear({"type": "topic", **at("a", 5, 5, subscriptions=[2])}, publication("a", 6))
    driven.hear({"type": "topic", **at("a", 9, 9, subscriptions=[1, 2]), "recovered": True}, publication("a", 7))
    assert driven.notices() == ["1 update a 6 6", "2 update a 6 6", "1 update a 7 7", "2 update a 7 7"]


def test_a_number_that_is_given_to_another_topic_has_nothing_of_the_old_one_under_way() -> None:
    driven = Driven()
    index = driven.live(["a/b"], at("a/b", 5, 5))
    driven.hear(piece(6, 0, "ab"))
    driven.machine.remove(index)
    driven.live(["b"], at("b", 0, 0, number=0), start="now")
    driven.hear({**publication("b", 7), "number": 0})
    assert driven.notices() == ["2 update b 7 7"]


def test_who_joins_a_reading_has_what_is_under_way_begin_anew() -> None:
    driven = Driven()
    driven.live(["a/b"], at("a/b", 0, 0))
    driven.hear(piece(1, 0, "abc"))
    driven.live(["a/+"], start="now")
    driven.hear({"type": "topic", **at("a/b", 1, 0)}, piece(1, 3, "def"), piece(1, 0, "abc"), piece(1, 3, "def"))
    assert driven.notices() == ['1 update a/b 1 "abcdef"', '2 update a/b 1 "abcdef"']


def test_a_gap_is_told_each_from_where_it_is() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 5, 5))
    driven.live(["+"], start="all")
    driven.hear({"type": "topic", **at("a", 5, 2)}, gap("a", 7))
    assert driven.notices() == ["1 gap a 6..7 history", "2 gap a 3..7 history"]


def test_complete_is_told_once_for_each_answer_and_not_of_those_that_ended_or_are_asked_for_again() -> None:
    driven = Driven()
    index = driven.live(["a"], at("a", 1, 0))
    driven.hear(publication("a", 1), {"type": "complete", "subscription": 1}, {"type": "complete", "subscription": 7})
    assert driven.notices() == ["1 snapshot a 1 1", "1 complete"]
    driven.breaks()
    driven.hear({"type": "complete", "subscription": 1})
    driven.answer(at("a", 1, 1, recovered=True))
    driven.hear({"type": "complete", "subscription": 1})
    driven.machine.remove(index)
    driven.hear({"type": "complete", "subscription": 1})
    told = [line for line in driven.notices() if "resumed" not in line]
    assert told == ["1 live", "1 complete", "1 ended"]


def test_a_server_without_ids_is_told_of_what_does_not_overlap_and_the_rest_is_refused_here() -> None:
    driven = Driven()
    driven.machine.handle_disconnect()
    driven.machine.handle_connected(1_000, has_ids=False)
    driven.live(["a", "b/+"], at("a", 1, 1))
    driven.live(["c"], at("c", 1, 1))
    driven.hear(publication("a", 2), publication("c", 2))
    driven.add(["x", "#"], ReadOptions())
    assert driven.notices() == ["1 update a 2 2", "2 update c 2 2", "3 ended (4236)"]
    driven.machine.remove(1)
    [ended] = driven.commands()
    assert ended["topics"] == ["a", "b/+"] and "subscription" not in ended


def test_places_that_do_not_go_into_one_command_are_given_in_several() -> None:
    """98: the first break ended the subscription with 4206."""
    driven = Driven()
    driven.live(["a/+"])
    topics = [f"a/{number}" for number in range(3_000)]
    driven.hear(*({"type": "topic", **at(topic, 5, 5)} for topic in topics))
    driven.machine.handle_disconnect()
    driven.machine.handle_connected(100_000)
    driven.notices()
    given: dict[str, Wire] = {}
    open_ids: set[int] = set()
    while commands := driven.commands():
        for command in commands:
            assert len(json.dumps(command)) <= 100_000
            id = command["subscription"]
            if command["type"] == "unsubscribe":
                open_ids.remove(id)
                continue
            open_ids.add(id)
            given |= command["positions"]
            plain = [topic for topic in command["topics"] if topic != "a/+"]
            described = [at(topic, 6, 5, recovered=True, subscriptions=[1, id]) for topic in plain]
            driven.hear({"type": "subscribed", "id": command["id"], "selectors": command["topics"], "topics": described})
            if not plain:
                # All are read on; those whose place is not known yet from the oldest that there is.
                known = {topic: {"recovered": True} if topic in command["positions"] else {} for topic in topics}
                driven.hear(*({"type": "topic", **at(topic, 6, 5 if more else 6, subscriptions=[1], **more)} for topic, more in known.items()))
            driven.hear({"type": "complete", "subscription": id})
    assert given == dict.fromkeys(topics, place(5)) and open_ids == {1}
    driven.hear(*(publication(topic, 6) for topic in topics))
    told = [line for line in driven.notices() if "resumed" not in line]
    assert told[:2] == ["1 live", "1 complete"]
    assert sorted(told[2:]) == sorted(f"1 update {topic} 6 6" for topic in topics)


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
    assert driven.notices() == [f"1 update a {number} {json.dumps(value)}" for number, value in enumerate(values, 1)]


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
    assert sorted(told) == [f'{index} update a {number} {{"x": {number}}}' for index in (1, 2) for number in (1, 2, 3)]


def test_who_was_given_a_value_cannot_change_what_the_next_is_made_from() -> None:
    driven = Driven()
    driven.live(["a"], at("a", 0, 0), delta="json-patch")
    value = {"x": 1, "list": [1]}
    driven.hear(whole(1, value))
    value["list"] = []
    driven.hear(delta(2, 1, {"x": 2, "list": [1]}, REPLACED))
    assert driven.notices()[1] == '1 update a 2 {"x": 2, "list": [1]}'


def test_ten_thousand_of_them_are_asked_for_and_told_in_no_time() -> None:
    driven = Driven()
    begun = time.process_time()
    for number in range(10_000):
        driven.add([f"a/{number}"], ReadOptions())
    commands = driven.commands()
    for command in commands:
        [topic] = command["topics"]
        described = at(topic, 0, 0, subscriptions=[command["subscription"]])
        driven.hear({"type": "subscribed", "id": command["id"], "selectors": [topic], "topics": [described]})
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
                driven.add([selector], ReadOptions())
        for _ in range(2):
            for command in driven.commands():
                id = command["subscription"]
                plain = [topic for topic in command["topics"] if "+" not in topic and "#" not in topic]
                topics = [at(topic, 0, 0, number=id, subscriptions=[id]) for topic in plain]
                driven.hear({"type": "subscribed", "id": command["id"], "selectors": command["topics"], "topics": topics})
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

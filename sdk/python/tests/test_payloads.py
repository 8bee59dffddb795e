"""Pieces and deltas, put together before anything is told; the exact text of payloads."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from tidegate.payloads import Payloads
from tidegate.sources import events_with_sources


def piece(sequence: int, offset: int, data: bytes, total: int = 6, kind: str = "text", topic: str = "a") -> dict[str, Any]:
    place = {"sequence": sequence, "total": total, "offset": offset}
    return {"type": "fragment", "topic": topic, **place, "kind": kind, "base64": base64.b64encode(data).decode()}


def whole(sequence: int, text: str = "x", topic: str = "a") -> dict[str, Any]:
    return {"type": "publication", "topic": topic, "sequence": sequence, "text": text}


def gap(to: int) -> dict[str, Any]:
    return {"type": "gap", "topic": "a", "epoch": "e", "to": to, "reason": "lagged"}


def lines(payloads: Payloads, *wires: dict[str, Any]) -> list[list[str]]:
    """What each event makes whole, in short."""
    return [[_line(made) for made in payloads.take(wire["topic"], wire)] for wire in wires]


def _line(made: Any) -> str:
    if made is None:
        return "broken"
    if made["type"] == "gap":
        return f"gap {made['to']}"
    return f"{made['topic']} {made['sequence']} {made.get('text', made.get('bytes', made.get('data')))}"


def test_what_comes_after_an_unfinished_publication_waits_for_it() -> None:
    events = [piece(1, 0, b"abc"), whole(2), gap(3), whole(1, topic="b"), piece(4, 0, b"ghi"), piece(1, 3, b"def"), piece(4, 3, b"jkl")]
    assert lines(Payloads(), *events) == [[], [], [], ["b 1 x"], [], ["a 1 abcdef", "a 2 x", "gap 3"], ["a 4 ghijkl"]]


def test_pieces_of_two_publications_may_alternate() -> None:
    events = [piece(1, 0, b"abc"), piece(2, 0, b"ABC"), piece(2, 3, b"DEF"), piece(1, 3, b"def")]
    assert lines(Payloads(), *events) == [[], [], [], ["a 1 abcdef", "a 2 ABCDEF"]]


def test_a_first_piece_starts_over_and_what_was_before_does_not_wait() -> None:
    events = [piece(5, 0, b"abc"), whole(4), piece(5, 0, b"abcd"), piece(5, 4, b"ef")]
    assert lines(Payloads(), *events) == [[], ["a 4 x"], [], ["a 5 abcdef"]]


@pytest.mark.parametrize("bad", [piece(1, 4, b"ef"), piece(1, 3, b"\xff\xff\xff")])
def test_one_that_cannot_be_put_together_is_asked_for_again(bad: dict[str, Any]) -> None:
    payloads = Payloads()
    assert lines(payloads, piece(1, 0, b"abc"), whole(2), bad) == [[], [], ["broken"]]
    assert lines(payloads, piece(1, 3, b"def"), whole(1)) == [[], ["a 1 x"]]


def test_pieces_that_nobody_waits_for_any_more_are_dropped() -> None:
    payloads = Payloads()
    lines(payloads, piece(1, 0, b"abc"), piece(1, 0, b"abc", topic="b"))
    payloads.forget("a")
    assert lines(payloads, piece(1, 3, b"def"), piece(1, 3, b"def", topic="b")) == [[], ["b 1 abcdef"]]
    lines(payloads, piece(2, 0, b"abc"))
    payloads.clear()
    assert lines(payloads, whole(3)) == [["a 3 x"]]


def test_what_came_in_pieces_is_a_base_of_deltas() -> None:
    payloads = Payloads()
    payloads.expects_deltas = True
    source = b'{ "x":1.0}'
    assert lines(payloads, piece(1, 0, source, total=len(source), kind="json")) == [["a 1 {'x': 1.0}"]]
    patch = [{"op": "replace", "path": "/x", "value": 2}]
    delta = {"type": "delta", "topic": "a", "sequence": 2, "base": 1, "kind": "json", "crc": zlib.crc32(b'{"x":2}')}
    assert lines(payloads, {**delta, "patch": patch}) == [["a 2 {'x': 2}"]]
    assert lines(payloads, {**delta, "sequence": 3, "patch": patch}) == [["broken"]]


def test_a_damaged_vcdiff_is_asked_for_again() -> None:
    payloads = Payloads()
    payloads.expects_deltas = True
    lines(payloads, whole(1))
    delta = {"type": "delta", "topic": "a", "sequence": 2, "base": 1, "crc": 7, "kind": "text", "vcdiff": "1sPEAAAB"}
    assert lines(payloads, delta) == [["broken"]]


SOURCES = {
    '{"type":"publication","data":{ "x" : 1.0 }}': ['{ "x" : 1.0 }'],
    ' [ {"data":"a\\"}]," , "topic":"data"} , {"text":"\\"data\\":1"}, {"data": [1,{"data":2}] }, {} ] ': ['"a\\"}],"', None, '[1,{"data":2}]', None],
    "[]": [],
}


@pytest.mark.parametrize(("text", "sources"), SOURCES.items())
def test_events_come_with_the_exact_text_of_their_data(text: str, sources: list[str | None]) -> None:
    events = events_with_sources(text)
    assert [event.pop("source", None) for event in events] == sources
    parsed = json.loads(text)
    assert events == (parsed if isinstance(parsed, list) else [parsed])


@pytest.mark.parametrize("text", ["", "7", "[7]", "{", '{"a"}', '{"a":1,}', "[{},]", "[{}", '{"a":1}x', "[{}]]", "{1:2}", '{"a" 1}'])
def test_what_is_no_message_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        events_with_sources(text)

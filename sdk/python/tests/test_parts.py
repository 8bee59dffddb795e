"""The small parts: selectors, readers, payloads, canonical JSON, streams, handlers, addresses."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import random
from typing import Any

import pytest

from helpers import refused
from tidegate import LocalCode, Stream, advice_of
from tidegate.canonical import canonical
from tidegate.emitter import Emitter
from tidegate.protocol import decode_message, decode_payload, encode_command, encode_payload
from tidegate.selector import overlap, selects
from tidegate.websocket import web_socket_url


@pytest.mark.parametrize(
    ("selector", "topic", "expected"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a", False),
        ("a/+", "a/b", True),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("a/#", "a/b/c", True),
        ("a/#", "a", True),
        ("a/#", "ab", False),
        ("+/b", "a/b", True),
        ("#", "a", True),
        ("#", "$server", False),
        ("+/b", "$server/b", False),
        ("$server/#", "$server/b", True),
    ],
)
def test_selectors(selector: str, topic: str, expected: bool) -> None:
    assert selects(selector, topic) is expected


def slowly(one: list[str], other: list[str]) -> bool:
    """The slow way: level by level."""
    if one[:1] == ["#"] or other[:1] == ["#"]:
        return True
    if not one or not other:
        return one == other
    return (one[0] == other[0] or "+" in (one[0], other[0])) and slowly(one[1:], other[1:])


def test_whether_selectors_overlap() -> None:
    chosen = random.Random(7)

    def selector() -> str:
        levels = [chosen.choice(["a", "b", "+"]) for _ in range(chosen.randint(0, 3))]
        return "/".join(levels + ["#"] if not levels or chosen.random() < 0.3 else levels)

    for _ in range(3_000):
        one, other = selector(), selector()
        assert overlap(one, other) is slowly(one.split("/"), other.split("/")), f"{one} and {other}"
    for one, other, expected in [("#", "$x/y", False), ("$x/#", "$x/+", True), ("+/$x", "#", True), ("a/#", "a/$x/b", True)]:
        assert overlap(one, other) is overlap(other, one) is expected


@pytest.mark.parametrize(
    ("data", "kind", "wire"),
    [
        ({"x": [1, None]}, None, {"data": {"x": [1, None]}}),
        (None, None, {"data": None}),
        ("t", None, {"data": "t"}),
        ("t", "text", {"text": "t"}),
        (b"\x00\x01\xff", None, {"base64": "AAH/"}),
        (b"", "bytes", {"base64": ""}),
    ],
)
def test_payloads_there_and_back(data: Any, kind: Any, wire: dict[str, Any]) -> None:
    assert encode_payload(data, kind) == wire
    assert decode_payload(wire)[1] == data


@pytest.mark.parametrize(("data", "kind"), [(1, "text"), ("t", "bytes"), (1, "music")])
def test_what_is_not_of_its_kind_is_not_published(data: Any, kind: Any) -> None:
    with pytest.raises(TypeError, match="cannot publish"):
        encode_payload(data, kind)


@pytest.mark.parametrize("data", [math.nan, math.inf, object(), "\ud800"])
def test_what_json_cannot_say_is_not_sent(data: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode_command({"type": "publish", "data": data})


@pytest.mark.parametrize("text", ["no JSON", "null", "[7]", '"x"'])
def test_messages_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        decode_message(text)


# RFC 8785, appendix B and section 3.2.3, and the borders of ECMA-262's forms.
NUMBERS = {
    "0": "0",
    "-0.0": "0",
    "5e-324": "5e-324",
    "1.7976931348623157e308": "1.7976931348623157e+308",
    "9007199254740992": "9007199254740992",
    "295147905179352830000": "295147905179352830000",
    "1e21": "1e+21",
    "9.999999999999997e22": "9.999999999999997e+22",
    "0.000001": "0.000001",
    "1e-7": "1e-7",
    "-1.5e-9": "-1.5e-9",
    "333333333.33333329": "333333333.3333333",
    "1E30": "1e+30",
    "4.50": "4.5",
    "2e-3": "0.002",
    "100": "100",
    "1e2": "100",
}


@pytest.mark.parametrize(("given", "expected"), NUMBERS.items())
def test_canonical_numbers(given: str, expected: str) -> None:
    assert canonical(json.loads(given)).decode() == expected


def test_canonical_json_sorts_by_utf_16_and_escapes_little() -> None:
    given = '{"\\ufb33":1,"\\ud83d\\ude00":2,"\\u20ac":[true,null,{}],"\\r":"\\u000f\\u007f\\"\\\\/\\n"}'
    expected = '{"\\r":"\\u000f\x7f\\"\\\\/\\n","€":[true,null,{}],"😀":2,"\ufb33":1}'
    assert canonical(json.loads(given)).decode() == expected


def test_what_to_do_follows_from_the_range() -> None:
    codes = [4000, 4199, 4217, 4300, 4900]
    assert [advice_of(code) for code in codes] == [
        "retry-now",
        "retry-later",
        "change-first",
        "authenticate-first",
        "local",
    ]


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("ws://a:8470", "ws://a:8470/v1/ws"),
        ("http://a/", "ws://a/v1/ws"),
        ("https://a/other?x=1", "wss://a/other?x=1"),
    ],
)
def test_addresses(address: str, url: str) -> None:
    assert web_socket_url(address) == url


@pytest.mark.parametrize("address", ["localhost", "localhost:8470", "ftp://a", "ws://"])
def test_what_is_no_address_is_said_to_be_none(address: str) -> None:
    with pytest.raises(ValueError, match="it is not an address"):
        web_socket_url(address)


def stream(capacity: int = 2, when_full: Any = "fail") -> Stream[int]:
    return Stream(capacity, when_full, set())


async def test_a_full_stream_fails_after_what_it_holds() -> None:
    full = stream()
    for item in (1, 2, 3):
        full._push(item)
    assert [await anext(full), await anext(full)] == [1, 2]
    assert (await refused(anext(full))).code == LocalCode.BUFFER_FULL
    with pytest.raises(StopAsyncIteration):
        await anext(full)


async def test_or_forgets_the_oldest_and_counts_them() -> None:
    full = stream(when_full="drop-oldest")
    for item in (1, 2, 3, 4):
        full._push(item)
    full._finish()
    assert [item async for item in full] == [3, 4]
    assert full.dropped == 2


async def test_whoever_is_cancelled_while_waiting_loses_nothing() -> None:
    waited = stream()
    reader = asyncio.ensure_future(anext(waited))
    await asyncio.sleep(0)
    waited._push(1)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert await anext(waited) == 1


async def test_one_reader_at_a_time() -> None:
    waited = stream()
    reader = asyncio.ensure_future(anext(waited))
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="a stream for each reader"):
        await anext(waited)
    waited.close()
    with pytest.raises(StopAsyncIteration):
        await reader


async def test_a_stream_that_somebody_waits_for_is_held_and_not_collected() -> None:
    held: set[Stream[Any]] = set()
    reader = asyncio.ensure_future(anext(Stream[int](1, "fail", held)))
    await asyncio.sleep(0)
    gc.collect()
    [waited] = held
    waited._push(7)
    assert await reader == 7
    assert held == set()


@pytest.mark.parametrize(("capacity", "when_full"), [(0, "fail"), (1, "wait")])
def test_a_stream_that_cannot_be(capacity: int, when_full: Any) -> None:
    with pytest.raises(ValueError):
        stream(capacity, when_full)


def test_handlers_are_called_in_order_as_often_as_they_were_added_and_what_they_raise_is_reported() -> None:
    reported: list[str] = []
    heard: list[int] = []
    emitter = Emitter(frozenset({"x"}), lambda error, name: reported.append(f"{name}: {error!r}"))
    emitter.on("x", lambda event: 1 / 0)
    off = emitter.on("x", heard.append)
    emitter.on("x", heard.append)
    assert emitter.emit("x", 1)
    off()
    off()
    emitter.emit("x", 2)
    assert heard == [1, 1, 2]
    assert reported == ["x: ZeroDivisionError('division by zero')"] * 2


def test_handlers_that_nobody_would_call_or_await_are_refused() -> None:
    async def handler(event: object) -> None: ...

    emitter = Emitter(frozenset({"x"}), lambda error, name: None)
    with pytest.raises(TypeError, match="coroutine function"):
        emitter.on("x", handler)
    with pytest.raises(ValueError, match="no such event"):
        emitter.on("y", print)

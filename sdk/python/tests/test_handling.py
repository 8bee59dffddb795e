"""Requests and those who handle them, with the server in our hands. docs/protocol.md#requests."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest

from helpers import SHORT, refused, until
from tidegate import Reply, Request, Response, TidegateError
from tidegate.handlings import HandlingChange, Handlings, Topics
from tidegate.selector import rank
from wires import Wire, Wires


async def slow(request: Request) -> Any:
    await asyncio.sleep(0)
    return {"got": request.data}


class Held:
    """A handler that does not answer until it may."""

    def __init__(self) -> None:
        self.count = 0
        self.may_end = asyncio.Event()
        self.is_cancelled = False

    async def __call__(self, request: Request) -> str:
        self.count += 1
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        return "late"


ANSWERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a value": (lambda request: {"ok": request.data["n"]}, {"data": {"ok": 7}}),
    "bytes": (lambda request: b"\x00\xff", {"base64": "AP8="}),
    "text": (lambda request: Reply("yes", kind="text"), {"text": "yes"}),
    "nothing": (lambda request: None, {"data": None}),
    "a coroutine": (slow, {"data": {"got": {"n": 7}}}),
}


@pytest.mark.parametrize(("handler", "answer"), ANSWERS.values(), ids=ANSWERS)
async def test_what_a_handler_returns_is_the_answer(handler: Any, answer: dict[str, Any]) -> None:
    async with Wires() as wires:
        handling = wires.client.handle("orders/#", handler, concurrency=3)
        await handling.ready()
        [asked] = wires.wire.of("handle")
        assert (asked["topics"], asked["concurrency"], handling.state) == (["orders/#"], 3, "live")
        wires.wire.ask(7)
        [told] = await wires.wire.next_of("respond")
        assert {name: told[name] for name in ("request", *answer)} == {"request": 7, **answer}


async def test_a_handler_is_told_who_asks_for_what() -> None:
    async with Wires() as wires:
        heard: list[Request] = []
        await wires.client.handle("orders/+", heard.append).ready()
        wires.wire.ask(1, text="hello")
        await wires.wire.next_of("respond")
        assert heard == [Request("orders/new", "text", "hello", "s-1", "alice", 5.0)]


def decline(request: Request) -> None:
    raise TidegateError(4221, "cannot sell that: it is sold out")


def stumble(request: Request) -> None:
    raise KeyError("sold")




async def test_what_a_handler_raises_is_told_to_whoever_asked_and_mistakes_are_reported_here() -> None:
    async with Wires() as wires:
        reported: list[Exception] = []
        wires.client.on("error", reported.append)
        for topic, handler in (("a/decline", decline), ("a/stumble", stumble)):
            await wires.client.handle(topic, handler).ready()
        wires.wire.ask(1, "a/decline")
        wires.wire.ask(2, "a/stumble")
        told = await wires.wire.next_of("respond", count=2)
        assert [each.get("error") for each in told] == ["cannot sell that: it is sold out", "'sold'"]
        assert [type(error) for error in reported] == [KeyError]


@pytest.mark.parametrize(("given", "why"), [(object(), "not JSON serializable"), ("x" * 1_000, "message_bytes_max is 1000")])
async def test_an_answer_that_cannot_be_sent_is_an_error_for_whoever_asked(given: object, why: str) -> None:
    async with Wires() as wires:
        wires.client.on("error", lambda error: None)
        await wires.client.handle("orders/new", lambda request: given).ready()
        wires.wire.ask(1)
        [told] = await wires.wire.next_of("respond")
        assert why in told["error"] and told["request"] == 1
        assert wires.client.state == "connected"


@pytest.mark.parametrize(("code", "count"), [(4205, 2), (4222, 1)])
async def test_an_answer_that_the_server_refuses_is_an_error_for_whoever_asked(code: int, count: int) -> None:
    async with Wires() as wires:
        await wires.client.handle("orders/new", slow).ready()
        wires.wire.ask(1)
        [told] = await wires.wire.next_of("respond")
        wires.wire.hear({"type": "refused", "id": told["id"], "code": code, "error": "cannot take it"})
        wires.wire.ask(2)
        rest = (await wires.wire.next_of("respond", count=count + 1))[1:]
        assert rest[:-1] == [{"type": "respond", "request": 1, "error": "cannot take it"}] * (count - 1)
        assert rest[-1]["request"] == 2


async def test_registrations_are_renewed_after_a_break_and_late_answers_go_nowhere() -> None:
    async with Wires() as wires:
        held = Held()
        handling = wires.client.handle("orders/#", held)
        await handling.ready()
        wires.wire.ask(1)
        await until(lambda: held.count == 1)
        await wires.break_and_come_back()
        await handling.ready()
        assert [asked["topics"] for asked in wires.wire.of("handle")] == [["orders/#"]]
        # The new connection numbers its requests anew: an answer to the old one must not go to this one.
        wires.wire.ask(2)
        await until(lambda: held.count == 2)
        held.may_end.set()
        assert [told["request"] for told in await wires.wire.next_of("respond")] == [2]


async def test_the_most_specific_selector_handles_it() -> None:
    async with Wires() as wires:
        for selector in ("orders/#", "orders/+", "orders/new", "#"):
            await wires.client.handle(selector, lambda request, by=selector: by).ready()  # type: ignore[misc]
        for number, topic in enumerate(("orders/new", "orders/old", "orders/old/7", "else")):
            wires.wire.ask(number, topic)
        told = await wires.wire.next_of("respond", count=4)
        assert [each["data"] for each in told] == ["orders/new", "orders/+", "orders/#", "#"]


def test_selectors_are_ranked_level_by_level() -> None:
    selectors = ["#", "+/b/c", "a/#", "a/+/c", "a/b/#", "a/b/+", "a/b/c"]
    assert sorted(selectors, key=rank) == ["a/b/c", "a/b/+", "a/b/#", "a/+/c", "a/#", "+/b/c", "#"]


async def test_what_is_ended_still_answers_what_it_was_asked_and_is_free_to_be_handled_again() -> None:
    async with Wires() as wires:
        held = Held()
        with wires.client.handle("orders/new", held) as handling:
            await handling.ready()
            with pytest.raises(TidegateError, match="does already") as twice:
                wires.client.handle(["a", "orders/new"], held)
            assert twice.value.code == 4905
            wires.wire.ask(1)
            await until(lambda: held.count == 1)
        assert (handling.state, (await refused(handling.ready())).code) == ("ended", 4901)
        wires.wire.ask(2)
        [ended] = await wires.wire.next_of("respond")
        assert ended["request"] == 2 and "just been ended" in ended["error"]
        assert [told["topics"] for told in wires.wire.of("unhandle")] == [["orders/new"]]
        wires.client.handle("orders/new", held)
        held.may_end.set()
        answered = (await wires.wire.next_of("respond", count=2))[1]
        assert (answered["request"], answered["data"]) == (1, "late")
        await handling.wait_closed()


async def test_a_client_that_is_closed_cancels_its_handlers_also_of_what_has_ended() -> None:
    async with Wires() as wires:
        ended, going_on = Held(), Held()
        with wires.client.handle("orders/new", ended) as handling:
            await handling.ready()
            wires.wire.ask(1)
            await until(lambda: ended.count == 1)
        await wires.client.handle("orders/old", going_on).ready()
        wires.wire.ask(2, "orders/old")
        await until(lambda: going_on.count == 1)
        wires.client.close()
        await wires.client.wait_closed()
        assert (ended.is_cancelled, going_on.is_cancelled) == (True, True)
        assert wires.wire.of("respond") == [] and not wires.client._core.handlers


def test_what_was_asked_is_not_told_after_everything_has_ended() -> None:
    handlings = Handlings(itertools.count(1).__next__, SHORT, lambda: 0.5)
    handlings.add(Topics(["a"], None))
    handlings.handle_connected()
    handlings.handle_event({"type": "request", "request": 1, "topic": "a"}, 0)
    handlings.remove_all()
    told = [notice.what for notice in iter(handlings.poll_notice, None)]
    assert told == [HandlingChange("asked"), HandlingChange("ended")]


@pytest.mark.parametrize(("code", "state"), [(4301, "ended"), (4101, "live")])
async def test_a_refusal_ends_it_or_puts_it_off(code: int, state: str) -> None:
    async with Wires() as wires:
        wires.wire.send = _refusing(wires.wire, code)  # type: ignore[method-assign]
        handling = wires.client.handle("orders/new", slow)
        if state == "live":
            await handling.ready()
        else:
            assert (await refused(handling.ready())).code == code
        assert handling.state == state


def _refusing(wire: Wire, code: int) -> Any:
    send, refusals = wire.send, [code]

    def refuse_once(text: str) -> None:
        told = json.loads(text)
        if told["type"] == "handle" and refusals:
            wire.sent.append(told)
            wire.hear({"type": "refused", "id": told["id"], "code": refusals.pop(), "error": "cannot"})
        else:
            send(text)

    return refuse_once


async def test_a_request_for_a_handler_that_was_just_ended_is_passed_on_not_declined() -> None:
    async with Wires() as wires:
        ended = wires.client.handle("orders/#", lambda request: 1)
        other = wires.client.handle("bills/#", lambda request: 2)
        await ended.ready()
        await other.ready()
        ended.unhandle()
        wires.wire.ask(7)
        wires.wire.ask(8, topic="bills/new")
        told = {each["request"]: each for each in await wires.wire.next_of("respond", count=2)}
        assert told[7]["code"] == 4107 and "error" in told[7], told
        assert told[8]["data"] == 2, told


async def test_a_request_and_its_answer() -> None:
    async with Wires() as wires:
        asking = asyncio.ensure_future(
            wires.client.request("orders/new", {"n": 1}, timeout=2.5, session="s-2", principal="bob", filter="true", key="k")
        )
        [asked] = await wires.wire.next_of("request")
        options = {"timeout_ms": 2_500, "session": "s-2", "principal": "bob", "filter": "true", "key": "k"}
        assert {name: asked[name] for name in options} == options
        assert (asked["topic"], asked["data"]) == ("orders/new", {"n": 1})
        wires.wire.hear({"type": "response", "id": asked["id"], "from": "s-2", "text": "done"})
        assert await asking == Response("s-2", "text", "done")


@pytest.mark.parametrize("code", [4107, 4108, 4109, 4110, 4221])
async def test_what_goes_wrong_carries_its_code(code: int) -> None:
    async with Wires() as wires:
        asking = asyncio.ensure_future(wires.client.request("orders/new", 1))
        [asked] = await wires.wire.next_of("request")
        wires.wire.hear({"type": "refused", "id": asked["id"], "code": code, "error": "cannot"})
        assert (await refused(asking)).code == code


async def test_a_break_leaves_a_request_in_doubt_unless_it_has_a_key() -> None:
    async with Wires() as wires:
        plain = asyncio.ensure_future(wires.client.request("orders/new", "plain"))
        keyed = asyncio.ensure_future(wires.client.request("orders/new", "keyed", key="k"))
        await wires.wire.next_of("request", count=2)
        await wires.break_and_come_back()
        error = await refused(plain)
        assert error.code == 4900 and "what became of the request" in error.text
        [again] = await wires.wire.next_of("request")
        assert (again["data"], again["key"]) == ("keyed", "k")
        wires.wire.hear({"type": "response", "id": again["id"], "from": "s-2", "data": 1})
        assert (await keyed).data == 1


async def test_who_hears_nothing_is_not_left_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.responses.GRACE_SECONDS", 0.01)
    async with Wires() as wires:
        assert (await refused(wires.client.request("a", 1, timeout=0.01))).code == 4108
        assert (await refused(anext(wires.client.request_all("a", 1, timeout=0.01)))).code == 4108
        assert not wires.client._core.requests._waiting and not wires.client._core.calls._waiting


async def test_all_who_handle_it_answer() -> None:
    async with Wires() as wires:
        responses = wires.client.request_all("orders/all", 1, filter="true")
        first = asyncio.ensure_future(anext(responses))
        [asked] = await wires.wire.next_of("request")
        assert asked["all"] is True and asked["filter"] == "true"
        for session in ("s-1", "s-2"):
            wires.wire.hear({"type": "response", "id": asked["id"], "from": session, "data": 1, "more": True})
        wires.wire.hear({"type": "responded", "id": asked["id"], "count": 2, "missing": 1})
        assert (await first).session == "s-1"
        assert [response.session async for response in responses] == ["s-2"]
        assert responses.missing == 1
        assert [response async for response in responses] == []


async def test_what_is_broken_off_between_the_answers_is_an_error() -> None:
    async with Wires() as wires:
        responses = wires.client.request_all("orders/all", 1)
        first = asyncio.ensure_future(anext(responses))
        [asked] = await wires.wire.next_of("request")
        wires.wire.hear({"type": "response", "id": asked["id"], "from": "s-1", "data": 1, "more": True})
        assert (await first).session == "s-1"
        wires.wire.handlers.handle_close(None, "broken")
        assert (await refused(anext(responses))).code == 4900


async def test_a_command_that_is_too_large_is_refused_here() -> None:
    async with Wires() as wires:
        error = await refused(wires.client.publish("a", "é" * 500))
        assert error.code == 4206 and "message_bytes_max is 1000" in error.text
        assert (await refused(wires.client.subscribe(["a" * 200 + str(n) for n in range(5)]).ready())).code == 4206
        assert (await refused(wires.client.handle("b" * 1_000, slow).ready())).code == 4206
        assert wires.client.state == "connected" and len(wires.opened) == 1
        assert wires.wire.of("publish", "subscribe", "handle") == []

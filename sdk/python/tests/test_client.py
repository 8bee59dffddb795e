"""The client against the real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from helpers import Heard, client_of, enters, refused
from proxy import Proxy
from server import Server
from tidegate import Client, Gap, Publication, TidegateError


def writer(server: Server, **options: Any) -> Client:
    return client_of(server.url, token="writer", **options)


async def test_what_is_published_arrives(server: Server) -> None:
    async with writer(server) as client:
        subscription = client.subscribe("p/a", priority=3, interval_ms=10)
        stream = subscription.stream()
        await subscription.ready()
        published = await client.publish("p/a", {"x": 1})
        await client.publish("p/a", "hello", kind="text")
        await client.publish("p/a", b"\x01\xff")
        items = [await anext(stream) for _ in range(3)]
        assert [(item.sequence, item.kind, item.data) for item in items] == [
            (1, "json", {"x": 1}),
            (2, "text", "hello"),
            (3, "bytes", b"\x01\xff"),
        ]
        assert items[0].position == {"epoch": published.epoch, "sequence": published.sequence}


async def test_a_loop_takes_a_long_history_without_overflowing(server: Server) -> None:
    publications = [{"topic": "long/a", "data": number} for number in range(5_000)]
    await asyncio.to_thread(server.publish, {"publications": publications}, "writer")
    async with writer(server) as client:
        seen = []
        async for publication in client.subscribe("long/a", start="all"):
            seen.append(publication.data)
            if len(seen) == 5_000:
                break
        assert seen == list(range(5_000))


async def test_a_loop_is_told_of_gaps_in_their_place_if_it_wants_to_be(server: Server) -> None:
    async with writer(server) as client:
        for number in range(1, 5):
            await client.publish("short/gaps", number)
        stream = client.subscribe("short/gaps", start="all").stream(gaps=True)
        gap, third = await anext(stream), await anext(stream)
        assert isinstance(gap, Gap) and (gap.from_, gap.to) == (1, 2)
        assert not isinstance(third, Gap) and third.data == 3


async def test_a_stream_that_forgets_says_how_many_and_one_that_nobody_holds_is_fed_no_more(server: Server) -> None:
    async with writer(server) as client:
        with client.subscribe("left/a") as subscription:
            heard = Heard(subscription)
            stream = subscription.stream(capacity=1, when_full="drop-oldest")
            await subscription.ready()
            await client.publish("left/a", 1)
            await client.publish("left/a", 2)
            await heard.take(2)
            assert ((await anext(stream)).data, stream.dropped) == (2, 1)
            del stream
            assert len(subscription._streams) == 0
        assert subscription.state == "ended"


async def test_filters_choose(server: Server) -> None:
    async with writer(server) as client:
        heard = Heard(client.subscribe("filtered/a", filter="data.price > 100.0", start="all"))
        for price in (99.5, 100.5, 50.0, 101.0):
            await client.publish("filtered/a", {"price": price})
        assert await heard.take(2) == ['update filtered/a 2 {"price": 100.5}', 'update filtered/a 4 {"price": 101.0}']


async def test_history_page_by_page(server: Server) -> None:
    async with writer(server) as client:
        for number in range(1, 6):
            await client.publish("short/a", number)
        page = await client.history("short/a")
        assert (page.head, page.start) == (5, 0)
        assert [(kept.sequence, kept.data) for kept in page.publications] == [(4, 4), (5, 5)]
        assert page.publications[0].time_ms > 1.6e12
        last = await client.history("short/a", last=1)
        assert [kept.sequence for kept in last.publications] == [5]
        since = await client.history("short/a", since=page.publications[0].time_ms)
        assert since.publications == page.publications
        assert 0 < await client.ping() < 10_000


REFUSED: dict[str, tuple[Callable[[Client], Any], int]] = {
    "a bad topic": (lambda client: client.publish("a//b", 1), 4202),
    "a topic of the server": (lambda client: client.publish("$server/x", 1), 4303),
    "a payload that is too large": (lambda client: client.publish("a", "x" * 1_050_000), 4205),
    "another sequence than expected": (lambda client: client.publish("never", 1, expect=3), 4217),
    "a bad selector": (lambda client: client.subscribe("a/#/b").ready(), 4203),
    "too many selectors": (lambda client: client.subscribe([f"m/{n}" for n in range(21)]).ready(), 4207),
    "a bad filter": (lambda client: client.subscribe("a", filter="data >").ready(), 4220),
    "an unknown conflation": (lambda client: client.subscribe("a", conflation=cast(Any, "sideways")).ready(), 4200),
    "a loop over nothing that may be read": (lambda client: anext(aiter(client.subscribe("a/#/b"))), 4203),
}


@pytest.mark.parametrize(("attempt", "code"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_command_carries_its_code_and_costs_nothing_else(
    server: Server, attempt: Callable[[Client], Any], code: int
) -> None:
    async with writer(server) as client:
        error = await refused(attempt(client))
        assert error.code == code
        assert error.text.startswith("cannot ")
        await client.ping()


async def test_what_cannot_be_sent_is_said_at_once_and_costs_nothing_else(server: Server) -> None:
    async with writer(server) as client:
        with pytest.raises(TypeError):
            await client.publish("p/a", object())
        with pytest.raises(ValueError):
            await client.publish("p/a", float("nan"))
        await client.ping()


async def test_publishing_without_a_token_that_may(server: Server) -> None:
    async with client_of(server.url) as client:
        error = await refused(client.publish("p/a", 1))
        assert (error.code, error.advice) == (4301, "authenticate-first")


async def test_a_bad_token_stops_the_client_and_everything_that_waits(server: Server) -> None:
    async with client_of(server.url, token="wrong") as client:
        stream = client.subscribe("p/a").stream()
        waits = [client.ready(), client.publish("p/a", 1), anext(stream)]
        assert [error.code for error in await asyncio.gather(*map(refused, waits))] == [4300] * 3
        assert client.state == "stopped"
        assert (await refused(client.ping())).code == 4300


async def test_a_client_that_stopped_can_be_started_again_and_its_subscriptions_go_on(server: Server) -> None:
    is_signed_in = False

    def token(_: TidegateError | None) -> str:
        if is_signed_in:
            return "writer"
        raise TidegateError(4300, "cannot sign in: the password is wrong; give another")

    client = client_of(server.url, token=token)
    errors: asyncio.Queue[Exception] = asyncio.Queue()
    client.on("error", errors.put_nowait)
    async with client:
        assert "sign in" in str(await errors.get())
        subscription = client.subscribe("p/a")
        assert (await refused(subscription.ready())).code == 4300
        assert (await refused(anext(subscription.stream()))).code == 4300
        is_signed_in = True
        client.connect()
        await subscription.ready()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_provider_is_asked_again_until_one_is_good(server: Server, is_async: bool) -> None:
    asked: list[int | None] = []

    def token(refused: TidegateError | None) -> str:
        asked.append(None if refused is None else refused.code)
        if len(asked) == 2:
            raise OSError("the network is down")
        return "writer" if len(asked) == 4 else "wrong"

    async def token_later(refused: TidegateError | None) -> str:
        return token(refused)

    async with client_of(server.url, token=token_later if is_async else token) as client:
        await client.publish("p/a", 1)
    assert asked == [None, 4300, 4300, 4300]


async def test_a_subscription_that_nobody_watches_is_told_by_the_client_or_the_event_loop(server: Server) -> None:
    async with writer(server) as client:
        told: asyncio.Queue[Any] = asyncio.Queue()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.put_nowait(context["exception"]))
        client.subscribe("a/#/b")
        assert (await told.get()).code == 4203
        client.on("error", lambda error: told.put_nowait(("by the client", error)))
        client.subscribe("a/#/b")
        assert (await told.get())[0] == "by the client"


async def test_handlers_that_raise_cost_nobody_anything(server: Server) -> None:
    async with writer(server) as client:
        errors: asyncio.Queue[Exception] = asyncio.Queue()
        client.on("error", errors.put_nowait)
        subscription = client.subscribe("throw/a")
        subscription.on("update", lambda publication: 1 / 0)
        heard = Heard(subscription)
        await subscription.ready()
        await client.publish("throw/a", 1)
        assert isinstance(await errors.get(), ZeroDivisionError)
        assert await heard.take(1) == ["update throw/a 1 1"]


async def test_a_handler_that_ends_its_subscription_is_not_called_again(server: Server) -> None:
    async with writer(server) as client:
        for number in (1, 2, 3):
            await client.publish("end/a", number)
        subscription = client.subscribe("end/a", start="all")
        called: list[int] = []

        def end(publication: Publication) -> None:
            called.append(publication.sequence)
            subscription.unsubscribe()

        subscription.on("update", end)
        stream = subscription.stream()
        assert [publication.sequence async for publication in stream] == [1]
        await client.ping()
        assert called == [1]


async def test_a_cut_connection_is_resumed_what_was_missed_follows_once(server: Server) -> None:
    async with await Proxy.open(server.port) as proxy, client_of(proxy.url) as client:
        subscription = client.subscribe("cut/+")
        heard = Heard(subscription)
        await subscription.ready()
        await asyncio.to_thread(server.publish, {"topic": "cut/a", "data": 1}, "writer")
        assert await heard.take(1) == ["update cut/a 1 1"]
        proxy.cut()
        await enters(client, "waiting")
        await asyncio.to_thread(server.publish, {"topic": "cut/a", "data": 2}, "writer")
        await asyncio.to_thread(server.publish, {"topic": "cut/b", "data": 1}, "writer")
        proxy.mend()
        client.nudge()
        lines = ["resumed cut/a whole, 1 missed", "update cut/a 2 2", "update cut/b 1 1"]
        assert sorted(await heard.take(3)) == lines


async def test_the_server_is_killed_and_started_again_durable_topics_go_on_others_begin_anew(server: Server) -> None:
    async with writer(server) as client:
        kept, memory = Heard(client.subscribe("kept/a")), Heard(client.subscribe("memory/a"))
        await client.publish("kept/a", 1)
        await client.publish("memory/a", 1)
        await kept.take(1)
        await memory.take(1)
        await asyncio.to_thread(server.kill)
        await enters(client, "waiting")
        waiting = asyncio.ensure_future(client.publish("kept/a", 2))
        await asyncio.to_thread(server.start)
        client.nudge()
        published = await waiting
        assert (published.sequence, published.level) == (2, "disk")
        assert await kept.take(2) == ["resumed kept/a whole, 0 missed", "update kept/a 2 2"]
        assert await memory.take(2) == ["resumed memory/a not whole, 0 missed", "gap memory/a ..0 epoch"]


async def test_positions_that_were_stored_are_resumed_from(server: Server) -> None:
    async with writer(server) as first:
        await first.publish("kept/again", 1)
        async for publication in first.subscribe("kept/again"):
            stored = json.dumps({publication.topic: publication.position})
            break
        await first.publish("kept/again", 2)
    async with writer(server) as second:
        heard = Heard(second.subscribe("kept/again", positions=json.loads(stored)))
        assert await heard.take(2) == ["resumed kept/again whole, 1 missed", "update kept/again 2 2"]


async def test_a_server_that_stops_in_order_is_left_alone_as_long_as_it_asked_and_found_again(server: Server) -> None:
    async with writer(server) as client:
        await client.ready()
        changes: list[Any] = []
        client.on("state", changes.append)
        await asyncio.to_thread(server.stop)
        await enters(client, "waiting")
        # It asks to be left alone for a second; up to a quarter more is ours.
        assert changes[0].error.code == 4000
        assert 1_000 <= changes[0].retry_in_ms <= 1_250
        await asyncio.to_thread(server.start)
        client.nudge()
        await client.ready()


async def test_when_a_node_is_gone_the_next_one_serves(server: Server) -> None:
    async with client_of(["ws://127.0.0.1:1", server.url]) as client:
        await client.ready()


async def test_a_handshake_that_is_refused_is_told(server: Server) -> None:
    client = client_of(f"{server.url}/nothing/here")
    errors: asyncio.Queue[Any] = asyncio.Queue()
    client.on("state", lambda change: errors.put_nowait(change.error) if change.error else None)
    async with client:
        assert (await errors.get()).code == 4212


def test_an_address_that_is_none_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="cannot connect"):
        Client([])
    with pytest.raises(ValueError, match="cannot connect"):
        Client(["ws://localhost:8470", "localhost"])


@pytest.mark.parametrize("selectors", [("long/breath", "long/breath"), ("long/+", "+/breath"), ("long/breath", "long/#")])
async def test_what_overlaps_is_told_all_that_it_asked_for_although_it_was_asked_for_in_one_breath(
    server: Server, selectors: tuple[str, str]
) -> None:
    published = [{"topic": "long/breath", "data": "x" * 100}] * 2_000
    results = await asyncio.to_thread(server.publish, {"publications": published}, "writer")
    newest = results["results"][-1]["sequence"]
    async with client_of(server.url, token="writer") as client:
        await client.ready()
        # The second, had it been asked for at once, would have restarted what they share after the newest.
        first, second = client.subscribe(selectors[0], start="all"), client.subscribe(selectors[1], start="now")
        told = first.stream(capacity=10_000)
        await second.ready()
        assert [(await anext(told)).sequence for _ in range(newest)] == list(range(1, newest + 1))

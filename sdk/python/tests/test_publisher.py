"""Publishing without a connection, and reading a history page by page."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers import client_of, refused
from proxy import Proxy
from server import Server
from tidegate import Client, Draft, Published, Publisher, TidegateError

Respond = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[None]]


def http(url: str) -> str:
    return url.replace("ws", "http", 1)


class Scripted:
    """A server that answers each request in turn, and the last ones as the last."""

    def __init__(self, *answers: Respond) -> None:
        self._answers = answers
        self.keys: list[list[str | None]] = []
        self.connections = 0
        self.now = self.most = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                assert length is not None and head.startswith(b"POST /v1/publish ")
                body = json.loads(await reader.readexactly(int(length[1])))
                self.keys.append([each.get("key") for each in body["publications"]])
                self.now += 1
                self.most = max(self.most, self.now)
                await self._answers[min(len(self.keys), len(self._answers)) - 1](body, writer)
                self.now -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.transport.abort()


@asynccontextmanager
async def scripted(*answers: Respond) -> AsyncIterator[tuple[str, Scripted]]:
    made = Scripted(*answers)
    listening = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}", made
    listening.close()


async def answer(writer: asyncio.StreamWriter, status: int, body: str, fields: str = "") -> None:
    writer.write(f"HTTP/1.1 {status} Any\r\n{fields}content-length: {len(body)}\r\n\r\n{body}".encode())


def kept(topic: str) -> dict[str, Any]:
    return {"topic": topic, "epoch": "e", "sequence": 1, "level": "memory"}


async def takes(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    await answer(writer, 200, json.dumps({"results": [kept(each["topic"]) for each in body["publications"]]}))


async def breaks(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def is_silent(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    pass


def refuses(status: int, code: int, fields: str = "") -> Respond:
    async def respond(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        await answer(writer, status, json.dumps({"code": code, "error": "because"}), fields)

    return respond


async def is_a_proxy(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    await answer(writer, 502, "bad gateway")


async def is_another_server(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
    await answer(writer, 200, json.dumps({"ok": True}))


async def test_what_it_publishes_is_kept_where_it_says_once_for_each_key(server: Server) -> None:
    async with Publisher(http(server.url), token="writer") as publisher:
        first = await publisher.publish("pub/a", {"x": 1})
        assert (first.topic, first.sequence, first.level) == ("pub/a", 1, "memory")
        second = await publisher.publish("pub/a", "text", kind="text", key="two", expect=1)
        assert await publisher.publish("pub/a", "text", kind="text", key="two", expect=1) == second
        assert (await refused(publisher.publish("pub/a", 3, expect=7))).code == 4217
        outcomes = await publisher.publish_all([Draft("pub/a", b"\x01\xff"), Draft("p//a", 4), Draft("pub/b", 5)])
        assert [each.sequence if isinstance(each, Published) else each.code for each in outcomes] == [3, 4202, 1]


async def test_many_go_in_as_few_requests_as_they_fit_into_in_order(server: Server) -> None:
    drafts = [Draft("pub/many", number) for number in range(2_500)]
    async with Publisher(http(server.url), token="writer") as publisher:
        outcomes = await publisher.publish_all(drafts)
        assert [each.sequence for each in outcomes if isinstance(each, Published)] == list(range(1, 2_501))
    async with scripted(takes) as (url, made), Publisher(url) as publisher:
        await publisher.publish_all([*drafts, Draft("pub/large", "x" * 600_000)])
        assert [len(keys) for keys in made.keys] == [1_000, 1_000, 500, 1]


@pytest.mark.parametrize("respond", [breaks, refuses(503, 4000), refuses(503, 4106), is_a_proxy, is_another_server])
async def test_it_is_sent_again_with_the_same_key_after(respond: Respond) -> None:
    async with scripted(respond, takes) as (url, made), Publisher(url) as publisher:
        assert await publisher.publish("a", 1) == Published("a", "e", 1, "memory")
        [[first], [second]] = made.keys
        assert first is not None and re.fullmatch("[0-9a-f]{32}-1", first) and second == first


async def test_of_several_only_those_are_sent_again_that_were_put_off() -> None:
    async def half(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        results = [kept("a"), {"code": 4105, "error": "later"}, {"code": 4301, "error": "no"}]
        await answer(writer, 200, json.dumps({"results": results}))

    async with scripted(half, takes) as (url, made), Publisher(url) as publisher:
        outcomes = await publisher.publish_all([Draft(topic, 1, key=topic) for topic in "abc"])
        assert [each.topic if isinstance(each, Published) else each.code for each in outcomes] == ["a", "b", 4301]
        assert made.keys == [["a", "b", "c"], ["b"]]


async def test_without_a_key_what_may_have_been_kept_is_not_sent_again() -> None:
    async with scripted(breaks, takes) as (url, made), Publisher(url, keys=False) as publisher:
        assert (await refused(publisher.publish("a", 1))).code == 4900
        assert made.keys == [[None]]


# One that is put off is not asked again before its time is up: in the middle of a request nobody knows.
LATER = refuses(503, 4001, "retry-after: 60\r\n")


@pytest.mark.parametrize(("respond", "code"), [(None, 4906), (LATER, 4906), (is_silent, 4900)])
async def test_it_is_given_up_when_its_time_is_up(respond: Respond | None, code: int) -> None:
    async with scripted(respond or is_silent) as (url, _):
        async with Publisher(url if respond else "http://127.0.0.1:1", publish_timeout=2) as publisher:
            assert (await refused(publisher.publish("a", 1))).code == code


async def test_a_refusal_ends_it_at_once() -> None:
    async with scripted(refuses(403, 4301)) as (url, made), Publisher(url) as publisher:
        assert (await refused(publisher.publish("a", 1))).code == 4301
        assert len(made.keys) == 1


async def test_a_token_that_is_refused_is_asked_for_again(server: Server) -> None:
    given: list[TidegateError | None] = []

    async def token(why: TidegateError | None) -> str:
        given.append(why)
        return "stale" if len(given) == 1 else "writer"

    async with Publisher(http(server.url), token=token) as publisher:
        assert (await publisher.publish("pub/token", 1)).sequence == 1
    assert [why and why.code for why in given] == [None, 4300]


async def test_so_many_requests_are_made_at_a_time_over_connections_that_stay_and_so_many_wait() -> None:
    async def slow(body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.02)
        await takes(body, writer)

    async with scripted(slow) as (url, made), Publisher(url, requests_max=2, queue_max=10) as publisher:
        tasks = [asyncio.ensure_future(publisher.publish("a", number)) for number in range(13)]
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        codes = [each.code for each in outcomes if isinstance(each, TidegateError)]
        assert codes and set(codes) == {4902} and len(outcomes) - len(codes) >= 10
        assert made.most == 2 and made.connections == 2


async def test_a_network_that_is_cut_for_a_while_costs_time_only(server: Server) -> None:
    async with await Proxy.open(server.port) as proxy, client_of(server.url) as reader:
        async with Publisher(http(proxy.url), token="writer", publish_timeout=15) as publisher:
            tasks = [asyncio.ensure_future(publisher.publish("pub/cut", number)) for number in range(50)]
            await asyncio.sleep(0)
            proxy.cut()
            await asyncio.sleep(0.3)
            proxy.mend()
            await asyncio.gather(*tasks)
        page = await reader.history("pub/cut")
        assert sorted(each.data for each in page.publications) == list(range(50))


async def test_a_history_is_read_page_by_page_as_far_as_it_went_when_it_began(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with client_of(server.url) as reader, Publisher(http(server.url), token="writer") as publisher:
        await publisher.publish_all([Draft("long/pages", number) for number in range(25)])
        asked: list[dict[str, Any]] = []
        history = reader.history

        async def noted(topic: str, **options: Any) -> Any:
            asked.append(options)
            return await history(topic, **options)

        monkeypatch.setattr(reader, "history", noted)
        read: list[Any] = []
        async for each in reader.read_history("long/pages", after=5, page_size=10):
            read.append(each.data)
            if len(read) == 1:
                await publisher.publish("long/pages", "more")
            # No page is fetched before the one before was read.
            assert len(asked) == (len(read) + 9) // 10
        assert read == list(range(5, 25))
        assert [each async for each in reader.read_history("long/none")] == []


async def test_a_numbering_that_begins_anew_while_it_is_read_is_an_error(server: Server) -> None:
    async with client_of(server.url, token="writer") as client:
        for number in range(3):
            await client.publish("pub/anew", number)
        reading = client.read_history("pub/anew", page_size=1)
        await anext(reading)
        server.kill()
        await asyncio.to_thread(server.start)
        again = {"publications": [{"topic": "pub/anew", "data": number} for number in range(3)]}
        await asyncio.to_thread(server.publish, again, "writer")
        assert (await refused(anext(reading))).code == 4907


async def test_a_subscription_may_start_at_a_time_also_where_another_reads_the_topic(server: Server) -> None:
    async with client_of(server.url, token="writer") as client:
        await client.publish("long/since", "old")
        await asyncio.sleep(0.02)
        since = (await client.history("long/since")).publications[0].time_ms + 1
        for data in ("new", "newer"):
            await client.publish("long/since", data)
        for _ in range(2):
            stream = client.subscribe("long/since", start={"since": since}).stream()
            assert [(await anext(stream)).data, (await anext(stream)).data] == ["new", "newer"]


def test_a_client_shows_nothing_of_how_it_works_inside() -> None:
    inner = {"drive", "refuse", "needs_sources", "handle_event", "handle_room", "respond", "authorize", "report", "unhandle"}
    assert inner.isdisjoint(dir(Client))

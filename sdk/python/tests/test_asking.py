"""Requests and those who handle them, through the real server. docs/protocol.md#requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from helpers import client_of, enters, never, refused, until
from proxy import Proxy
from server import Server
from tidegate import Client, Reply, Request, Response, TidegateError, TransportName

TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "sse", "poll"])


@pytest.fixture
def server() -> Iterator[Server]:
    """One for each test: all of them handle the same topics."""
    with Server() as server:
        yield server


def answer(request: Request) -> Any:
    if request.data == "decline":
        raise TidegateError(4221, "cannot sell that: it is sold out")
    if request.kind == "text":
        return Reply(request.data.upper(), kind="text")
    return request.data if request.kind == "bytes" else {"got": request.data, "topic": request.topic}


@TRANSPORTS
async def test_a_request_is_answered(server: Server, transport: TransportName) -> None:
    async with client_of(server.url, transports=[transport]) as shop, client_of(server.url, transports=[transport]) as client:
        await shop.handle("orders/#", answer).ready()
        assert (await client.request("orders/new", [1, "é"])).data == {"got": [1, "é"], "topic": "orders/new"}
        assert (await client.request("orders/new", b"\x00\xff")).data == b"\x00\xff"
        loud = await client.request("orders/new", "loud", kind="text")
        assert (loud.kind, loud.data) == ("text", "LOUD")
        declined = await refused(client.request("orders/new", "decline"))
        assert declined.code == 4221 and "sold out" in declined.text
        assert (await refused(client.request("else", 1))).code == 4107
        many = await asyncio.gather(*(client.request("orders/many", number) for number in range(50)))
        assert [response.data["got"] for response in many] == list(range(50))


async def test_all_who_handle_it_answer(server: Server) -> None:
    async with client_of(server.url, name="one") as one, client_of(server.url, name="two") as two:
        await one.handle("count", lambda request: 1).ready()
        await two.handle("count", lambda request: 2).ready()
        responses = one.request_all("count", 0)
        assert sorted([response.data async for response in responses]) == [1, 2]
        assert responses.missing == 0
        some = one.request_all("count", 0, filter='client == "two"')
        assert [response.data async for response in some] == [2]


async def test_what_is_too_late_gone_or_busy_is_told_by_its_code(server: Server) -> None:
    async with client_of(server.url) as client:
        slow, busy = client_of(server.url), client_of(server.url)
        await slow.handle("slow", lambda request: never()).ready()
        assert (await refused(client.request("slow", 1, timeout=0.2))).code == 4108
        # Another handler: the shard that asked the first may count it as busy for a moment more.
        await busy.handle("busy", lambda request: never(), concurrency=2).ready()
        asking = [asyncio.ensure_future(refused(client.request("busy", number))) for number in range(4)]
        await until(lambda: [task.result().code for task in asking if task.done()] == [4110, 4110])
        busy.close()
        assert sorted(error.code for error in await asyncio.gather(*asking)) == [4109, 4109, 4110, 4110]
        slow.close()
        await slow.wait_closed()
        await busy.wait_closed()


@TRANSPORTS
async def test_handlers_are_there_again_after_a_break(transport: TransportName) -> None:
    # A session that was polled is gone for the server only after a while: until then it may be asked, in vain.
    with Server("[limits]\npoll_ms = 200\npoll_silence_ms = 400\n") as server:
        async with (
            await Proxy.open(server.port) as proxy,
            client_of(server.url) as client,
            client_of(proxy.url, transports=[transport]) as shop,
        ):
            handling = shop.handle("orders/#", answer)
            await handling.ready()
            proxy.cut()
            await enters(shop, "waiting")
            assert handling.state == "waiting"
            proxy.mend()
            shop.nudge()
            await handling.ready()
            assert (await first_answer(client)).data["got"] == 1


async def first_answer(client: Client) -> Response:
    while True:
        try:
            return await client.request("orders/new", 1, timeout=0.2)
        except TidegateError as error:
            assert error.code in (4108, 4109)


async def test_a_request_with_a_key_is_carried_out_once_over_a_break(server: Server) -> None:
    async with await Proxy.open(server.port) as proxy, client_of(proxy.url) as client, client_of(server.url) as shop:
        asked: list[Any] = []
        arrived, may_answer = asyncio.Event(), asyncio.Event()

        async def note(request: Request) -> int:
            asked.append(request.data)
            arrived.set()
            await may_answer.wait()
            return len(asked)

        await shop.handle("orders/new", note).ready()
        keyed = asyncio.ensure_future(client.request("orders/new", "keyed", key="k"))
        await arrived.wait()
        proxy.cut()
        await enters(client, "waiting")
        proxy.mend()
        client.nudge()
        await client.ready()
        may_answer.set()
        assert ((await keyed).data, asked) == (1, ["keyed"])

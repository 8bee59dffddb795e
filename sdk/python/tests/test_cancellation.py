"""Tasks that are cancelled, and clients that are closed, in every state: what waits ends, nothing is left behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from helpers import client_of, enters, refused
from proxy import Proxy
from server import Server
from tidegate import Client, TidegateError

STATES = ["idle", "authorizing", "opening", "greeting", "connected", "waiting"]


@asynccontextmanager
async def client_in(state: str, server: Server) -> AsyncIterator[Client]:
    """A client that stays in `state`, because whatever it needs next does not come."""
    proxy = await Proxy.open(server.port)
    # Takes connections, and says nothing: a handshake without an answer.
    silent = await asyncio.start_server(lambda reader, writer: held.append(writer), "127.0.0.1", 0)
    held: list[asyncio.StreamWriter] = []
    never = asyncio.Event()

    async def token(refused: TidegateError | None) -> str:
        if state == "authorizing":
            await never.wait()
        return "writer"

    if state == "greeting":
        proxy.mute()
    url = f"ws://127.0.0.1:{silent.sockets[0].getsockname()[1]}" if state == "opening" else proxy.url
    client = client_of(url, token=token)
    if state == "greeting":
        # The handshake is answered, the greeting is not.
        proxy.mend()
        client.on("state", lambda change: proxy.mute() if change.state == "greeting" else None)
    if state != "idle":
        client.connect()
    if state in ("connected", "waiting"):
        await client.ready()
    if state == "connected":
        proxy.mute()
    if state == "waiting":
        proxy.cut()
        await enters(client, "waiting")
    await enters(client, state)
    yield client
    client.close()
    await client.wait_closed()
    await proxy.close()
    for writer in held:
        writer.close()
    silent.close()


WAITS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "publish": lambda client: client.publish("kept/cancel", 1),
    "keyed publish": lambda client: client.publish("kept/cancel", 1, key="k"),
    "history": lambda client: client.history("kept/past"),
    "acknowledge": lambda client: client.acknowledge("desk", {}),
    "ping": lambda client: client.ping(),
    "subscription": lambda client: client.subscribe("kept/cancel").ready(),
    "loop": lambda client: anext(client.subscribe("kept/cancel").stream()),
}


async def tasks_left() -> set[asyncio.Task[object]]:
    """What runs besides the test, when all that was ready to end did."""
    await asyncio.sleep(0)
    own = asyncio.current_task()
    return {task for task in asyncio.all_tasks() if task is not own}


@pytest.mark.parametrize("state", STATES)
async def test_what_is_cancelled_ends_at_once_and_the_rest_goes_on(server: Server, state: str) -> None:
    async with client_in(state, server) as client:
        first = [asyncio.ensure_future(wait(client)) for wait in WAITS.values()]
        kept = asyncio.ensure_future(client.ping())
        await asyncio.sleep(0)
        for task in first:
            task.cancel()
        results = await asyncio.gather(*first, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError] * len(first)
        assert len(client._core.calls._waiting) == 1 and len(client._core.requests._waiting) == 1, "only the ping is left"
        assert not kept.done()
        kept.cancel()


@pytest.mark.parametrize("state", STATES)
async def test_a_client_that_is_closed_ends_all_waiting_and_leaves_nothing_behind(server: Server, state: str) -> None:
    before = await tasks_left()
    async with client_in(state, server) as client:
        stream = client.subscribe("kept/cancel").stream()
        waits = [asyncio.ensure_future(refused(wait(client))) for name, wait in WAITS.items() if name != "loop"]
        await asyncio.sleep(0)
        client.close()
        codes = [error.code for error in await asyncio.gather(*waits)]
        # What was sent is in doubt.
        doubtful = [4900, 4900] if state == "connected" else [4901, 4901]
        assert codes == [*doubtful, 4901, 4901, 4901, 4901]
        assert [publication async for publication in stream] == []
        assert client.state == "idle"
        await client.wait_closed()
        assert (await refused(client.ping())).code == 4901
    assert await tasks_left() == before


async def test_a_cancelled_publish_that_was_not_sent_is_not_sent_later(server: Server) -> None:
    async with client_in("waiting", server) as client:
        publish = asyncio.ensure_future(client.publish("kept/never", 1))
        await asyncio.sleep(0)
        publish.cancel()
        await asyncio.gather(publish, return_exceptions=True)
        assert not client._core.requests._unsent
    async with client_of(server.url, token="writer") as other:
        assert (await other.history("kept/never")).head == 0


async def test_a_task_that_reads_in_a_loop_can_be_cancelled_and_leaving_the_client_cleans_up(server: Server) -> None:
    async def read() -> None:
        async with client_of(server.url, token="writer") as client:
            async for _ in client.subscribe("kept/loop"):
                began.set()

    before = await tasks_left()
    began = asyncio.Event()
    reader = asyncio.ensure_future(read())
    async with client_of(server.url, token="writer") as other:
        await other.publish("kept/loop", 1)
        await began.wait()
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
    assert await tasks_left() == before


async def test_a_timeout_around_a_loop_loses_nothing(server: Server) -> None:
    async with client_of(server.url, token="writer") as client:
        subscription = client.subscribe("kept/timeout")
        stream = subscription.stream()
        await subscription.ready()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(stream), 0.001)
        await client.publish("kept/timeout", 1)
        assert (await anext(stream)).data == 1


async def test_closed_and_connected_again_in_one_breath_and_by_its_own_handler(server: Server) -> None:
    client = client_of(server.url)
    async with client:
        await client.ready()
        client.close()
        client.connect()
        await client.ready()
        client.on("state", lambda change: client.close() if change.state == "connected" else None)
        client.close()
        client.connect()
        await enters(client, "opening")
        await enters(client, "idle")

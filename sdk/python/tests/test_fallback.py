"""Several ways to a server: which are tried, in which order, and what is remembered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from helpers import client_of, enters, never, until
from server import Server
from test_http import WELCOME, http_server, response
from tidegate import ConnectionTimes, TransportHandlers
from tidegate.fallback import REMEMBERED_SECONDS, FallbackPolicy

NAMES = ("websocket", "sse", "poll")


class Held:
    """A transport in our hands."""

    def __init__(self, name: str, handlers: TransportHandlers) -> None:
        self.name = name
        self.handlers = handlers
        self.was_reached = True
        self.sent: list[str] = []
        self.is_closed = False

    def send(self, text: str) -> None:
        self.sent.append(text)

    def close(self) -> None:
        self.is_closed = True

    async def wait_closed(self) -> None:
        pass


class Heard:
    """What the client would be told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def handle_open(self) -> None:
        self.told.append("open")

    def handle_text(self, text: str) -> None:
        self.told.append(text)

    async def wait_for_room(self) -> None:
        pass

    def handle_close(self, code: int | None, text: str, retry_after_ms: float = 0) -> None:
        self.told.append((code, text))


class Network:
    """A fallback over held transports, and a clock."""

    def __init__(self, patience_seconds: float = 60) -> None:
        self.tried: list[Held] = []
        self.now = 0.0
        self.fallback = FallbackPolicy([(name, self._maker(name)) for name in NAMES], patience_seconds, lambda: self.now)

    def _maker(self, name: str) -> Any:
        def make(address: str, handlers: TransportHandlers) -> Held:
            self.tried.append(Held(name, handlers))
            return self.tried[-1]

        return make

    def open(self) -> tuple[Any, Heard]:
        heard = Heard()
        return self.fallback.open("a", heard), heard

    def names(self) -> list[str]:
        return [held.name for held in self.tried]

    def spoil(self, code: int | None = None) -> None:
        """The way in use does not get through."""
        self.tried[-1].handlers.handle_close(code, "spoiled")

    def hear(self) -> None:
        self.tried[-1].handlers.handle_open()
        self.tried[-1].handlers.handle_text("[]")


async def test_the_next_way_is_told_what_the_one_before_was() -> None:
    network = Network()
    walk, heard = network.open()
    network.tried[0].handlers.handle_open()
    walk.send("hello")
    network.spoil()
    network.tried[1].handlers.handle_open()
    assert network.tried[1].sent == ["hello"]
    network.tried[0].handlers.handle_text("late")
    network.tried[1].handlers.handle_text("[]")
    assert (heard.told, walk.name) == (["open", "[]"], "sse")


async def test_when_all_fail_that_is_one_failure_and_the_next_attempt_begins_with_the_best() -> None:
    network = Network()
    _, heard = network.open()
    for _ in NAMES:
        network.spoil()
    assert heard.told == [(None, "websocket: spoiled; sse: spoiled; poll: spoiled")]
    network.open()
    assert network.names() == [*NAMES, "websocket"]


async def test_what_got_through_is_remembered_for_an_hour() -> None:
    network = Network()
    network.open()
    network.spoil()
    network.hear()
    network.now = REMEMBERED_SECONDS - 1
    network.open()
    network.now = REMEMBERED_SECONDS
    network.open()
    assert network.names() == ["websocket", "sse", "sse", "websocket"]


async def test_a_way_that_worked_before_is_given_another_attempt() -> None:
    network = Network()
    network.open()
    network.hear()
    _, heard = network.open()
    network.spoil()
    assert (network.names(), heard.told) == (["websocket"] * 2, [(None, "spoiled")])
    network.open()
    network.spoil()
    assert network.names() == ["websocket"] * 3 + ["sse"]


@pytest.mark.parametrize("code", [4000, 4100, 4300, 4302])
async def test_what_the_server_itself_says_is_no_reason_for_another_way(code: int) -> None:
    network = Network()
    _, heard = network.open()
    network.spoil(code)
    assert (network.names(), heard.told) == (["websocket"], [(code, "spoiled")])


async def test_where_nothing_listens_no_other_way_is_tried() -> None:
    network = Network()
    _, heard = network.open()
    network.tried[0].was_reached = False
    network.spoil()
    assert (network.names(), heard.told) == (["websocket"], [(None, "spoiled")])


async def test_a_way_that_hangs_is_passed_over() -> None:
    network = Network(patience_seconds=0.01)
    walk, heard = network.open()
    await until(lambda: len(network.tried) == 3)
    assert [held.is_closed for held in network.tried] == [True, True, False]
    network.hear()
    # As long as a way may take, and more: time is what must not matter any more.
    await asyncio.sleep(0.03)
    assert (heard.told, walk.name) == (["open", "[]"], "poll")


async def test_a_client_finds_the_way_that_gets_through() -> None:
    """As behind a proxy that knows no `Upgrade`, and holds back responses until they end."""
    asked: list[str] = []

    async def answer(writer: asyncio.StreamWriter, line: str, body: bytes) -> None:
        asked.append(line.split()[1].split("?")[0])
        if asked[-1] == "/v1/ws":
            writer.write(response(400, {"code": 4210, "error": "cannot serve it as a page"}))
            writer.close()
        elif asked[-1] == "/v1/sse" or len(asked) > 3:
            await never()
        else:
            writer.write(response(200, WELCOME | {"id": json.loads(body)["id"]}, {"type": "polled", "batch": 1}))

    async with http_server(answer) as url, client_of(url, times=ConnectionTimes(open_ms=2_000)) as client:
        await client.ready()
        assert (client.transport, asked[:3]) == ("poll", ["/v1/ws", "/v1/sse", "/v1/poll"])


async def test_the_best_way_is_taken_where_it_gets_through(server: Server) -> None:
    async with client_of(server.url) as client:
        assert client.transport is None
        await client.ready()
        assert client.transport == "websocket"


async def test_a_dead_server_is_knocked_at_with_growing_pauses() -> None:
    async with client_of("ws://127.0.0.1:1") as client:
        pauses: list[float | None] = []
        client.on("state", lambda change: pauses.append(change.retry_in_ms) if change.error else None)
        while len(pauses) < 4:
            await enters(client, "waiting")
            await enters(client, "opening")
        assert (pauses[-1] or 0) > (pauses[0] or 0)


@pytest.mark.parametrize("names", [[], ["telegraph"]])
def test_a_way_that_there_is_not_is_refused(names: Any) -> None:
    with pytest.raises(ValueError, match="cannot travel with"):
        client_of("ws://a", transports=names)



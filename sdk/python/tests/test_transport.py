"""Another transport than WebSocket: what the client asks of one, and what it does with a strange one."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from helpers import SHORT, enters
from tidegate import Client, TransportHandlers


class Held:
    """A transport in our hands: what was sent over it, and the ways to answer."""

    name = "held"

    def __init__(self, url: str, handlers: TransportHandlers) -> None:
        self.url = url
        self.handlers = handlers
        self.sent: list[dict[str, Any]] = []
        self.is_closed = False

    def send(self, text: str) -> None:
        self.sent.append(json.loads(text))

    def close(self) -> None:
        self.is_closed = True

    async def wait_closed(self) -> None:
        assert self.is_closed

    def hear(self, *events: dict[str, Any]) -> None:
        self.handlers.handle_text(json.dumps(events))

    def welcome(self) -> None:
        self.handlers.handle_open()
        self.hear({"type": "welcome", "id": self.sent[0]["id"]})


def client_over(transports: list[Held]) -> Client:
    def open_transport(url: str, handlers: TransportHandlers) -> Held:
        transports.append(Held(url, handlers))
        return transports[-1]

    return Client(["one:", "two:"], times=SHORT, transport=open_transport)


async def test_hello_asks_for_batches_and_commands_wait_for_the_welcome() -> None:
    transports: list[Held] = []
    async with client_over(transports) as client:
        client.subscribe("a")
        [held] = transports
        held.handlers.handle_open()
        assert [(sent["type"], sent.get("batch")) for sent in held.sent] == [("hello", True)]
        held.hear({"type": "welcome", "id": 1})
        await client.ready()
        assert held.sent[-1]["topics"] == ["a"]
    assert held.is_closed


async def test_handlers_that_are_added_after_subscribing_hear_the_first_change_of_state() -> None:
    transports: list[Held] = []
    async with client_over(transports) as client:
        transports[0].welcome()
        states: list[str] = []
        client.subscribe("a").on("state", lambda change: states.append(change.state))
        await asyncio.sleep(0)
        assert states == ["asked"]


async def test_what_comes_after_closing_or_from_a_transport_that_was_left_means_nothing() -> None:
    transports: list[Held] = []
    async with client_over(transports) as client:
        told: list[int] = []
        subscription = client.subscribe("a")
        subscription.on("update", lambda publication: told.append(publication.sequence))
        [first] = transports
        first.welcome()
        await client.ready()
        publications = [{"type": "publication", "topic": "a", "sequence": n, "data": 0} for n in range(1, 5)]
        topics = [{"topic": "a", "epoch": "e", "head": 0, "start": 0}]
        subscribed = {"type": "subscribed", "id": first.sent[-1]["id"], "selectors": ["a"], "topics": topics}
        closing = {"type": "closing", "code": 4000, "error": ""}
        first.hear(subscribed, publications[0], closing, publications[1])
        first.hear(publications[2])
        await enters(client, "opening")
        first.hear(publications[3])
        first.handlers.handle_close(None, "late")
        assert told == [1]
        assert subscription.positions == {"a": {"epoch": "e", "sequence": 1}}
        assert [(held.url, held.is_closed) for held in transports] == [("one:", True), ("two:", False)]


@pytest.mark.parametrize("text", ["no JSON", "null", "[7, null]", "{}", '{"type": "gap"}'])
async def test_a_server_that_makes_no_sense_is_left_for_the_next(text: str) -> None:
    transports: list[Held] = []
    async with client_over(transports) as client:
        transports[0].welcome()
        transports[0].handlers.handle_text(text)
        assert client.state == "waiting"
        await enters(client, "opening")
        assert [held.url for held in transports] == ["one:", "two:"]


async def test_a_transport_that_raises_when_opened_or_when_something_is_sent_is_one_that_broke() -> None:
    class Broken(Held):
        def send(self, text: str) -> None:
            raise OSError("also mine")

    attempts: list[Broken] = []

    def open_transport(url: str, handlers: TransportHandlers) -> Broken:
        attempts.append(Broken(url, handlers))
        if len(attempts) == 1:
            raise OSError("mine")
        asyncio.get_running_loop().call_soon(handlers.handle_open)
        return attempts[-1]

    errors: list[str] = []
    both = asyncio.Event()
    client = Client("any:", times=SHORT, transport=open_transport)
    client.on("state", lambda change: errors.append(str(change.error)) if change.error else None)
    client.on("state", lambda change: both.set() if len(errors) == 2 else None)
    async with client:
        await both.wait()
    assert "cannot open any:: mine" in errors[0] and "cannot send: also mine" in errors[1]

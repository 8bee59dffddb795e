"""Transports over plain HTTP: what they make of bytes, of lost answers, and of sessions that end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from helpers import Heard, client_of, enters, errors_of, never, until
from proxy import Proxy
from server import Server
from tidegate import TransportName
from tidegate.base_transport import retry_after_ms
from tidegate.http import http_url
from tidegate.sse import EventReader

OVER_HTTP: list[TransportName] = ["sse", "poll"]


def test_events_are_read_as_they_come() -> None:
    text = ": sign of life\n\nretry: 1000\n\nid: 7\nevent: gap\ndata: {\"a\":\"\u2028é\"}\r\n\r\ndata:1\ndata: 2\n\ndata: ha"
    whole = EventReader().take(text.encode())
    assert whole == ['{"a":"\u2028é"}', "1\n2"]
    reader = EventReader()
    by_bytes = [event for byte in text.encode() for event in reader.take(bytes([byte]))]
    assert by_bytes == whole
    assert reader.take(b"lf\n\n") == ["half"]


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("ws://localhost:8470", "http://localhost:8470/v1/sse"),
        ("https://example.org/", "https://example.org/v1/sse"),
        ("wss://example.org/push/v1/ws?token=t", "https://example.org/push/v1/sse?token=t"),
    ],
)
def test_the_address_is_told_from_that_of_the_web_socket(address: str, url: str) -> None:
    assert http_url(address, "/sse") == url


@pytest.mark.parametrize("address", ["ftp://a", "ws://", "ws://a/elsewhere"])
def test_an_address_that_does_not_tell_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="cannot connect to"):
        http_url(address, "/sse")


@pytest.mark.parametrize(
    ("value", "pause"),
    [(None, 0), ("7", 7_000), ("soon", 0), ("Wed, 21 Oct 2015 07:28:00 GMT", 0), ("Fri, 31 Dec 9999 23:59:59 GMT", 1e9)],
)
def test_how_long_to_stay_away_is_told_in_seconds_or_as_a_date(value: str | None, pause: float) -> None:
    assert min(retry_after_ms(value), 1e9) == pause


@pytest.mark.parametrize("transport", ["websocket", "sse", "poll"])
async def test_a_refusal_says_how_long_to_stay_away_over_every_transport(transport: TransportName) -> None:
    async def answer(writer: asyncio.StreamWriter, head: str, body: bytes) -> None:
        text = b'{"code":4113,"error":"too many"}'
        head = f"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write(head.encode() + text)

    async with http_server(answer) as address:
        async with client_of(address, transports=[transport]) as client:
            pauses: list[float] = []
            client.on("state", lambda change: pauses.append(change.retry_in_ms) if change.retry_in_ms else None)
            await until(lambda: bool(pauses))
            assert 60_000 <= pauses[0] <= 75_000


Answer = Callable[[asyncio.StreamWriter, str, bytes], Awaitable[None]]


@asynccontextmanager
async def http_server(answer: Answer) -> AsyncIterator[str]:
    """A server that answers each request as the test says; its address."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := (await reader.readuntil(b"\r\n\r\n")).decode():
                length = [line for line in head.lower().split("\r\n") if line.startswith("content-length:")]
                body = await reader.readexactly(int(length[0].split(":")[1])) if length else b""
                await answer(writer, head.split("\r\n")[0], body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def response(status: int, *records: dict[str, Any], kind: str = "application/x-ndjson") -> bytes:
    body = "".join(json.dumps(record) + "\n" for record in records)
    head = f"HTTP/1.1 {status} Any\r\ncontent-type: {kind}\r\ncontent-length: {len(body.encode())}\r\n\r\n"
    return (head + body).encode()


WELCOME = {"type": "welcome", "id": 1, "key": "k-1"}


async def test_a_poll_whose_answer_is_lost_is_sent_again_with_the_same_batch() -> None:
    asked: list[str] = []

    async def answer(writer: asyncio.StreamWriter, line: str, body: bytes) -> None:
        if line.startswith("POST /v1/poll"):
            return writer.write(response(200, WELCOME, {"type": "polled", "batch": 1}))
        asked.append(line.split()[1])
        if len(asked) == 1:
            return writer.transport.abort()
        if len(asked) == 2:
            # Half of it: what it holds must not be told twice.
            writer.write(response(200, {"type": "lag", "ms": 7}, {"type": "polled", "batch": 2})[:-9])
            return writer.close()
        if len(asked) == 3:
            return writer.write(response(200, {"type": "lag", "ms": 7}, {"type": "polled", "batch": 2}))
        await never()

    async with http_server(answer) as url, client_of(url, transports=["poll"]) as client:
        lags: list[int] = []
        client.on("lag", lambda lag: lags.append(lag.ms))
        await until(lambda: len(asked) == 4)
        assert (client.state, lags) == ("connected", [7])
        batch = "/v1/poll?session=k-1&batch="
        assert asked == [f"{batch}1", f"{batch}1", f"{batch}1", f"{batch}2"]


async def test_commands_wait_for_the_answer_to_those_before_and_then_go_together() -> None:
    happened: list[Any] = []
    may_answer = asyncio.Event()

    async def answer(writer: asyncio.StreamWriter, line: str, body: bytes) -> None:
        if line.startswith("POST /v1/poll"):
            return writer.write(response(200, WELCOME, {"type": "polled", "batch": 1}))
        if line.startswith("GET"):
            await never()
        assert line.startswith("POST /v1/commands?session=k-1 ")
        commands = [command["data"] for command in json.loads(body)]
        happened.append(commands)
        await may_answer.wait()
        happened.append("answered")
        writer.write(response(202, {"accepted": len(commands)}))

    async with http_server(answer) as url, client_of(url, transports=["poll"]) as client:
        await client.ready()
        publishes = [asyncio.ensure_future(client.publish("a", 0))]
        await until(lambda: happened == [[0]])
        publishes += [asyncio.ensure_future(client.publish("a", number)) for number in (1, 2, 3)]
        # They are said at once, and go to the transport.
        await asyncio.sleep(0)
        assert not client._core.requests._unsent
        may_answer.set()
        await until(lambda: len(happened) == 4)
        assert happened == [[0], "answered", [1, 2, 3], "answered"]
        for publish in publishes:
            publish.cancel()


async def test_what_is_no_tidegate_is_said_so() -> None:
    async def answer(writer: asyncio.StreamWriter, line: str, body: bytes) -> None:
        writer.write(response(200, kind="text/html"))

    async with http_server(answer) as url, client_of(url, transports=["sse"]) as client:
        errors = errors_of(client)
        await enters(client, "waiting")
        assert "no Tidegate server" in str(errors[0])


@pytest.mark.parametrize("transport", OVER_HTTP)
async def test_a_bad_token_stops_the_client(server: Server, transport: TransportName) -> None:
    async with client_of(server.url, token="wrong", transports=[transport]) as client:
        await enters(client, "stopped")
        assert client.transport is None


@pytest.mark.parametrize("transport", OVER_HTTP)
async def test_large_publications_arrive_in_their_order(server: Server, transport: TransportName) -> None:
    async with client_of(server.url, token="writer", transports=[transport]) as client:
        stream = client.subscribe(f"long/{transport}").stream()
        await client.ready()
        assert client.transport == transport
        values = [f"{number}\u2028\x85" + "x" * 50_000 * (number % 5) for number in range(20)]
        await asyncio.gather(*(client.publish(f"long/{transport}", value) for value in values))
        assert [(await anext(stream)).data for _ in values] == values


async def test_a_session_that_ended_is_opened_again_from_the_last_positions() -> None:
    with Server("[limits]\npoll_ms = 200\npoll_silence_ms = 300\n") as server:
        async with await Proxy.open(server.port) as proxy, client_of(proxy.url, transports=["poll"]) as client:
            heard = Heard(client.subscribe("a/b"))
            await client.ready()
            await client.publish("a/b", 1)
            assert await heard.take(1) == ["update a/b 1 1"]
            errors = errors_of(client)
            # Nothing gets through for as long as the server waits; then the next poll does.
            proxy.cut()
            server.publish({"topic": "a/b", "data": 2})
            await until(lambda: server.metric("tidegate_sessions") == 0)
            proxy.mend()
            assert await heard.take(2) == ["resumed a/b whole, 1 missed", "update a/b 2 2"]
            assert [error.code for error in errors] == [4002]


async def test_a_response_that_went_on_for_long_enough_is_asked_for_again_at_once() -> None:
    with Server("[limits]\nstream_ms_max = 300\n") as server:
        async with client_of(server.url, transports=["sse"]) as client:
            heard = Heard(client.subscribe("a/b", start="now"))
            errors = errors_of(client)
            await client.ready()
            for number in range(1, 3):
                # One while a response goes on, and one just when it has ended.
                await client.publish("a/b", 2 * number - 1, key=f"during {number}")
                await until(lambda: len(errors) >= number)
                await client.publish("a/b", 2 * number, key=f"between {number}")
            updates: list[str] = []
            while len(updates) < 4:
                updates += [line for line in await heard.take(1) if line.startswith("update")]
            assert updates == [f"update a/b {number} {number}" for number in range(1, 5)]
            assert {error.code for error in errors} == {4003}

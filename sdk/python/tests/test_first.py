"""First connections that fail: what is told and logged; and publications that are not waited for for ever."""

from __future__ import annotations

import math
import re

import pytest

from helpers import client_of, enters, refused
from proxy import Proxy
from server import Server
from tidegate import OpenTransport, poll_transport, sse_transport, web_socket_transport

NOBODY = "ws://127.0.0.1:1"
FOREIGN = "http://localhost:5173"
CONFIG = ""


def token(_: object) -> str:
    return "any"


@pytest.mark.parametrize(
    "transport",
    [
        web_socket_transport(origin=FOREIGN),
        sse_transport(headers={"Origin": FOREIGN}),
        poll_transport(headers={"Origin": FOREIGN}),
    ],
    ids=["websocket", "sse", "poll"],
)
async def test_a_handshake_that_is_refused_for_its_origin_ends_the_wait(
    server: Server, transport: OpenTransport, caplog: pytest.LogCaptureFixture
) -> None:
    async with client_of(server.url, token=token, transport=transport) as client:
        client.on("error", lambda error: None)
        for waiting in (client.ready(), client.publish("a", 1), client.subscribe("a").ready()):
            error = await refused(waiting)
            assert error.code == 4302 and f'origins = ["{FOREIGN}"]' in error.text
        assert client.state == "stopped"
    [logged] = caplog.messages
    assert logged.startswith(f"no connection to {server.url}: ") and logged.endswith("(4302); it is not tried again")


async def test_one_that_fails_is_logged_once_with_the_address_the_reason_and_what_comes_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with client_of([NOBODY, f"{NOBODY}1"]) as client:
        for _ in range(3):
            await enters(client, "waiting")
            await enters(client, "opening")
    [record] = caplog.records
    assert (record.name, record.levelname) == ("tidegate", "WARNING")
    wanted = rf"no connection to {NOBODY}: .*\(4904\); it is tried again until there is a connection"
    assert re.fullmatch(wanted, record.getMessage())


async def test_a_break_after_a_first_connection_is_not_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async with await Proxy.open(server.port) as proxy, client_of(proxy.url) as client:
        await client.ready()
        proxy.cut()
        await enters(client, "waiting")
    assert caplog.messages == []


async def test_a_publication_that_no_connection_comes_for_is_given_up_and_never_sent(server: Server) -> None:
    async with await Proxy.open(server.port) as proxy, client_of(proxy.url, publish_timeout=0.05) as client:
        proxy.cut()
        error = await refused(client.publish("late/a", 1, key="k"))
        assert error.code == 4906 and "within 0.05 s" in error.text
        proxy.mend()
        await client.publish("late/a", 2, timeout=math.inf)
        page = await client.history("late/a")
        assert [kept.data for kept in page.publications] == [2]


async def test_one_whose_answer_does_not_come_is_given_up_and_may_have_been_kept(server: Server) -> None:
    async with await Proxy.open(server.port) as proxy, client_of(proxy.url) as client, client_of(server.url) as other:
        await client.ready()
        proxy.mute()
        error = await refused(client.publish("late/b", 1, timeout=0.2))
        assert error.code == 4900 and "within 0.2 s" in error.text
        while not (await other.history("late/b")).publications:
            pass

"""Devices on clients, through the real server. docs/devices.md#devices-on-sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from helpers import Heard, client_of, enters, refused, until
from proxy import Proxy
from server import Server
from tidegate import Authorization, Request, TidegateError, TransportName, key_proof

TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "sse", "poll"])

KEY, ASKING_KEY = "a-key-for-devices", "a-key-for-the-backend"

CONFIG = f"""
[access]
anonymous = "read"
[[access.tokens]]
token = "gateway"
name = "gateway"
handle = ["devices/meters/+"]
[[applications]]
id = "meters"
[[applications.keys]]
id = "devices"
key = "{KEY}"
roles = ["device"]
[[applications.keys]]
id = "backend"
key = "{ASKING_KEY}"
roles = ["application"]
"""


@pytest.fixture
def server() -> Iterator[Server]:
    """One for each test: all of them attach the same devices."""
    with Server(CONFIG) as server:
        yield server


def answer(request: Request) -> Any:
    if request.data == "decline":
        raise TidegateError(4221, "cannot measure that: there is no sensor")
    return {"topic": request.topic, "asked": request.data, "by": request.principal}


async def ask(server: Server, device: str, data: str = "temperature") -> tuple[int, Any]:
    return await asyncio.to_thread(server.send, device, data, key=ASKING_KEY)


@TRANSPORTS
async def test_a_device_is_asked_and_tells_events_until_it_is_detached(server: Server, transport: TransportName) -> None:
    async with client_of(server.url, transports=[transport]) as client, client_of(server.url) as reader:
        heard = Heard(reader.subscribe("devices/meters/+/events"))
        presence: list[Any] = []
        reader.subscribe("devices/meters/+/presence").on(
            "update", lambda told: presence.append((told.data["state"], told.data["info"]))
        )
        await reader.ready()
        await reader.ping()
        with client.attach("meters/d-1", answer, key=KEY, info={"model": "m2"}) as device:
            await device.ready()
            asked = {"topic": "devices/meters/d-1", "asked": "temperature", "by": "meters"}
            assert await ask(server, "meters/d-1") == (200, asked)
            status, declined = await ask(server, "meters/d-1", "decline")
            assert (status, declined["code"]) == (422, 4221) and "no sensor" in declined["error"]
            await client.publish("devices/meters/d-1/events", {"celsius": 21.5})
            assert await heard.take(1) == ['update devices/meters/d-1/events 1 {"celsius": 21.5}']
        # A command is carried out after those before it.
        await client.ping()
        await until(lambda: len(presence) == 2)
        assert presence == [("attached", {"model": "m2"}), ("detached", None)]
        assert (device.state, device.error) == ("ended", None)
        status, gone = await ask(server, "meters/d-1")
        assert (status, gone["code"]) == (410, 4111)
        assert (await refused(client.publish("devices/meters/d-1/events", 1))).code == 4301


@TRANSPORTS
async def test_two_devices_on_one_session_of_which_one_is_taken_over(server: Server, transport: TransportName) -> None:
    async with (
        await Proxy.open(server.port) as proxy,
        client_of(proxy.url, transports=[transport]) as gateway,
        client_of(server.url, transports=[transport]) as other,
    ):
        reported: list[Exception] = []
        gateway.on("error", reported.append)
        devices = [gateway.attach(f"meters/d-{number}", answer, key=KEY) for number in (1, 2)]
        for number, device in enumerate(devices, start=1):
            await device.ready()
            assert (await ask(server, f"meters/d-{number}"))[1]["topic"] == f"devices/meters/d-{number}"
        await other.attach("meters/d-1", lambda request: "the other", key=KEY).ready()
        await until(lambda: devices[0].state == "ended")
        assert devices[0].error is not None and devices[0].error.code == 4224
        assert reported == [devices[0].error]
        assert await ask(server, "meters/d-1") == (200, "the other")
        # It does not take the name back, also not after a break.
        proxy.cut()
        await enters(gateway, "waiting")
        proxy.mend()
        gateway.nudge()
        await devices[1].ready()
        assert await ask(server, "meters/d-1") == (200, "the other")
        assert (await ask(server, "meters/d-2"))[1]["topic"] == "devices/meters/d-2"


RIGHTS: dict[str, dict[str, Any]] = {"key": {"key": KEY}, "proof": {"authorization": key_proof("devices", KEY)}}


@TRANSPORTS
@pytest.mark.parametrize("right", RIGHTS.values(), ids=RIGHTS)
async def test_devices_are_attached_again_when_the_server_is_back(
    server: Server, transport: TransportName, right: dict[str, Any]
) -> None:
    async with client_of(server.url, transports=[transport]) as client:
        device = client.attach("meters/d-1", answer, **right)
        await device.ready()
        assert (await ask(server, "meters/d-1"))[0] == 200
        await asyncio.to_thread(server.kill)
        await enters(client, "waiting")
        assert device.state == "waiting"
        await asyncio.to_thread(server.start)
        client.nudge()
        await device.ready()
        assert (await ask(server, "meters/d-1"))[0] == 200


def wrong_proof(device: str, address: str) -> str:
    return 'Tidegate-HMAC key="devices", challenge="6b01ccf8.49b306c7f52ace6f1c3282997e3b1eb9", mac="00"'


REFUSED: dict[str, tuple[str, dict[str, Any], int]] = {
    "a wrong key": ("meters/d-1", {"key": "wrong"}, 4300),
    "a key for something else": ("meters/d-1", {"key": ASKING_KEY}, 4301),
    "no key": ("meters/d-1", {}, 4301),
    "a wrong proof": ("meters/d-1", {"authorization": wrong_proof}, 4300),
    "a proof with a wrong key": ("meters/d-1", {"authorization": key_proof("devices", "wrong")}, 4300),
    "no application": ("else/d-1", {"key": KEY}, 4300),
    "no name": ("meters", {"key": KEY}, 4210),
    "a pattern": ("meters/+", {"key": KEY}, 4210),
    "too much of it": ("meters/d-1", {"key": KEY, "info": "x" * 1_100}, 4210),
}


@TRANSPORTS
@pytest.mark.parametrize(("name", "right", "code"), REFUSED.values(), ids=REFUSED)
async def test_what_is_refused_is_told(
    server: Server, transport: TransportName, name: str, right: dict[str, Any], code: int
) -> None:
    async with client_of(server.url, transports=[transport]) as client:
        device = client.attach(name, answer, **right)
        error = await refused(device.ready())
        assert (error.code, device.state, device.error) == (code, "ended", error)
        # It costs nothing else, and the name is free.
        await client.attach("meters/d-1", answer, key=KEY).ready()
        assert (await ask(server, "meters/d-1"))[0] == 200


async def test_a_token_that_allows_it_needs_no_key(server: Server) -> None:
    async with client_of(server.url, token="gateway") as client:
        await client.attach("meters/d-1", answer).ready()
        assert (await ask(server, "meters/d-1"))[0] == 200


async def test_a_proof_is_of_one_device_and_good_for_one_use(server: Server) -> None:
    prove = key_proof("devices", KEY)
    async with client_of(server.url) as client:
        proof = await _proof(prove, server)
        stale: Authorization = lambda device, address: proof
        assert (await refused(client.attach("meters/d-2", answer, authorization=stale).ready())).code == 4300
        proof = await _proof(prove, server)
        with client.attach("meters/d-1", answer, authorization=stale) as device:
            await device.ready()
        assert (await refused(client.attach("meters/d-1", answer, authorization=stale).ready())).code == 4300


async def _proof(prove: Authorization, server: Server) -> str:
    proof = prove("meters/d-1", server.url)
    return proof if isinstance(proof, str) else await proof


async def test_where_no_challenge_is_given_a_proof_is_asked_for_again_or_ends_it() -> None:
    prove = key_proof("devices", KEY)
    with Server() as server:
        async with client_of(server.url) as client:
            error = await refused(client.attach("meters/d-1", answer, authorization=prove).ready())
            assert error.advice in ("change-first", "authenticate-first")
    gone = await refused(_proof(prove, server))
    assert gone.code == 4904 and "cannot fetch" in gone.text


async def test_what_was_asked_before_the_takeover_is_still_answered(server: Server) -> None:
    async with client_of(server.url) as client, client_of(server.url) as other:
        arrived, may_answer = asyncio.Event(), asyncio.Event()

        async def hold(request: Request) -> str:
            arrived.set()
            await may_answer.wait()
            return "late"

        client.on("error", lambda error: None)
        device = client.attach("meters/d-1", hold, key=KEY)
        await device.ready()
        asking = asyncio.ensure_future(ask(server, "meters/d-1"))
        await arrived.wait()
        await other.attach("meters/d-1", answer, key=KEY).ready()
        await until(lambda: device.state == "ended")
        may_answer.set()
        assert await asking == (200, "late")

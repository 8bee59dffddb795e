"""Devices on a client, with the server in our hands. docs/devices.md#devices-on-sessions."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from helpers import SHORT, never, refused, until
from tidegate import Request, TidegateError, key_proof
from tidegate.handlings import AttachedDevice, HandlingChange, Handlings
from wires import Wires


def answer(request: Request) -> Any:
    return {"topic": request.topic}


async def test_a_device_is_attached_with_its_key_and_what_is_told_of_it_and_asked_in_its_topic() -> None:
    async with Wires() as wires:
        info = {"model": "m2"}
        device = wires.client.attach("meters/d-1", answer, key="k", info=info)
        info["model"] = "changed too late"
        await device.ready()
        [asked] = wires.wire.of("attach")
        told = {"device": "meters/d-1", "authorization": "Bearer k", "info": {"model": "m2"}}
        assert asked == {"type": "attach", "id": asked["id"], **told}
        assert (device.name, device.selectors, device.state) == ("meters/d-1", ("devices/meters/d-1",), "live")
        wires.wire.ask(7, "devices/meters/d-1", text="temperature")
        [responded] = await wires.wire.next_of("respond")
        assert (responded["request"], responded["data"]) == (7, {"topic": "devices/meters/d-1"})


async def test_a_key_is_presented_before_what_waits_to_be_published() -> None:
    async with Wires() as wires:
        await wires.client.attach("meters/d-1", answer, key="k").ready()
        wires.wire.handlers.handle_close(None, "broken")
        publishing = asyncio.ensure_future(wires.client.publish("devices/meters/d-1/events", 1))
        await until(lambda: len(wires.opened) == 2)
        await wires.wire.next_of("publish")
        assert [told["type"] for told in wires.wire.sent] == ["hello", "attach", "publish"]
        publishing.cancel()


async def test_an_authorization_is_asked_for_on_each_connection() -> None:
    async with Wires() as wires:
        asked: list[tuple[str, str]] = []

        async def prove(device: str, address: str) -> str:
            asked.append((device, address))
            return f"proof {len(asked)}"

        device = wires.client.attach("meters/d-1", answer, authorization=prove)
        await device.ready()
        assert [told["authorization"] for told in wires.wire.of("attach")] == ["proof 1"]
        await wires.break_and_come_back()
        await device.ready()
        assert [told["authorization"] for told in wires.wire.of("attach")] == ["proof 2"]
        assert asked == [("meters/d-1", "any:")] * 2


async def test_an_authorization_that_comes_after_its_connection_is_not_presented() -> None:
    async with Wires() as wires:
        may_answer = [asyncio.Event(), asyncio.Event()]
        asked: list[asyncio.Event] = []

        async def prove(device: str, address: str) -> str:
            asked.append(may_answer[len(asked)])
            number = len(asked)
            while not asked[number - 1].is_set():
                # One that cannot be interrupted: it answers all the same.
                try:
                    await asked[number - 1].wait()
                except asyncio.CancelledError:
                    pass
            return f"proof {number}"

        device = wires.client.attach("meters/d-1", answer, authorization=prove)
        await until(lambda: len(asked) == 1)
        await wires.break_and_come_back()
        await until(lambda: len(asked) == 2)
        may_answer[0].set()
        may_answer[1].set()
        await device.ready()
        assert [told["authorization"] for told in wires.wire.of("attach")] == ["proof 2"]


WRONG: dict[str, tuple[Any, int]] = {
    "a mistake": (KeyError("where is it"), 4904),
    "no network": (TidegateError(4904, "cannot fetch"), 4904),
    "a full server": (TidegateError(4100, "cannot challenge"), 4100),
    "no text": (None, 4904),
    "no characters": ("\ud800", 4904),
}


@pytest.mark.parametrize(("given", "code"), WRONG.values(), ids=WRONG)
async def test_an_authorization_that_fails_is_reported_and_asked_for_again(given: Any, code: int) -> None:
    async with Wires() as wires:
        reported: list[Any] = []
        wires.client.on("error", reported.append)
        answers = [given, "proof"]

        def prove(device: str, address: str) -> Any:
            answered = answers.pop(0)
            if isinstance(answered, Exception):
                raise answered
            return answered

        await wires.client.attach("meters/d-1", answer, authorization=prove).ready()
        assert [error.code for error in reported] == [code]
        assert [told["authorization"] for told in wires.wire.of("attach")] == ["proof"]


async def test_an_authorization_that_is_denied_ends_the_device() -> None:
    async with Wires() as wires:

        def prove(device: str, address: str) -> str:
            raise TidegateError(4300, "cannot prove it: there is no key any more")

        device = wires.client.attach("meters/d-1", answer, authorization=prove)
        error = await refused(device.ready())
        assert (error.code, device.state, device.error) == (4300, "ended", error)
        assert wires.wire.of("attach") == []


async def test_another_connection_takes_the_name_over() -> None:
    async with Wires() as wires:
        reported: list[Any] = []
        wires.client.on("error", reported.append)
        first = wires.client.attach("meters/d-1", answer, key="k")
        second = wires.client.attach("meters/d-2", answer, key="k")
        await first.ready()
        await second.ready()
        wires.wire.hear({"type": "detached", "device": "meters/d-1", "code": 4224, "error": "another connection"})
        await until(lambda: first.state == "ended")
        assert first.error is not None and first.error.code == 4224
        assert reported == [first.error] and (await refused(first.ready())).code == 4224
        await wires.break_and_come_back()
        await second.ready()
        assert [told["device"] for told in wires.wire.of("attach")] == ["meters/d-2"]


async def test_what_was_taken_over_before_does_not_end_what_is_attached_since() -> None:
    async with Wires() as wires:
        with wires.client.attach("meters/d-1", answer, key="k") as first:
            await first.ready()
            wires.wire.hear({"type": "detached", "device": "meters/d-1", "code": 4224, "error": "another connection"})
        second = wires.client.attach("meters/d-1", answer, key="k")
        await second.ready()
        assert (first.error, second.state) == (None, "live")
        assert [told["device"] for told in wires.wire.of("detach")] == ["meters/d-1"]


async def test_what_can_never_be_attached_is_refused_at_once() -> None:
    async with Wires() as wires:
        attach = wires.client.attach
        with pytest.raises(ValueError, match="give one of them"):
            attach("meters/d-1", answer, key="k", authorization=lambda device, address: "proof")
        with pytest.raises(TypeError):
            attach("meters/d-1", answer, info=object())
        attach("meters/d-1", answer)
        with pytest.raises(TidegateError, match="does already") as twice:
            attach("meters/d-1", answer)
        assert twice.value.code == 4905


async def test_the_proofs_of_a_gateway_are_made_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: list[int] = [0, 0]

    async def fetch(address: str, path: str, options: dict[str, Any]) -> Any:
        under_way[0] += 1
        under_way[1] = max(under_way)
        await asyncio.sleep(0)
        under_way[0] -= 1
        return {"challenge": "c"}

    monkeypatch.setattr("tidegate.device.fetch", fetch)
    async with Wires() as wires:
        proof = key_proof("devices", "k")
        devices = [wires.client.attach(f"meters/d-{number}", answer, authorization=proof) for number in range(30)]
        for device in devices:
            await device.ready()
        assert under_way == [0, 8]
        assert len({told["authorization"] for told in wires.wire.of("attach")}) == 30


@pytest.mark.parametrize("ends", ["device", "client"])
async def test_what_has_ended_waits_for_no_authorization(ends: str) -> None:
    async with Wires() as wires:
        asked = asyncio.Event()

        async def prove(device: str, address: str) -> str:
            asked.set()
            await never()
            return ""

        device = wires.client.attach("meters/d-1", answer, authorization=prove)
        await asked.wait()
        if ends == "device":
            device.detach()
            await device.wait_closed()
        else:
            wires.client.close()
            await wires.client.wait_closed()
        assert device.state == "ended" and wires.wire.of("attach", "detach") == []
        await until(lambda: not wires.client._core.handlers)


def test_no_authorization_is_wanted_after_everything_has_ended() -> None:
    handlings = Handlings(itertools.count(1).__next__, SHORT, lambda: 0.5)
    handlings.add(AttachedDevice("meters/d-1", None, None, needs_authorization=True))
    handlings.handle_connected()
    handlings.remove_all()
    assert [notice.what for notice in iter(handlings.poll_notice, None)] == [HandlingChange("ended")]

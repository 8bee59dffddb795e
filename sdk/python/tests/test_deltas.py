"""Deltas of both kinds, from the real server."""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from typing import Any, cast

import pytest

from helpers import Heard, client_of, enters
from server import Server
from tidegate import Client, Delta, TidegateError


def book(price: float) -> dict[str, Any]:
    return {"symbol": "ÄBC😀", "last": price, "book": [{"price": n + 0.5, "size": n * 1e20} for n in range(40)]}


def deltas_sent(server: Server) -> int:
    with urllib.request.urlopen(server.url.replace("ws", "http") + "/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(int(float(line.split()[1])) for line in lines if line.startswith("tidegate_deltas_total{"))


KINDS = pytest.mark.parametrize("kind", ["json-patch", "vcdiff"])


@KINDS
async def test_what_comes_as_deltas_is_what_was_published_also_after_a_restart(server: Server, kind: Delta) -> None:
    async with client_of(server.url, token="writer") as client:
        subscription = client.subscribe(f"kept/book/{kind}", delta=kind)
        stream = subscription.stream()
        resumed = Heard(subscription)
        before = await asyncio.to_thread(deltas_sent, server)
        await subscription.ready()
        for price in range(20):
            await client.publish(f"kept/book/{kind}", book(price / 3))
            assert (await anext(stream)).data == book(price / 3)
        assert await asyncio.to_thread(deltas_sent, server) - before >= 15
        await asyncio.to_thread(server.kill)
        await enters(client, "waiting")
        await asyncio.to_thread(server.start)
        client.nudge()
        await client.ready()
        for price in (100, 101, 102):
            await client.publish(f"kept/book/{kind}", book(price))
            assert (await anext(stream)).data == book(price)
        assert f"resumed kept/book/{kind} whole, 0 missed" in resumed.told


@KINDS
async def test_one_that_cannot_be_applied_costs_nothing_but_the_deltas(server: Server, kind: Delta) -> None:
    async with client_of(server.url, token="writer") as client:
        subscription = client.subscribe(f"kept/broken/{kind}", delta=kind)
        stream = subscription.stream()
        await subscription.ready()
        await client.publish(f"kept/broken/{kind}", book(1))
        assert (await anext(stream)).data == book(1)
        # As if what came had been damaged: the next delta has nothing to be made from.
        client._core.subscriptions._payloads.deltas.clear()
        for price in (2, 3, 4):
            await client.publish(f"kept/broken/{kind}", book(price))
        assert [(await anext(stream)).data for _ in range(3)] == [book(price) for price in (2, 3, 4)]


async def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonpatch", None)
    with pytest.raises(TidegateError, match="pip install 'tidegate\\[jsonpatch\\]'") as caught:
        Client("ws://127.0.0.1:1").subscribe("a", delta="json-patch")
    assert caught.value.code == 4905


async def test_a_kind_that_is_not_known_here_is_refused_here() -> None:
    with pytest.raises(TidegateError, match="use one of") as caught:
        Client("ws://127.0.0.1:1").subscribe("a", delta=cast(Any, "zip"))
    assert caught.value.code == 4905

"""What `Subscription.positions` says: how far the application was handed what came, never further."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helpers import refused, until
from tidegate import Subscription
from tidegate.progress import Progress
from wires import Wires


async def live(wires: Wires, *topics: str, **options: Any) -> Subscription:
    """A subscription to topics of which nothing was published."""
    subscription = wires.client.subscribe(list(topics), **options)
    [asked] = await wires.wire.next_of("subscribe")
    described = [{"topic": topic, "epoch": "e", "head": 0, "start": 0} for topic in topics]
    wires.wire.hear({"type": "subscribed", "id": asked["id"], "selectors": list(topics), "topics": described})
    await subscription.ready()
    return subscription


def publications(topic: str, *sequences: int) -> list[dict[str, Any]]:
    return [{"type": "publication", "topic": topic, "sequence": each, "data": each} for each in sequences]


def gap(topic: str, to: int) -> dict[str, Any]:
    return {"type": "gap", "topic": topic, "epoch": "e", "to": to, "reason": "history"}


def at(**sequences: int) -> dict[str, Any]:
    return {topic: {"epoch": "e", "sequence": sequence} for topic, sequence in sequences.items()}


async def test_within_a_handler_they_are_of_what_it_was_called_with() -> None:
    """95: told 1, they said 10, because all ten had arrived."""
    async with Wires() as wires:
        subscription = await live(wires, "a")
        said: list[Any] = []
        subscription.on("update", lambda told: said.append((told.sequence, subscription.positions)))
        subscription.on("gap", lambda told: said.append((told.to, subscription.positions)))
        wires.wire.hear(*publications("a", 1, 2), gap("a", 5), *publications("a", *range(6, 11)))
        await until(lambda: len(said) == 8)
        assert said == [(number, at(a=number)) for number in (1, 2, 5, 6, 7, 8, 9, 10)]


@pytest.mark.parametrize("gaps", [False, True])
async def test_what_a_loop_has_not_taken_yet_does_not_count(gaps: bool) -> None:
    async with Wires() as wires:
        subscription = await live(wires, "a", "b")
        stream: Any = subscription.stream(gaps=True) if gaps else subscription.stream()
        wires.wire.hear(*publications("a", 1, 2), *publications("b", 1), gap("a", 4), gap("b", 3))
        assert (await anext(stream)) and subscription.positions == at(a=1, b=0)
        await anext(stream)
        assert subscription.positions == at(a=2, b=0)
        await anext(stream)
        assert subscription.positions == at(a=2, b=1)
        if gaps:
            await anext(stream)
            await anext(stream)
            assert subscription.positions == at(a=4, b=3)


async def test_after_a_stream_overflowed_what_it_was_not_handed_does_not_count() -> None:
    """94: what came of other topics after that would have been lost to who goes on from there."""
    async with Wires() as wires:
        subscription = await live(wires, "a", "b")
        stream = subscription.stream(capacity=2)
        wires.wire.hear(*publications("a", 1, 2, 3), *publications("b", 1, 2))
        await until(lambda: not stream._is_open)
        assert [(await anext(stream)).sequence for _ in range(2)] == [1, 2]
        assert (await refused(anext(stream))).code == 4903
        wires.wire.hear(*publications("b", 3), gap("b", 5))
        assert subscription.positions == at(a=2, b=0)


async def test_a_loop_that_only_reads_never_ends_however_much_comes_at_once() -> None:
    """96: it ended with 4903 while it caught up."""
    async with Wires() as wires:
        subscription = await live(wires, "a")
        stream = subscription.stream(capacity=3)
        wires.wire.hear(*publications("a", *range(1, 1_001)))
        assert [(await anext(stream)).sequence for _ in range(1_000)] == list(range(1, 1_001))


async def test_a_slow_loop_holds_up_the_transport_unless_it_waits_for_an_answer() -> None:
    async with Wires() as wires:
        subscription = await live(wires, "a")
        stream = subscription.stream(capacity=3)
        room = wires.wire.handlers.wait_for_room
        await asyncio.wait_for(room(), 5)
        wires.wire.hear(*publications("a", *range(1, 6)))
        await anext(stream)
        held_up = asyncio.ensure_future(room())
        await asyncio.sleep(0)
        assert not held_up.done()
        ping = asyncio.ensure_future(wires.client.ping())
        await held_up
        [asked] = await wires.wire.next_of("ping")
        wires.wire.hear({"type": "pong", "id": asked["id"]})
        await ping
        assert [(await anext(stream)).sequence for _ in range(4)] == [2, 3, 4, 5]
        await asyncio.wait_for(room(), 5)


@pytest.mark.parametrize("how", ["unsubscribe", "close", "taken away", "refused after a break"])
async def test_they_stay_when_the_subscription_has_ended(how: str) -> None:
    """97: they were empty."""
    async with Wires() as wires:
        wires.client.on("error", lambda _: None)
        subscription = await live(wires, "a")
        stream = subscription.stream()
        wires.wire.hear(*publications("a", 1, 2, 3))
        await anext(stream)
        if how == "unsubscribe":
            subscription.unsubscribe()
        elif how == "close":
            wires.client.close()
        elif how == "taken away":
            wires.wire.hear({"type": "unsubscribed", "selectors": ["a"], "reason": "lagged"})
        else:
            await wires.break_and_come_back()
            [asked] = await wires.wire.next_of("subscribe")
            wires.wire.hear({"type": "refused", "id": asked["id"], "code": 4301, "error": "no"})
        await until(lambda: subscription.state == "ended")
        assert subscription.positions == at(a=1)
        await anext(stream)
        assert subscription.positions == at(a=2)


async def test_given_positions_are_those_of_the_beginning() -> None:
    async with Wires() as wires:
        subscription = wires.client.subscribe("a", start={"epoch": "e", "sequence": 7})
        assert subscription.positions == at(a=7)


def test_of_several_that_take_it_the_furthest_counts_also_in_another_numbering() -> None:
    progress = Progress({})
    progress.handle_passed("a", ("e1", 0))
    for place in (("e1", 1), ("e1", 2), ("e2", 1), ("e2", 2)):
        progress.handle_told("a", place)
    said = []
    for taken in (("e1", 2), ("e1", 1), ("e2", 1), ("e1", 2), ("e2", 2), ("e2", 1)):
        progress.handle_handed("a", taken)
        said.append(progress.positions()["a"])
    expected = [("e1", 2), ("e1", 2), ("e2", 1), ("e2", 1), ("e2", 2), ("e2", 2)]
    assert said == [{"epoch": epoch, "sequence": sequence} for epoch, sequence in expected]

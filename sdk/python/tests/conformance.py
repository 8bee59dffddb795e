"""A runner of the shared scenarios: steps on one side, the SDK's public face on the other."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict, dataclass, is_dataclass, replace
from typing import Any

from helpers import SHORT, Notes, client_of, enters, never, until
from proxy import HoldingMiddlebox, Middlebox, Proxy
from scripted import ScriptedServer
from server import Server

from tidegate import (
    Client,
    Complete,
    Gap,
    Handling,
    Publication,
    Reply,
    Request,
    Subscription,
    TidegateError,
    TransportName,
)

Step = dict[str, Any]
# Options of `subscribe` that the SDK calls as the protocol does.
OPTIONS = ("positions", "conflation", "name", "interval_ms", "priority", "filter", "delta")

STEP_SECONDS = 10

# Networks of `connect`, and how long each way through them may take: a client that is held back waits for that.
NETWORKS: dict[str, type[Proxy]] = {"free": Proxy, "no-websocket": Middlebox, "held-back": HoldingMiddlebox}
NETWORK_TIMES = replace(SHORT, open_ms=4_000)
EVERY_TRANSPORT: tuple[TransportName, ...] = ("websocket", "sse", "poll")


async def run(scenario: dict[str, Any], transport: TransportName) -> None:
    """Runs all steps over one transport; fails with the step that failed."""
    runner = Runner(scenario, transport)
    try:
        for number, step in enumerate(scenario["steps"], start=1):
            verb: Callable[[Step], Awaitable[None]] = getattr(runner, f"do_{step['do']}")
            try:
                await asyncio.wait_for(verb(step), STEP_SECONDS)
            except Exception as error:
                raise AssertionError(f"step {number}, {json.dumps(step)}: {error!r}; {runner.told_so_far()}") from error
    finally:
        await runner.end()


def known_verbs() -> set[str]:
    return {name[3:] for name in dir(Runner) if name.startswith("do_")}


@dataclass
class Peer:
    client: Client
    proxy: Proxy
    # It cannot be reached, on purpose.
    is_away: bool = False


@dataclass
class Reading:
    subscription: Subscription
    client: Client
    notes: Notes
    completed: int = 0


class Handler:
    """Handles requests as a step says, and counts them."""

    def __init__(self, client: Client, step: Step) -> None:
        self.asked = 0
        self._answers: str = step["answers"]
        self.handling: Handling = client.handle(step["selectors"], self._answer, concurrency=step.get("concurrency"))

    async def _answer(self, request: Request) -> Reply:
        self.asked += 1
        if self._answers == "decline":
            raise TidegateError(4221, "declined")
        if self._answers == "never":
            await never()
        return Reply(request.data, request.kind)


class Runner:
    """One verb of the scenarios is one method."""

    def __init__(self, scenario: dict[str, Any], transport: TransportName) -> None:
        config = "\n".join(scenario.get("config", []))
        self._server = ScriptedServer(scenario) if "script" in scenario else Server(config)
        self._transport = transport
        self._peers: dict[str, Peer] = {}
        self._readings: dict[str, Reading] = {}
        self._handlers: dict[str, Handler] = {}
        # What was said, and is to be answered later.
        self._said: dict[str, asyncio.Task[Any]] = {}
        # What `$name` stands for.
        self._captured: dict[str, Any] = {}

    def told_so_far(self) -> str:
        return f"not taken yet: {({name: reading.notes.told for name, reading in self._readings.items()})}"

    async def end(self) -> None:
        for peer in self._peers.values():
            peer.client.close()
        for said in self._said.values():
            said.cancel()
        for peer in self._peers.values():
            await peer.client.wait_closed()
            await peer.proxy.close()
        await asyncio.to_thread(self._server.remove)

    async def do_start_server(self, step: Step) -> None:
        await asyncio.to_thread(self._server.start)
        for peer in self._peers.values():
            if not peer.is_away:
                peer.client.nudge()
                await peer.client.ready()

    async def do_kill_server(self, step: Step) -> None:
        await self._without_server(self._server.kill)

    async def do_stop_server(self, step: Step) -> None:
        await self._without_server(self._server.stop)

    async def do_connect(self, step: Step) -> None:
        proxy = await NETWORKS[step.get("network", "free")].open(self._server.port)
        way: dict[str, Any] = {"transports": (self._transport,)}
        if "network" in step:
            way = {"transports": EVERY_TRANSPORT, "times": NETWORK_TIMES}
        nodes = [proxy.url if node == "server" else "ws://127.0.0.1:1" for node in step.get("nodes", ["server"])]
        tokens = list(step.get("tokens", []))
        token = (lambda refused: tokens.pop(0)) if tokens else step.get("token")
        peer = Peer(client_of(nodes, token=token, publish_timeout=60, **way), proxy)
        self._peers[step["client"]] = peer
        await self._settle(peer.client.ready(), step)
        assert tokens == [], "not every token was asked for"

    async def do_close(self, step: Step) -> None:
        peer = self._peer(step)
        peer.is_away = True
        peer.client.close()

    async def do_cut(self, step: Step) -> None:
        peer = self._peer(step)
        peer.is_away = True
        peer.proxy.cut()
        await enters(peer.client, "waiting")

    async def do_mute(self, step: Step) -> None:
        peer = self._peer(step)
        peer.is_away = True
        peer.proxy.mute()

    async def do_mend(self, step: Step) -> None:
        peer = self._peer(step)
        peer.proxy.cut()
        await enters(peer.client, "waiting")
        peer.proxy.mend()
        peer.is_away = False
        peer.client.nudge()
        await peer.client.ready()

    async def do_subscribe(self, step: Step) -> None:
        client = self._peer(step).client
        names = {"from": "start"} | {name: name for name in OPTIONS}
        options = {name: self._replaced(step[member]) for member, name in names.items() if member in step}
        subscription = client.subscribe(step["selectors"], **options)
        reading = self._readings[step["as"]] = Reading(subscription, client, Notes(subscription, _event))

        def complete(_: Complete) -> None:
            reading.completed += 1

        subscription.on("complete", complete)
        await self._settle(subscription.ready(), step)

    async def do_completed(self, step: Step) -> None:
        reading = self._reading(step)
        await until(lambda: reading.completed >= step["count"])
        assert reading.completed == step["count"]

    async def do_unsubscribe(self, step: Step) -> None:
        self._reading(step).subscription.unsubscribe()

    async def do_save_positions(self, step: Step) -> None:
        self._captured[f"${step['as']}"] = self._reading(step).subscription.positions

    async def do_publish(self, step: Step) -> None:
        options: dict[str, Any] = {name: step[name] for name in ("key", "expect", "headers") if name in step}
        if "text" in step:
            data, options["kind"] = step["text"], "text"
        elif "base64" in step:
            data = base64.b64decode(step["base64"])
        else:
            data = step["data"]
        await self._say(self._peer(step).client.publish(step["topic"], data, **options), step)

    async def do_answered(self, step: Step) -> None:
        await self._settle(self._said[step["of"]], step)

    async def do_http_publish(self, step: Step) -> None:
        await asyncio.to_thread(self._server.publish, step["body"])

    async def do_history(self, step: Step) -> None:
        members = ("after", "before", "last", "since", "limit")
        page = {name: step[name] for name in members if name in step}
        await self._settle(self._peer(step).client.history(step["topic"], **page), step)

    async def do_acknowledge(self, step: Step) -> None:
        positions = self._replaced(step["positions"])
        await self._settle(self._peer(step).client.acknowledge(step["name"], positions), step)

    async def do_handle(self, step: Step) -> None:
        handler = self._handlers[step["as"]] = Handler(self._peer(step).client, step)
        await self._settle(handler.handling.ready(), step)

    async def do_handling(self, step: Step) -> None:
        await self._handlers[step["handler"]].handling.ready()

    async def do_unhandle(self, step: Step) -> None:
        self._handlers[step["handler"]].handling.unhandle()

    async def do_asked(self, step: Step) -> None:
        handler = self._handlers[step["handler"]]
        await until(lambda: handler.asked >= step["count"])

    async def do_request(self, step: Step) -> None:
        client, timeout = self._peer(step).client, step.get("timeout_ms", 10_000) / 1_000

        async def ask() -> Any:
            return (await client.request(step["topic"], step["data"], timeout=timeout, key=step.get("key"))).data

        await self._say(ask(), step)

    async def do_ping(self, step: Step) -> None:
        await self._peer(step).client.ping()

    async def do_expect_transport(self, step: Step) -> None:
        actual = self._peer(step).client.transport
        assert actual == step["transport"], f"it travels with {actual}"

    async def do_expect(self, step: Step) -> None:
        wanted = list(step["events"])
        for actual in await self._reading(step).notes.take(len(wanted)):
            found = next((one for one in wanted if self._matches(one, actual)), None)
            expected = found if step.get("in_any_order") else wanted[0]
            assert expected is not None and self._matches(expected, actual), f"expected {expected or wanted}, got {actual}"
            wanted.remove(expected)

    async def do_expect_nothing(self, step: Step) -> None:
        reading = self._reading(step)
        # The server answers in order: what it had to tell is told before the pong.
        await reading.client.ping()
        assert reading.notes.told == []

    def _peer(self, step: Step) -> Peer:
        return self._peers[step["client"]]

    def _reading(self, step: Step) -> Reading:
        return self._readings[step["subscription"]]

    async def _without_server(self, end: Callable[[], object]) -> None:
        connected = [peer.client for peer in self._peers.values() if peer.client.state == "connected"]
        await asyncio.to_thread(end)
        for client in connected:
            await enters(client, "waiting")

    async def _say(self, command: Coroutine[Any, Any, Any], step: Step) -> None:
        """Waits for the answer to what is said, unless the step names it for later."""
        said = asyncio.ensure_future(command)
        if "as" not in step:
            return await self._settle(said, step)
        self._said[step["as"]] = said
        # A task begins later: here it is said in the order of the steps.
        await asyncio.sleep(0)

    async def _settle(self, awaitable: Awaitable[Any], step: Step) -> None:
        """Waits for the answer, or for the refusal that the step expects."""
        try:
            answer = await awaitable
        except TidegateError as error:
            if "refused" not in step:
                raise
            assert error.code == step["refused"], f"expected {step['refused']}, got {error}"
            return
        assert "refused" not in step, f"expected {step['refused']}, got {answer}"
        if "answer" in step:
            actual = asdict(answer) if is_dataclass(answer) and not isinstance(answer, type) else answer
            assert self._matches(step["answer"], actual), f"expected {step['answer']}, got {actual}"

    def _replaced(self, value: Any) -> Any:
        """A value of a step, with `$name` replaced by what was captured."""
        if isinstance(value, dict):
            return {key: self._replaced(inner) for key, inner in value.items()}
        return self._captured[value] if isinstance(value, str) and value.startswith("$") else value

    def _matches(self, expected: Any, actual: Any) -> bool:
        """Whether `actual` has all that `expected` says; `$name` is captured, `!$name` is anything else."""
        if isinstance(expected, str) and expected.startswith("!$"):
            return bool(self._captured[expected[1:]] != actual)
        if isinstance(expected, str) and expected.startswith("$"):
            return bool(self._captured.setdefault(expected, actual) == actual)
        if isinstance(expected, dict):
            return isinstance(actual, dict) and all(
                key in actual and self._matches(value, actual[key]) for key, value in expected.items()
            )
        if isinstance(expected, list):
            return isinstance(actual, list) and len(actual) == len(expected) and all(map(self._matches, expected, actual))
        # In Python, True is 1.
        return bool(expected == actual) and isinstance(expected, bool) == isinstance(actual, bool)


def _event(told: Any) -> dict[str, Any]:
    """What the SDK told, as scenarios write it."""
    if isinstance(told, TidegateError):
        return {"event": "error", "code": told.code}
    event = asdict(told)
    if isinstance(told, Publication):
        event["event"] = "snapshot" if told.is_snapshot else "update"
        if told.kind == "text":
            event["text"] = event.pop("data")
        elif told.kind == "bytes":
            event["base64"] = base64.b64encode(event.pop("data")).decode()
    elif isinstance(told, Gap):
        first = event.pop("from_")
        event |= {"event": "gap"} if first is None else {"event": "gap", "from": first}
    else:
        event["event"] = "resumed"
    return event

"""A client over transports in our hands: what it sends is looked at, and what it hears is made up."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from helpers import SHORT, enters, until
from tidegate import Client, TransportHandlers


class Wire:
    """A transport in our hands, that welcomes whoever comes, and answers what it was told to."""

    name = "wire"

    def __init__(self, url: str, handlers: TransportHandlers) -> None:
        self.handlers = handlers
        self.sent: list[dict[str, Any]] = []
        asyncio.get_running_loop().call_soon(handlers.handle_open)

    def send(self, text: str) -> None:
        told = json.loads(text)
        self.sent.append(told)
        if told["type"] == "hello":
            self.hear({"type": "welcome", "id": told["id"], "limits": {"message_bytes_max": 1_000}})
        if told["type"] in ("attach", "detach"):
            self.hear({"type": told["type"] + "ed", "id": told["id"], "device": told["device"]})
        if told["type"] in ("handle", "unhandle"):
            self.hear({"type": told["type"][:-1] + "ing", "id": told["id"], "selectors": told["topics"]})

    def close(self) -> None:
        pass

    async def wait_closed(self) -> None:
        pass

    def hear(self, *events: dict[str, Any]) -> None:
        asyncio.get_running_loop().call_soon(self.handlers.handle_text, json.dumps(events))

    def of(self, *types: str) -> list[dict[str, Any]]:
        return [told for told in self.sent if told["type"] in types]

    async def next_of(self, *types: str, count: int = 1) -> list[dict[str, Any]]:
        """All of these types, as soon as there are so many."""
        await until(lambda: len(self.of(*types)) >= count)
        return self.of(*types)

    def ask(self, number: int, topic: str = "orders/new", **payload: Any) -> None:
        asked = {"request": number, "topic": topic, "timeout_ms": 5_000, "from": "s-1", "principal": "alice"}
        self.hear({"type": "request", **asked, **(payload or {"data": {"n": number}})})


class Wires:
    """A client over wires, and the wires that it opened."""

    def __init__(self) -> None:
        self.opened: list[Wire] = []
        self.client = Client("any:", times=SHORT, transport=self._open)

    def _open(self, url: str, handlers: TransportHandlers) -> Wire:
        self.opened.append(Wire(url, handlers))
        return self.opened[-1]

    @property
    def wire(self) -> Wire:
        return self.opened[-1]

    async def break_and_come_back(self) -> None:
        self.wire.handlers.handle_close(None, "broken")
        await enters(self.client, "connected")

    async def __aenter__(self) -> Wires:
        await self.client.__aenter__()
        await self.client.ready()
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.client.close()
        await self.client.wait_closed()

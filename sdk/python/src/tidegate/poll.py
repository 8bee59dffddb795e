"""The transport by long-polling: one batch for each request. docs/protocol.md#sessions-over-plain-http."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from .base_transport import Ended
from .http import HttpTransport, check, http_url
from .transport import OpenTransport, TransportHandlers

AGAIN_AFTER_SECONDS = (0.0, 0.25, 1.0)
"""Pauses before a poll whose answer was lost is sent again; after the last attempt the session is given up."""


def poll_transport(**options: Any) -> OpenTransport:
    """Opens sessions by long-polling; `options` go to `httpx.AsyncClient`, such as `verify` or `proxy`."""

    def open_transport(address: str, handlers: TransportHandlers) -> PollTransport:
        return PollTransport(address, handlers, options)

    return open_transport


class PollTransport(HttpTransport):
    """One session, asked for batch by batch."""

    name = "poll"
    outlives_requests = True

    async def _read(self, http: httpx.AsyncClient, hello: str) -> None:
        url = http_url(self._address, "/poll")
        first = await http.post(url, content=hello)
        await check(first, 200)
        batch = await self._take(first.content)
        while True:
            batch = await self._take(await self._poll(http, url, batch))

    async def _poll(self, http: httpx.AsyncClient, url: str, batch: int) -> bytes:
        """The batch after `batch`. A lost answer is asked for again, by the same number: the server keeps it."""
        asked = {"session": self._key or "", "batch": str(batch)}
        for pause in (*AGAIN_AFTER_SECONDS, None):
            try:
                answer = await http.get(url, params=asked)
                await check(answer, 200)
                return answer.content
            except httpx.TransportError:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("the last attempt answers or raises")

    async def _take(self, body: bytes) -> int:
        """Tells what a batch holds; answers its number, which is in its last line."""
        *records, last = [line.decode() for line in body.split(b"\n") if line]
        polled = json.loads(last)
        if polled.get("type") != "polled":
            raise Ended(None, f"cannot poll {self._address}: an answer came without its end")
        await self._tell(records)
        if not records:
            # A sign of life all the same.
            self._handlers.handle_text("[]")
        return int(polled["batch"])

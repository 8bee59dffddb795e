"""The transport over Server-Sent Events: a response that goes on. docs/protocol.md#sessions-over-plain-http."""

from __future__ import annotations

from typing import Any

import httpx

from .base_transport import Ended
from .http import HttpTransport, check, http_url
from .transport import OpenTransport, TransportHandlers


def sse_transport(**options: Any) -> OpenTransport:
    """Opens sessions over Server-Sent Events; `options` go to `httpx.AsyncClient`, such as `verify` or `proxy`."""

    def open_transport(address: str, handlers: TransportHandlers) -> SseTransport:
        return SseTransport(address, handlers, options)

    return open_transport


class SseTransport(HttpTransport):
    """One session, told as Server-Sent Events."""

    name = "sse"

    async def _read(self, http: httpx.AsyncClient, hello: str) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        url = http_url(self._address, "/sse")
        async with http.stream("POST", url, content=hello, headers=headers) as answer:
            await check(answer, 200)
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                raise Ended(None, f"cannot read {url}: something that is no Tidegate server answered")
            events = EventReader()
            async for chunk in answer.aiter_bytes():
                await self._tell(events.take(chunk))


class EventReader:
    """The data of Server-Sent Events, of the bytes as they come. Pure.

    A reader of our own, because those that exist split lines with `str.splitlines`, also within JSON, which may hold
    U+2028 and others that HTML's specification of the format leaves alone.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def take(self, chunk: bytes) -> list[str]:
        """The data of each event that is whole now. Names and ids are left out: the records say the same."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" ").decode())
            elif not line and self._data:
                events.append("\n".join(self._data))
                self._data = []
        return events

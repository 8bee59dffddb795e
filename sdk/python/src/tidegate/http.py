"""What the transports over plain HTTP have in common: one request that goes on, others for the commands.

docs/protocol.md#sessions-over-plain-http. The package is `httpx`: pools of connections, proxies and TLS are years of work by others.
"""

from __future__ import annotations

import asyncio
import functools
import json
import ssl
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from .base_transport import BaseTransport, Ended, retry_after_ms
from .errors import LocalCode, TidegateError
from .protocol import SOCKET_PATH
from .transport import TransportHandlers
from .waiting import race

BODY_BYTES_MAX = 64 << 10
"""Commands that wait go together, up to this; one that is larger goes alone."""

END_SECONDS = 1.0
"""How long the wish to end a session may take."""

TOLD_MAX = 100
"""Records that are told at a time: whoever reads them runs in between."""


def http_url(address: str, path: str) -> str:
    """The address of `path`, such as `/sse`, beside a node's WebSocket, which is at `/v1/ws` unless it has a path.

    Raises `ValueError` if it cannot be told from `address`.
    """
    parts = urlsplit(address)
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    socket_path = SOCKET_PATH if parts.path in ("", "/") else parts.path
    if scheme not in ("http", "https") or not parts.hostname or not socket_path.endswith("/ws"):
        raise ValueError(
            f"cannot connect to `{address}`: where it speaks plain HTTP cannot be told from that; use an address such "
            "as http://localhost:8470"
        )
    return urlunsplit((scheme, parts.netloc, socket_path.removesuffix("/ws") + path, parts.query, ""))


async def fetch(address: str, path: str, options: dict[str, Any]) -> Any:
    """The JSON at `path` of a node, beside its WebSocket. Raises `TidegateError`."""
    url = http_url(address, path)
    try:
        async with httpx.AsyncClient(**_with_tls(options)) as http:
            answer = await http.get(url)
        await check(answer, 200)
        return answer.json()
    except Ended as ended:
        raise TidegateError(LocalCode.UNREACHABLE if ended.code is None else ended.code, ended.text) from None
    except (httpx.HTTPError, ValueError) as error:
        text = f"cannot fetch {url}: {error or type(error).__name__}; check that it is up, and the network"
        raise TidegateError(LocalCode.UNREACHABLE, text) from error


def _with_tls(options: dict[str, Any]) -> dict[str, Any]:
    return options if "verify" in options else {"verify": _tls(), **options}


@functools.cache
def _tls() -> ssl.SSLContext:
    # Making one takes tens of milliseconds, and a transport is made at every attempt.
    return httpx.create_ssl_context()


class HttpTransport(BaseTransport):
    """One session over plain HTTP: a task that reads, and one that writes, one request after the other."""

    outlives_requests = False
    """Whether the session stays when its requests end."""

    def __init__(self, address: str, handlers: TransportHandlers, options: dict[str, Any]) -> None:
        # The connection's state machine watches over time and silence.
        self._options = {"timeout": None, **_with_tls(options)}
        self._key: str | None = None
        super().__init__(address, handlers)

    @abstractmethod
    async def _read(self, http: httpx.AsyncClient, hello: str) -> None:
        """Opens a session with `hello`, and tells what comes until it ends."""

    async def _transfer(self) -> None:
        try:
            async with httpx.AsyncClient(**self._options) as http:
                # The first request carries the first command: there is nothing to open before.
                self._handlers.handle_open()
                await self._has_outgoing.wait()
                try:
                    await race(self._read(http, self._outgoing.popleft()), self._write(http))
                except asyncio.CancelledError:
                    await self._end(http)
                    raise
        except Exception as error:
            self.was_reached |= not isinstance(error, httpx.ConnectError)
            raise

    async def _end(self, http: httpx.AsyncClient) -> None:
        """Ends the session: one that is just not polled any more would count, and handle requests, for half a minute."""
        if self._key is None or not self.outlives_requests:
            return
        url, body = http_url(self._address, "/commands"), '{"type":"close"}'
        try:
            await http.post(url, params={"session": self._key}, content=body, timeout=END_SECONDS)
        except httpx.TransportError:
            pass

    async def _write(self, http: httpx.AsyncClient) -> None:
        url = http_url(self._address, "/commands")
        while True:
            await self._has_outgoing.wait()
            self._has_outgoing.clear()
            while self._outgoing and self._key is not None:
                # Only after the answer the next: requests may overtake each other. One that is lost may have been
                # carried out; that is a break, as it is for a WebSocket.
                answer = await http.post(url, params={"session": self._key}, content=self._next_body())
                await check(answer, 202)

    def _next_body(self) -> str:
        texts, size = [self._outgoing.popleft()], 0
        while self._outgoing and (size := size + len(texts[-1])) + len(self._outgoing[0]) < BODY_BYTES_MAX:
            texts.append(self._outgoing.popleft())
        return f"[{','.join(texts)}]"

    async def _tell(self, records: Sequence[str]) -> None:
        """Tells records of JSON, a few at a time."""
        for start in range(0, len(records), TOLD_MAX):
            told = records[start : start + TOLD_MAX]
            if self._key is None:
                self._note_key(told[0])
            self._handlers.handle_text(f"[{','.join(told)}]")
            await asyncio.sleep(0)
            await self._handlers.wait_for_room()

    def _note_key(self, record: str) -> None:
        """Takes the session's key of the first record, which is `welcome` unless `hello` was refused."""
        welcome = json.loads(record)
        if welcome["type"] == "welcome":
            self._key = welcome["key"]
            self._has_outgoing.set()


async def check(answer: httpx.Response, status: int) -> None:
    """Raises `Ended`, with the server's code and text if there are any, unless `answer` has that status."""
    if answer.status_code == status:
        return
    pause = retry_after_ms(answer.headers.get("retry-after"))
    try:
        body = json.loads(await answer.aread())
        raise Ended(int(body["code"]), str(body["error"]), pause)
    except (ValueError, TypeError, KeyError):
        text = f"cannot connect: {answer.url.path} answered with the status {answer.status_code}"
        raise Ended(None, text, pause) from None

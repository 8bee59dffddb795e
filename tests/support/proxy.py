"""What stands between clients and the server in tests: TCP proxies that can be cut, muted and mended, HTTP proxies that know no
`Upgrade` or hold back, and one that forgets connections. The one place for all tests in Python, those of the SDK as well."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Iterator


class Proxy:
    """A TCP proxy that can be cut and mended, or carry nothing to the client any more.

    Use `Proxy.open`. As a context manager it is closed in the end.
    """

    _server: asyncio.Server

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._is_muted = False

    @classmethod
    async def open(cls, target_port: int) -> Proxy:
        proxy = cls(target_port)
        proxy._server = await asyncio.start_server(proxy._connected, "127.0.0.1", 0)
        return proxy

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Breaks what is connected, and lets nobody in until it is mended."""
        self._is_cut = True
        for writer in list(self._writers):
            _reset(writer)

    def mute(self) -> None:
        """Loses all that the server sends, as a proxy does that breaks before the answer."""
        self._is_muted = True

    def mend(self) -> None:
        self._is_cut = self._is_muted = False

    async def __aenter__(self) -> Proxy:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.cut()
        self._server.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _connected(self, near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._writers.add(near)
        try:
            if self._is_cut:
                return
            far_reader, far = await asyncio.open_connection("127.0.0.1", self._target_port)
            self._writers.add(far)
            there = asyncio.create_task(self._carry(near_reader, far, is_to_client=False))
            back = asyncio.create_task(self._carry(far_reader, near, is_to_client=True))
            await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
            _reset(far)
            _reset(near)
            await asyncio.wait([there, back])
            self._writers.discard(far)
        except OSError:
            pass  # The server is not there.
        finally:
            _reset(near)
            self._writers.discard(near)

    def _passes(self, *, is_to_client: bool) -> bool:
        """Whether what just came is carried on."""
        return not (is_to_client and self._is_muted)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_to_client: bool) -> None:
        try:
            while data := await source.read(65_536):
                if self._passes(is_to_client=is_to_client):
                    sink.write(data)
                    await sink.drain()
        except OSError:
            pass  # It was cut.


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes at once, with a reset: nothing lingers."""
    raw = writer.get_extra_info("socket")
    if raw is not None and not writer.transport.is_closing():
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class ForgetfulProxy(Proxy):
    """Forgets a connection over which nothing came for `seconds`, as address translators do.

    What comes then goes nowhere, and nobody is told. It carries one connection at a time.
    """

    seconds = 3.0

    async def _connected(self, near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
        self._heard_at = time.monotonic()
        await super()._connected(near_reader, near)

    def _passes(self, *, is_to_client: bool) -> bool:
        now = time.monotonic()
        is_known = now - self._heard_at <= self.seconds
        if is_known:
            self._heard_at = now
        return is_known


@contextlib.contextmanager
def in_thread(kind: type[Proxy], target_port: int) -> Iterator[Proxy]:
    """A proxy on an event loop of its own, for tests that have none."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    proxy = asyncio.run_coroutine_threadsafe(kind.open(target_port), loop).result()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


# What a proxy keeps for itself. Without them a server answers an upgrade with 400, as it does a page.
BETWEEN_NEIGHBOURS = (b"connection:", b"upgrade:")


class Middlebox(Proxy):
    """An HTTP proxy that carries everything but upgrades: one request over each connection."""

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_to_client: bool) -> None:
        if is_to_client:
            await self._answer(source, sink)
            return
        try:
            head = await source.readuntil(b"\r\n\r\n")
        except (OSError, asyncio.IncompleteReadError):
            return  # Whoever connected did not ask.
        request, *fields = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        passed = [field for field in fields if not field.lower().startswith(BETWEEN_NEIGHBOURS)]
        sink.write(b"\r\n".join([request, *passed, b"connection: close", b"", b""]))
        await super()._carry(source, sink, is_to_client=False)

    async def _answer(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        await super()._carry(source, sink, is_to_client=True)
        await _close(sink)


class HoldingMiddlebox(Middlebox):
    """The same, but it passes a response on when it has all of it."""

    async def _answer(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            sink.write(await source.read())
        except OSError:
            pass  # It was cut.
        await _close(sink)


async def _close(sink: asyncio.StreamWriter) -> None:
    """Closes in order: what was written arrives."""
    sink.close()
    try:
        await sink.wait_closed()
    except OSError:
        pass  # It was cut.

"""A cable between a client and a server that can be cut and mended, or carry nothing to the client any more."""

from __future__ import annotations

import asyncio
import socket
import struct


class Cable:
    """Use `Cable.open`. As a context manager it is closed in the end."""

    _server: asyncio.Server

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_cut = False
        self._is_muted = False

    @classmethod
    async def open(cls, target_port: int) -> Cable:
        cable = cls(target_port)
        cable._server = await asyncio.start_server(cable._connected, "127.0.0.1", 0)
        return cable

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Breaks what is connected, and lets nobody in until it is mended."""
        self._is_cut = True
        for writer in list(self._writers):
            _reset(writer)

    def mute(self) -> None:
        """Loses all that the server sends, as a cable does that breaks before the answer."""
        self._is_muted = True

    def mend(self) -> None:
        self._is_cut = self._is_muted = False

    async def __aenter__(self) -> Cable:
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

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_to_client: bool) -> None:
        try:
            while data := await source.read(65_536):
                if not (is_to_client and self._is_muted):
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

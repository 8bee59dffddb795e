"""What stands between clients and servers in real networks: HTTP proxies that know no `Upgrade`, or hold back."""

from __future__ import annotations

import asyncio

from cable import Cable

# What a proxy keeps for itself. Without them a server answers an upgrade with 400, as it does a page.
BETWEEN_NEIGHBOURS = (b"connection:", b"upgrade:")


class Middlebox(Cable):
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

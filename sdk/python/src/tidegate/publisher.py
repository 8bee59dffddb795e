"""Publishing without a connection, for backends. docs/protocol.md#http-api.

Each publication is one of a `POST /v1/publish`, with an idempotency key unless told otherwise, so that sending it again keeps
it once. The package is `httpx`: pools of connections, proxies and TLS are years of work by others.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Union

import httpx

from .backoff import pause_ms
from .base_transport import Ended
from .connection import ConnectionTimes
from .errors import LocalCode, TidegateError
from .http import check, http_url
from .options import Published, TokenProvider
from .protocol import PayloadKind, encode_command, encode_payload

BATCH_MAX = 1_000
"""Publications in one request at most."""

BATCH_LENGTH_MAX = 1 << 19
"""Characters in one request at most, unless one publication alone has more."""

PAUSES = ConnectionTimes(first_ms=250, last_ms=5_000)

TOKEN_REFUSED = (4300, 4305)
"""Codes of tokens that are not good any more."""

UNHEARD = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""What goes wrong before anything is sent."""

Trace = Callable[[str, object], Awaitable[None]]
"""Notification how far a request is."""

Outcome = Union[Published, TidegateError]
"""What came of one of several publications."""


@dataclass(frozen=True)
class Draft:
    """One of several publications."""

    topic: str
    data: Any
    key: str | None = None
    expect: int | None = None
    kind: PayloadKind | None = None


@dataclass
class _Item:
    index: int
    text: str
    has_key: bool
    is_doubtful: bool = False
    # Why it was not answered.
    why: str = "no answer came"


@dataclass
class _Call:
    """What is left of a call, by its place there and in that order, and what came of it."""

    left: dict[int, _Item]
    outcomes: dict[int, Outcome] = field(default_factory=dict)


class Publisher:
    """Publishes over HTTP. It belongs to one event loop; leaving it (`async with`), or `close`, ends its connections."""

    def __init__(
        self,
        url: str,
        *,
        token: str | TokenProvider | None = None,
        publish_timeout: float = 10,
        keys: bool = True,
        requests_max: int = 16,
        queue_max: int = 10_000,
        **options: Any,
    ) -> None:
        """A publisher to the server at `url`, such as `http://localhost:8470`.

        `token` is a token, or a function (plain or coroutine) that is asked for one at first, and whenever the server
        refuses the last. A publish may take `publish_timeout` seconds, tries included. With `keys` a publication that has
        no key gets one. At most `requests_max` requests are made at a time, over connections that stay open, and
        `queue_max` wait for their turn (then 4902). `options` go to `httpx.AsyncClient`, such as `verify` or `proxy`.

        Raises `ValueError` if it is not an address.
        """
        self._url = http_url(url, "/publish")
        self._token = token if isinstance(token, str) else None
        self._provider = token if callable(token) else None
        self._needs_token = self._provider is not None
        self._refused: TidegateError | None = None
        self._timeout = publish_timeout
        self._keys = f"{secrets.token_hex(16)}-" if keys else None
        self._keys_given = 0
        limits = httpx.Limits(max_connections=requests_max, max_keepalive_connections=requests_max)
        self._turns = asyncio.Semaphore(requests_max)
        self._queue_max = queue_max
        self._waiting = 0
        # A transport of somebody's own may not say when it sends.
        self._is_traced = options.keys().isdisjoint({"transport", "mounts"})
        self._http = httpx.AsyncClient(**{"limits": limits, "timeout": None, **options})

    async def __aenter__(self) -> Publisher:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections. Nothing can be published any more."""
        await self._http.aclose()

    async def publish(
        self,
        topic: str,
        data: Any,
        *,
        key: str | None = None,
        expect: int | None = None,
        kind: PayloadKind | None = None,
        timeout: float | None = None,
    ) -> Published:
        """Publishes, and answers where it was kept. The arguments are those of `Client.publish`.

        What a break or a busy server left open is sent again, if it has a key. Raises `TidegateError`: the server's
        refusals; when the time is up 4906 (it was not kept) or 4900 (it may have been).
        """
        [outcome] = await self.publish_all([Draft(topic, data, key, expect, kind)], timeout=timeout)
        if isinstance(outcome, TidegateError):
            raise outcome
        return outcome

    async def publish_all(self, drafts: Iterable[Draft], *, timeout: float | None = None) -> list[Outcome]:
        """Publishes several, in this order, in as few requests as they go into.

        Answers for each, in order, where it was kept, or why not, as an error that is not raised; what a busy server puts off
        is sent again after the others. Raises `TypeError` or `ValueError` if one is nothing that can be published.
        """
        seconds = self._timeout if timeout is None else timeout
        call = _Call({index: self._item(index, draft) for index, draft in enumerate(drafts)})
        try:
            await asyncio.wait_for(self._carry_out(call), seconds)
        except asyncio.TimeoutError:
            call.outcomes.update({index: _unanswered(item, seconds) for index, item in call.left.items()})
        return [call.outcomes[index] for index in sorted(call.outcomes)]

    def _item(self, index: int, draft: Draft) -> _Item:
        key = self._next_key() if draft.key is None else draft.key
        members = {"topic": draft.topic, "key": key, "expect": draft.expect}
        members = {name: value for name, value in members.items() if value is not None}
        return _Item(index, encode_command(members | encode_payload(draft.data, draft.kind)), key is not None)

    def _next_key(self) -> str | None:
        if self._keys is None:
            return None
        self._keys_given += 1
        return f"{self._keys}{self._keys_given}"

    async def _carry_out(self, call: _Call) -> None:
        """Sends what is left until nothing is."""
        attempt = 0
        while True:
            asked_ms = 0.0
            for batch in list(_batches(call.left.values())):
                asked_ms = max(asked_ms, await self._send(batch, call))
            if not call.left:
                return
            await asyncio.sleep(pause_ms(attempt, LocalCode.UNREACHABLE, asked_ms, PAUSES, random.random) / 1_000)
            attempt += 1

    async def _send(self, batch: list[_Item], call: _Call) -> float:
        """Sends a batch; answers for how long the server wants to be left alone, in milliseconds."""
        if self._waiting >= self._queue_max:
            text = f"cannot publish: {self._waiting} requests wait for their turn; await them, or raise queue_max"
            for item in batch:
                _settle(item, TidegateError(LocalCode.QUEUE_FULL, text), call)
            return 0
        async with self._turn():
            try:
                token = await self._token_now()
            except Exception as error:
                return self._put_off(batch, f"there was no token: {error!r}")
            were_doubtful = [item.is_doubtful for item in batch]

            async def trace(event: str, _: object) -> None:
                # From then on until there is an answer: whoever gives up meanwhile does not know.
                if event.endswith("send_request_headers.started"):
                    self._doubt(batch)

            if not self._is_traced:
                self._doubt(batch)
            try:
                answer = await self._post(batch, token, trace)
            except UNHEARD as error:
                self._restore(batch, were_doubtful)
                return self._put_off(batch, repr(error))
            except (Ended, httpx.HTTPError, ValueError) as error:
                if isinstance(error, Ended) and error.code is not None:
                    self._restore(batch, were_doubtful)
                    return self._handle_refusal(batch, TidegateError(error.code, error.text), error.retry_after_ms, call)
                self._drop_keyless(batch, str(error) or type(error).__name__, call)
                return error.retry_after_ms if isinstance(error, Ended) else 0
            self._restore(batch, were_doubtful)
            self._take(batch, answer, call)
            return 0

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Waits until another request may be made."""
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turns.release()

    async def _post(self, batch: list[_Item], token: str | None, trace: Trace) -> list[dict[str, Any]]:
        headers = {"content-type": "application/json"}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        body = f'{{"publications":[{",".join(item.text for item in batch)}]}}'
        extensions = {"trace": trace}
        answer = await self._http.post(self._url, content=body.encode(), headers=headers, extensions=extensions)
        await check(answer, 200)
        told = answer.json()
        results = told.get("results") if isinstance(told, dict) else None
        if not isinstance(results, list) or len(results) != len(batch):
            raise ValueError("the answer is not one of a Tidegate server")
        return results

    def _take(self, batch: list[_Item], results: list[dict[str, Any]], call: _Call) -> None:
        for item, result in zip(batch, results, strict=True):
            if "code" not in result:
                kept = Published(result["topic"], result["epoch"], result["sequence"], result["level"])
                _settle(item, kept, call)
            else:
                error = TidegateError(result["code"], result["error"])
                item.why = error.text
                if not _is_put_off(error):
                    _settle(item, error, call)

    def _handle_refusal(self, batch: list[_Item], error: TidegateError, pause: float, call: _Call) -> float:
        """Takes the refusal of a whole request."""
        if error.code in TOKEN_REFUSED and self._provider is not None:
            self._needs_token, self._refused = True, error
        elif not _is_put_off(error):
            for item in batch:
                _settle(item, error, call)
        self._put_off(batch, error.text)
        return pause

    def _put_off(self, batch: list[_Item], why: str) -> float:
        for item in batch:
            item.why = why
        return 0

    def _drop_keyless(self, batch: list[_Item], why: str, call: _Call) -> None:
        """Gives up those that may have been kept, and cannot be sent again."""
        self._put_off(batch, why)
        for item in batch:
            if item.is_doubtful and not item.has_key:
                _settle(item, _unanswered(item, self._timeout), call)

    def _doubt(self, batch: list[_Item]) -> None:
        for item in batch:
            item.is_doubtful = True

    def _restore(self, batch: list[_Item], were_doubtful: list[bool]) -> None:
        for item, was_doubtful in zip(batch, were_doubtful, strict=True):
            item.is_doubtful = was_doubtful

    async def _token_now(self) -> str | None:
        if self._needs_token and self._provider is not None:
            given = self._provider(self._refused)
            self._token = await given if inspect.isawaitable(given) else given
            self._needs_token, self._refused = False, None
        return self._token


def _settle(item: _Item, outcome: Outcome, call: _Call) -> None:
    call.outcomes[item.index] = outcome
    del call.left[item.index]


def _is_put_off(error: TidegateError) -> bool:
    """Whether the server may take it later."""
    return error.advice in ("retry-now", "retry-later")


def _unanswered(item: _Item, seconds: float) -> TidegateError:
    if not item.is_doubtful:
        text = (
            f"cannot publish: it was not taken within {seconds:g} s ({item.why}), and was not kept; try again, or wait longer"
        )
        return TidegateError(LocalCode.NOT_SENT, text)
    how = "give it a `key` of your own, then it can be published again" if item.has_key else "give it a `key`"
    text = f"cannot tell what became of the publication, which may or may not have been kept: {item.why}; {how}"
    return TidegateError(LocalCode.UNANSWERED, text)


def _batches(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """In requests of a size that every server takes."""
    batch: list[_Item] = []
    length = 0
    for item in items:
        if len(batch) == BATCH_MAX or (batch and length + len(item.text) > BATCH_LENGTH_MAX):
            yield batch
            batch, length = [], 0
        batch.append(item)
        length += len(item.text)
    if batch:
        yield batch

"""A device as its user holds it, and the right by which it is attached. docs/devices.md#attaching and docs/devices.md#devices-on-sessions."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Union
from weakref import WeakKeyDictionary

from .errors import LocalCode, TidegateError
from .handling import Handling, Owner, RequestHandler
from .handlings import Asked, AuthorizationWanted, HandlingChange
from .http import fetch
from .protocol import encode_command

FETCHES_MAX = 8
"""Challenges that are fetched at a time: a gateway's devices are all attached again at once, and each takes a request."""

Authorization = Callable[[str, str], Union[str, Awaitable[str]]]
"""By what right a device is attached: `authorization(device, address)`, plain or a coroutine, asked on each connection.

`device` is `APPLICATION/DEVICE`, `address` the node's that the client is connected to. The answer is what would stand in
the HTTP field `Authorization`.
"""


def key_proof(id: str, key: str, **options: Any) -> Authorization:
    """Proves, on each connection anew, that a device has an application's key; the key itself does not travel.

    `id` is the key's in the server's configuration. `options` are those of `httpx.AsyncClient`, such as `verify`:
    each proof takes a challenge, which is fetched with a request of its own from the node that the client is connected to.
    """

    turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    async def prove(device: str, address: str) -> str:
        async with turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(FETCHES_MAX)):
            challenge = (await fetch(address, "/devices/challenge", options))["challenge"]
        mac = hmac.new(key.encode(), f"{challenge}\n{device}".encode(), hashlib.sha256).hexdigest()
        return f'Tidegate-HMAC key="{id}", challenge="{challenge}", mac="{mac}"'

    return prove


class Device(Handling):
    """A device that is asked, across connections, until `detach`. As a context manager it detaches itself.

    It ends with the error 4224 when another connection attaches under its name.
    """

    def __init__(
        self, index: int, name: str, handler: RequestHandler, authorization: Authorization | None, owner: Owner
    ) -> None:
        """Use `Client.attach`."""
        super().__init__(index, [f"devices/{name}"], handler, owner)
        self._name = name
        self._authorization = authorization
        self._authorizing: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """`APPLICATION/DEVICE`."""
        return self._name

    def detach(self) -> None:
        """Ends it: no more requests come. Those that are open are still answered; closing the client cancels them."""
        self.unhandle()

    def __enter__(self) -> Device:
        return self

    def _handle_told(self, told: HandlingChange | Asked | AuthorizationWanted) -> None:
        if isinstance(told, AuthorizationWanted):
            self._stop_authorizing()
            self._authorizing = self._run(self._authorize(told.connection))
            return
        super()._handle_told(told)
        if self._state == "ended":
            self._stop_authorizing()

    def _stop_authorizing(self) -> None:
        if self._authorizing is not None:
            self._authorizing.cancel()

    async def _authorize(self, connection: int) -> None:
        owner = self._owner
        assert self._authorization is not None, "it is wanted only where there is one"
        try:
            given = self._authorization(self._name, owner.address)
            authorization = await given if inspect.isawaitable(given) else given
            if not isinstance(authorization, str):
                raise TypeError(f"it gave {type(authorization).__name__}, and not str")
            # What cannot be sent has to be found out here, where somebody can be told.
            encode_command({"authorization": authorization})
        except Exception as error:
            failed = error if isinstance(error, TidegateError) else _failed(self._name, error)
            if owner.refuse(self._index, connection, failed):
                owner.report(failed)
        else:
            owner.authorize(self._index, connection, authorization)


def _failed(device: str, error: Exception) -> TidegateError:
    text = f"cannot attach `{device}` now: its authorization failed with {error!r}; check what `authorization` calls"
    failed = TidegateError(LocalCode.UNREACHABLE, text)
    failed.__cause__ = error
    return failed

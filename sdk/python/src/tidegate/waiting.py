"""Waiting for what a callback brings."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def wait(future: asyncio.Future[T]) -> T:
    """Waits for `future`, which nobody else does. If the waiting is cancelled, an error in it is of no interest."""
    try:
        return await future
    finally:
        if future.done() and not future.cancelled():
            future.exception()


def answer(future: asyncio.Future[T], result: T) -> None:
    """Gives `future` its result, unless whoever waited for it went away."""
    if not future.done():
        future.set_result(result)


def fail(future: asyncio.Future[T], error: Exception) -> bool:
    """Gives `future` its error; answers whether anybody still waited for it."""
    if future.done():
        return False
    future.set_exception(error)
    return True


async def race(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Runs all until the first of them ends, and raises what that one raised. The others are cancelled."""
    tasks = [asyncio.get_running_loop().create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

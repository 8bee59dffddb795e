"""Tests may be coroutines: each gets an event loop of its own, and a minute."""

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from server import Server

CONFIG = """
[store]
path = "{store}"
[access]
anonymous = "read"
[[access.tokens]]
token = "writer"
name = "writer"
publish = ["#"]
subscribe = ["#"]
[[topics]]
selector = "kept/#"
ack = "disk"
[[topics]]
selector = "short/#"
history_count = 2
[[topics]]
selector = "long/#"
history_count = 10000
[limits]
fragment_bytes = 20000
subscriptions_per_session_max = 20
"""


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """One server for all tests of a module, configured as its `CONFIG` says, if it has one."""
    with Server(getattr(request.module, "CONFIG", CONFIG)) as server:
        yield server


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(asyncio.wait_for(test(**arguments), 60))
    return True

"""Handlers by name of event."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any], object]


class Emitter:
    """Calls handlers. What one raises goes to `report`, and the others are called all the same."""

    def __init__(self, names: frozenset[str], report: Callable[[Exception, str], None]) -> None:
        self._handlers: dict[str, list[Callable[[], Handler]]] = {name: [] for name in names}
        self._report = report

    def on(self, name: str, handler: Handler) -> Callable[[], None]:
        """Adds a handler; the function that it answers takes it away.

        Raises `ValueError` if there is no such event, `TypeError` if the handler would have to be awaited.
        """
        if name not in self._handlers:
            raise ValueError(f"cannot handle `{name}`: there is no such event; use one of {sorted(self._handlers)}")
        if inspect.iscoroutinefunction(handler):
            raise TypeError(
                f"cannot handle `{name}` with a coroutine function: nothing would await it; use a plain function, "
                "or read in an `async for` loop"
            )
        handlers = self._handlers[name]

        # A function of its own, so that a handler added twice is called, and taken away, twice.
        def entry() -> Handler:
            return handler

        def off() -> None:
            if entry in handlers:
                handlers.remove(entry)

        handlers.append(entry)
        return off

    def has(self, name: str) -> bool:
        """Whether anybody handles `name`."""
        return bool(self._handlers[name])

    def emit(self, name: str, event: object) -> bool:
        """Calls the handlers of `name`; answers whether there were any."""
        entries = list(self._handlers[name])
        for entry in entries:
            try:
                entry()(event)
            except Exception as error:
                self._report(error, name)
        return bool(entries)

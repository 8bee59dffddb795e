"""What went over the wire lately, for those who look for a fault."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

from tidegate.subscriptions import Subscriptions

LINES = 20_000


def trace(path: Path) -> Any:
    """Notes what every client is told and what it asks; answers what writes it down."""
    logs: dict[int, deque[str]] = {}

    def note(of: Subscriptions, what: str, value: object) -> None:
        logs.setdefault(id(of), deque(maxlen=LINES)).append(f"{time.monotonic():.4f} {what} {str(value)[:900]}")

    def short(event: Any) -> object:
        return event if "sequence" not in event else f"{event['type']} {event['topic']} {event['sequence']}"

    def wrap(name: str, noted: Any) -> None:
        method = getattr(Subscriptions, name)

        def traced(self: Subscriptions, *given: Any) -> Any:
            answer = noted(self, given, lambda: method(self, *given))
            return answer

        setattr(Subscriptions, name, traced)

    def before(what: str) -> Any:
        def noted(of: Subscriptions, given: Any, call: Any) -> Any:
            note(of, what, short(given[0]) if given else "")
            return call()

        return noted

    def after(what: str) -> Any:
        def noted(of: Subscriptions, given: Any, call: Any) -> Any:
            answer = call()
            if answer is not None:
                note(of, what, answer)
            return answer

        return noted

    wrap("handle_event", before("<"))
    wrap("handle_disconnect", before("--- broken"))
    wrap("poll_command", after(">"))
    wrap("poll_notice", after("  ="))

    def write() -> None:
        path.write_text("".join(f"==== client {n}\n" + "\n".join(log) + "\n" for n, log in enumerate(logs.values())))

    return write

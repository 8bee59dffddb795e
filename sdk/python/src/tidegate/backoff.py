"""Pauses between attempts to connect: they grow, and no two clients have the same. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from .errors import advice_of


class Pauses(Protocol):
    """Bounds of the pauses, in milliseconds."""

    @property
    def first_ms(self) -> float:
        """The whole of the first pause."""

    @property
    def last_ms(self) -> float:
        """The whole of the longest."""


def pause_ms(
    attempt: int, code: int, retry_after_ms: float, pauses: Pauses, random: Callable[[], float]
) -> float:
    """The pause before the next attempt, in milliseconds.

    `attempt` counts those that failed since a connection last stood, from 0; `code` says what ended the last. A
    pause is between half of and the whole of `first_ms`, doubled at each attempt, at most `last_ms`. Codes that say
    "at once", or "with another token", have none the first time. What the server asked for (`retry_after_ms`) is
    never undercut, and stretched by up to a quarter, so that not everybody comes back in the same moment. `random`
    gives a number in [0, 1).
    """
    whole = min(pauses.first_ms * 2 ** min(attempt, 20), pauses.last_ms)
    is_at_once = attempt == 0 and advice_of(code) in ("retry-now", "authenticate-first")
    own = 0.0 if is_at_once else whole * (0.5 + random() / 2)
    return max(own, retry_after_ms * (1 + random() / 4))

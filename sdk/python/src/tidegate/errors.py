"""What went wrong, with a stable number. The server's codes are listed in docs/protocol.md#codes."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal

Advice = Literal["retry-now", "retry-later", "change-first", "authenticate-first", "local"]
"""What to do about a code; it follows from the code's range."""


class LocalCode(IntEnum):
    """Codes of the SDK itself, the same in every SDK (sdk/conformance/README.md). The server never sends them."""

    UNANSWERED = 4900
    """The connection broke before the answer: a publication may or may not have been kept."""
    CLOSED = 4901
    """The client was closed, or the subscription ended."""
    QUEUE_FULL = 4902
    """As many commands wait for a connection as may."""
    BUFFER_FULL = 4903
    """A stream's buffer is full: its reader is too slow."""
    UNREACHABLE = 4904
    """The connection could not be opened, or broke, without a code."""
    MISUSED = 4905
    """What was asked for can never work here."""
    NOT_SENT = 4906
    """There was no connection in time: it was never sent, and is not carried out."""
    RENUMBERED = 4907
    """The numbering of a topic began anew while its history was read."""


class SessionCode(IntEnum):
    """Codes of the server that the SDK has to know, or finds out by itself too."""

    NO_SESSION = 4002
    """The session over plain HTTP ended."""
    RESPONSE_ROLLED = 4003
    """A response went on for as long as one may."""
    MESSAGE_TOO_LARGE = 4206
    """A command of more bytes than the server takes in one message."""
    MISSING_FEATURE = 4236
    """A command of a feature that the server does not name."""
    NOT_OPEN = 4222
    """A request that is answered is not open any more."""
    DEADLINE_PASSED = 4108
    """Nobody answered a request in time."""
    FOREIGN_ORIGIN = 4302
    """The page's origin is not let in, or whatever `Origin` says."""
    UNKNOWN_HOST = 4304
    """The server does not go by the name that it was asked under."""


class TidegateError(Exception):
    """An error of the server, or of the SDK. Match `code`; the text says what failed, why, and what to do."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = int(code)
        self.text = text

    def __str__(self) -> str:
        return f"{self.text} ({self.code})"

    @property
    def advice(self) -> Advice:
        """What to do about it."""
        return advice_of(self.code)


def advice_of(code: int) -> Advice:
    """What to do about `code`: see docs/protocol.md#codes."""
    if 4000 <= code < 4100:
        return "retry-now"
    if 4100 <= code < 4200:
        return "retry-later"
    if 4200 <= code < 4300:
        return "change-first"
    if 4300 <= code < 4400:
        return "authenticate-first"
    return "local"

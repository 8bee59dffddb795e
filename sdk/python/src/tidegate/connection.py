"""The connection as a state machine: nodes, tokens, greeting, silence, pauses.

Pure: it is fed with what happened and when, and drained of what to do. It knows neither sockets nor timers, nor which
transport carries the text. Times are milliseconds of any clock that does not go back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Union

from .backoff import pause_ms
from .errors import LocalCode, SessionCode, TidegateError
from .protocol import FEATURES, Command, Event, command

ConnectionState = Literal[
    "idle", "authorizing", "opening", "greeting", "connected", "waiting", "stopped"
]
"""What a connection is at.

`idle`: not started, or closed by its user. `authorizing`: a token is awaited. `opening`: the transport is.
`greeting`: `hello` was sent. `connected`. `waiting`: for the next attempt. `stopped`: the server's code says that
trying again as it is would be useless.
"""


OF_THE_SESSION = (SessionCode.NO_SESSION, SessionCode.RESPONSE_ROLLED)
"""Codes that say nothing against the node."""

FINAL = (SessionCode.FOREIGN_ORIGIN, SessionCode.UNKNOWN_HOST)
"""Codes that no other token cures."""


@dataclass(frozen=True)
class FetchToken:
    """Ask the provider for a token. The `serial` comes back with the answer, so that a late one is recognised."""

    serial: int
    refused: TidegateError | None


@dataclass(frozen=True)
class Open:
    """Begin to open a transport to `url`."""

    serial: int
    url: str


@dataclass(frozen=True)
class Send:
    """Send a command."""

    command: Command


@dataclass(frozen=True)
class Close:
    """Close the transport."""


@dataclass(frozen=True)
class ConnectionChange:
    """The connection is at something else."""

    state: ConnectionState
    error: TidegateError | None = None
    """Why, if something went wrong."""
    retry_in_ms: float | None = None
    """When it is tried again."""


ConnectionAction = Union[FetchToken, Open, Send, Close]
"""What there is to do."""

Action = Union[ConnectionAction, ConnectionChange]
"""What there is to do, or to tell."""


@dataclass(frozen=True)
class ConnectionTimes:
    """Bounds of a connection, in milliseconds."""

    first_ms: float = 250
    """The whole of the first pause between attempts."""
    last_ms: float = 30_000
    """The whole of the longest."""
    token_ms: float = 30_000
    """How long whoever is asked for a token may take."""
    open_ms: float = 10_000
    """How long opening and greeting may take, each."""
    silence_ms: float = 25_000
    """Silence after which the server is pinged."""
    answer_ms: float = 10_000
    """How long the answer to that may take."""
    full_ms: float = 10_000
    """How long a loop may take nothing of a stream that is full."""
    stable_ms: float = 5_000
    """How long a connection must have stood for the pauses to start again from the shortest."""


@dataclass(frozen=True)
class ConnectionOptions:
    """What a connection is made of."""

    urls: Sequence[str]
    """The nodes, the preferred one first."""
    has_tokens: bool
    """Whether there is somebody to ask for tokens."""
    token: str | None
    """The token, if it is known from the start and there is nobody to ask for another."""
    name: str | None
    """The client's own name, for the server's logs."""
    times: ConnectionTimes
    random: Callable[[], float]
    """A number in [0, 1)."""
    next_id: Callable[[], int]
    """The next command's id."""


class Connection:
    """The state machine."""

    def __init__(self, options: ConnectionOptions) -> None:
        self._options = options
        self._state: ConnectionState = "idle"
        self._serial = 0
        self._node = 0
        self._tried = options.urls[0]
        self._attempt = 0
        self._token = options.token
        self._needs_token = options.has_tokens
        self._refused: TidegateError | None = None
        # The id of the `hello` or `ping` whose answer is awaited.
        self._asked_as: int | None = None
        # When the current state has lasted long enough: the attempt, the pause, the silence.
        self._due_at: float | None = None
        self._connected_at = 0.0
        self._message_bytes_max: int | None = None
        self._features: list[str] | None = None
        self._actions: deque[Action] = deque()

    @property
    def state(self) -> ConnectionState:
        """What it is at."""
        return self._state

    @property
    def wake_at(self) -> float | None:
        """When it has to be woken, if nothing happens before."""
        return self._due_at

    @property
    def message_bytes_max(self) -> int | None:
        """How many bytes the server takes in one message, if it said so."""
        return self._message_bytes_max

    def has(self, feature: str) -> bool:
        """Whether the server says that it has something that not every version has."""
        return self._features is not None and feature in self._features

    def lacks(self, feature: str | None) -> bool:
        """Whether the server said that it has no such feature. One that lists none has those of before the list."""
        return feature is not None and self._features is not None and feature not in self._features

    @property
    def url(self) -> str:
        """The node that it is connected to, or that is tried next."""
        return self._options.urls[self._node]

    @property
    def tried(self) -> str:
        """The node that was tried last."""
        return self._tried

    def is_current(self, serial: int) -> bool:
        """Whether what the transport with this serial tells still matters."""
        return serial == self._serial and self._is_online()

    def start(self, now: float) -> None:
        """Starts, or starts again after it stopped. Nothing happens while it is going on."""
        if self._state not in ("idle", "stopped"):
            return
        self._attempt = 0
        self._needs_token = self._options.has_tokens
        self._begin(now)

    def stop(self) -> None:
        """Ends it for good, until somebody starts it again."""
        if self._state == "idle":
            return
        self._leave()
        self._enter("idle")

    def nudge(self, now: float) -> None:
        """Tries now: ends a pause; asks for a token again; asks a server that seems to be there for a sign of life."""
        if self._state in ("waiting", "authorizing"):
            self._begin(now)
        elif self._state == "connected" and self._asked_as is None:
            self._ping(now)

    def handle_token(self, serial: int, token: str | None, now: float) -> None:
        """Takes the token that was asked for."""
        if serial != self._serial or self._state != "authorizing":
            return
        self._token = token
        self._needs_token = False
        self._open(now)

    def handle_token_failed(self, serial: int, error: TidegateError, now: float) -> None:
        """Notes that there was no token to be had. An error with a code is obeyed like the server's."""
        if serial != self._serial or self._state != "authorizing":
            return
        if error.advice in ("change-first", "authenticate-first"):
            self._give_up(error)
        else:
            self._retry(error, 0, now)

    def handle_open(self, serial: int, now: float) -> None:
        """Notes that the transport is open."""
        if serial != self._serial or self._state != "opening":
            return
        self._asked_as = self._options.next_id()
        who = {"token": self._token, "client": self._options.name}
        hello = command("hello", self._asked_as, batch=True, fragments=True, features=FEATURES, **who)
        self._enter("greeting")
        self._due_at = now + self._options.times.open_ms
        self._actions.append(Send(hello))

    def handle_close(
        self, serial: int, code: int | None, text: str, now: float, retry_after_ms: float = 0
    ) -> None:
        """Notes that the transport is closed, with the server's code if it gave one, and how long to stay away."""
        if not self.is_current(serial):
            return
        is_ours = code is not None and 4000 <= code < 4400
        error = TidegateError(code if code is not None and is_ours else LocalCode.UNREACHABLE, text)
        self._handle_break(error, retry_after_ms, now)

    def handle_heard(self, serial: int, now: float) -> None:
        """Notes that the server was heard."""
        if serial != self._serial or self._state != "connected":
            return
        times = self._options.times
        self._due_at = now + (times.silence_ms if self._asked_as is None else times.answer_ms)

    def handle_event(self, event: Event, now: float) -> bool:
        """Takes an event; answers whether it was for the connection itself."""
        if event["type"] == "closing":
            error = TidegateError(event["code"], event["error"])
            self._handle_break(error, event.get("retry_after_ms", 0), now)
            return True
        if event.get("id") is None or event["id"] != self._asked_as:
            return False
        self._asked_as = None
        if event["type"] == "refused":
            self._handle_break(TidegateError(event["code"], event["error"]), 0, now)
            return True
        if event["type"] == "welcome":
            self._connected_at = now
            self._message_bytes_max = event.get("limits", {}).get("message_bytes_max")
            self._features = event.get("features")
            self._refused = None
            self._enter("connected")
        self._due_at = now + self._options.times.silence_ms
        return True

    def handle_wake(self, now: float) -> None:
        """Does what is due."""
        if self._due_at is None or now < self._due_at:
            return
        if self._state == "waiting":
            self._begin(now)
        elif self._state == "connected" and self._asked_as is None:
            self._ping(now)
        elif self._state == "authorizing":
            text = "cannot get a token: there is none in time; check what the option `token` calls, or raise `token_ms`"
            self.handle_token_failed(self._serial, TidegateError(LocalCode.UNREACHABLE, text), now)
        else:
            text = f"cannot reach {self.url}: it did not answer in time; check that it is up, and the network"
            self._handle_break(TidegateError(LocalCode.UNREACHABLE, text), 0, now)

    def poll_action(self) -> Action | None:
        """What to do next."""
        return self._actions.popleft() if self._actions else None

    def _is_online(self) -> bool:
        return self._state in ("opening", "greeting", "connected")

    def _enter(
        self, state: ConnectionState, error: TidegateError | None = None, retry_in_ms: float | None = None
    ) -> None:
        self._state = state
        self._due_at = None
        self._actions.append(ConnectionChange(state, error, retry_in_ms))

    def _leave(self) -> None:
        """Lets go of what is under way: answers to it come too late."""
        if self._is_online():
            self._actions.append(Close())
        self._serial += 1
        self._asked_as = None

    def _begin(self, now: float) -> None:
        if not self._needs_token:
            return self._open(now)
        self._serial += 1
        self._enter("authorizing")
        self._due_at = now + self._options.times.token_ms
        self._actions.append(FetchToken(self._serial, self._refused))

    def _open(self, now: float) -> None:
        self._serial += 1
        self._enter("opening")
        self._due_at = now + self._options.times.open_ms
        self._tried = self.url
        self._actions.append(Open(self._serial, self.url))

    def _ping(self, now: float) -> None:
        self._asked_as = self._options.next_id()
        self._due_at = now + self._options.times.answer_ms
        self._actions.append(Send(command("ping", self._asked_as)))

    def _handle_break(self, error: TidegateError, retry_after_ms: float, now: float) -> None:
        if not self._is_online():
            return
        if self._state == "connected" and now - self._connected_at >= self._options.times.stable_ms:
            self._attempt = 0
        self._leave()
        if error.advice == "change-first" or error.code in FINAL:
            return self._give_up(error)
        if error.advice == "authenticate-first":
            if not self._options.has_tokens:
                return self._give_up(error)
            self._needs_token = True
            self._refused = error
        elif error.code not in OF_THE_SESSION:
            # Another token would be refused by this node just as by the next; all else may be the node.
            self._node = (self._node + 1) % len(self._options.urls)
        self._retry(error, retry_after_ms, now)

    def _retry(self, error: TidegateError, retry_after_ms: float, now: float) -> None:
        options = self._options
        # A pause grows when all nodes were tried.
        rounds = self._attempt // len(options.urls)
        pause = pause_ms(rounds, error.code, retry_after_ms, options.times, options.random)
        self._attempt += 1
        self._enter("waiting", error, pause)
        self._due_at = now + pause

    def _give_up(self, error: TidegateError) -> None:
        self._serial += 1
        self._refused = error
        self._enter("stopped", error)

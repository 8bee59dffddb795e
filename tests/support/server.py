"""Starts the real server and stops it: the one way for every test in Python, those of the SDK as well."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
BUILT = [ROOT / "target" / profile / "tidegate" for profile in ("ci", "release")]

# How long anything may take that should happen at once: long, because a machine that runs all tests is slow.
PATIENCE_SECONDS = 60

T = TypeVar("T")

_places: list[socket.socket] = []


def find_program() -> str:
    """The server that TIDEGATE names, or one that was built here."""
    named = os.environ.get("TIDEGATE")
    return named or next((str(path) for path in BUILT if path.exists()), str(BUILT[0]))


PROGRAM = find_program()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody else gets as long as this process lives.

    A socket that does not listen stays bound to it. Linux gives such a port neither to clients nor to whoever asks for any
    port, but lets those listen on it who set SO_REUSEADDR (as the server, nginx and Python's own servers do).
    """
    place = socket.socket()
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    place.bind(("127.0.0.1", 0))
    _places.append(place)
    port: int = place.getsockname()[1]
    return port


def until(condition: Callable[[], T], what: object, seconds: float = PATIENCE_SECONDS) -> T:
    """Waits for what comes by itself, and answers it; `what` (or what it answers) says what did not come."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.02)
    return found


class Server:
    """A server with files of its own and a port that stays its own, so that it can be killed and started again.

    `{store}` in `config` is a directory for its store, `{address}` its address where it names listeners. It has two shards, unless `config` says something of `[engine]`.
    As a context manager it is started, and removed in the end.
    """

    def __init__(
        self,
        config: str | None = "",
        folder: Path | None = None,
        *,
        words: Sequence[str] = ("serve",),
        env: Mapping[str, str] | None = None,
        preexec_fn: Callable[[], None] | None = None,
    ) -> None:
        self._own_folder = None if folder else tempfile.mkdtemp(prefix="tidegate-")
        self.folder = folder or Path(self._own_folder or "")
        self.file = self.folder / "tidegate.toml"
        self.data = self.folder / "data"
        self.port = free_port()
        self.process: subprocess.Popen[str] | None = None
        #: What it wrote to its standard error since its last start.
        self.lines: list[str] = []
        self._words, self._env, self._preexec = list(words), env, preexec_fn
        self._config = config

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """Where clients of the SDKs and the command line connect."""
        return f"ws://{self.address}"

    @property
    def http(self) -> str:
        return f"http://{self.address}"

    def command(self) -> list[str]:
        """What starts it."""
        file = [] if self._config is None else ["--config", str(self.file)]
        has_listeners = self._config is not None and "[[listeners]]" in self._config
        return [PROGRAM, *self._words, *file, *([] if has_listeners else ["--listen", self.address])]

    def configure(self, config: str) -> None:
        """Writes its configuration, which a start or a reload reads."""
        text = config.replace("{store}", str(self.data)).replace("{address}", self.address)
        self.file.write_text(text if "[engine]" in text else f"{text}\n[engine]\nshards = 2\n")

    def launch(self) -> Server:
        """Starts it where it was before, and does not wait for it."""
        assert self.process is None, "it runs"
        if self._config is not None:
            self.configure(self._config)
        self.lines = lines = []
        self._listens = listens = threading.Event()
        self.process = process = subprocess.Popen(
            self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=self._env, preexec_fn=self._preexec
        )
        stderr = process.stderr
        assert stderr is not None

        def read() -> None:
            with stderr:
                for line in stderr:
                    lines.append(line)
                    if re.search(r"\blistening\b", line):
                        listens.set()

        self._reading = threading.Thread(target=read, daemon=True)
        self._reading.start()
        return self

    def start(self, config: str | None = None) -> Server:
        """Starts it where it was before, perhaps with another configuration; returns when it listens."""
        if config is not None:
            self._config = config
        process = self.launch().process
        assert process is not None

        def listens() -> bool:
            if process.poll() is not None:
                self._reading.join()
                raise AssertionError(f"the server ended with {process.returncode}: {self.errors()}")
            # It says so, unless its log is to be silent.
            return self._listens.wait(0.05) or self.status("/ready") == 200

        until(listens, "it does not listen")
        return self

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.remove()

    def errors(self) -> str:
        """What it said since its last start."""
        return "".join(self.lines)

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None, "it does not run"
        self.process.send_signal(number)

    def wait(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Waits for its end: its exit status. All that it said is in `lines` then."""
        process = self.process
        assert process is not None, "it does not run"
        status = process.wait(seconds)
        self.process = None
        self._reading.join(PATIENCE_SECONDS)
        return status

    def kill(self) -> None:
        """Ends it without a word, if it runs."""
        if self.process is not None:
            self.process.kill()
            self.wait()

    def stop(self) -> int:
        """Ends it in order: its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def remove(self) -> None:
        """Ends it and removes its files, if it chose where they are."""
        self.kill()
        if self._own_folder is not None:
            shutil.rmtree(self._own_folder, ignore_errors=True)

    def run(self, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:
        """A command of the command line against it."""
        command = [PROGRAM, *map(str, words), "--server", self.url]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, **options)

    def get(self, path: str, timeout: float = PATIENCE_SECONDS) -> Any:
        """The JSON at a path."""
        with urllib.request.urlopen(f"{self.http}{path}", timeout=timeout) as answer:
            return json.load(answer)

    def status(self, path: str) -> int | None:
        """What a path is answered with; nothing where nobody listens, or answers soon."""
        try:
            with urllib.request.urlopen(f"{self.http}{path}", timeout=5) as answer:
                status: int = answer.status
                return status
        except urllib.error.HTTPError as error:
            error.close()
            return error.code
        except OSError:
            return None

    def publish(self, body: Mapping[str, Any], token: str | None = None) -> dict[str, Any]:
        """Publishes over HTTP, as somebody else would. Must succeed."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(f"{self.http}/v1/publish", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            answered: dict[str, Any] = json.load(answer)
            return answered

    def send(self, device: str, body: str, *, key: str) -> tuple[int, Any]:
        """Asks `APPLICATION/DEVICE` over HTTP; answers the status, and the answer's JSON."""
        application, name = device.split("/")
        url = f"{self.http}/v1/devices/{name}/send?application={application}"
        request = urllib.request.Request(url, body.encode(), {"Authorization": f"Bearer {key}"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def metric(self, name: str) -> float:
        """A number for operators, of all shards together."""
        with urllib.request.urlopen(f"{self.http}/metrics", timeout=PATIENCE_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[1]) for line in lines if re.match(rf"{name}[ {{]", line))

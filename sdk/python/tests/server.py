"""Starts the real server on a free port; kills it, and starts it again on the same one."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parents[3]
BUILT = [ROOT / "target" / profile / "tidegate" for profile in ("ci", "release")]


def program() -> str:
    """The server that TIDEGATE names, or one that was built here."""
    named = os.environ.get("TIDEGATE")
    found = named or next((str(path) for path in BUILT if path.exists()), None)
    if found is None:
        raise FileNotFoundError("there is no server to test against: build it, or set TIDEGATE to its path")
    return found


class Server:
    """A server with files of its own; `{store}` in `config` is a directory for its store.

    As a context manager it is started, and removed in the end.
    """

    def __init__(self, config: str = "") -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="tidegate-"))
        text = config.replace("{store}", str(self._directory / "store"))
        (self._directory / "tidegate.toml").write_text(f"[engine]\nshards = 2\n{text}")
        self._child: subprocess.Popen[str] | None = None
        self._listener: threading.Thread | None = None
        self._address = "127.0.0.1:0"

    @property
    def url(self) -> str:
        return f"ws://{self._address}"

    @property
    def port(self) -> int:
        return int(self._address.split(":")[1])

    def start(self) -> None:
        """Starts it, the second time where it was before; returns when it listens."""
        options = ["serve", "--config", str(self._directory / "tidegate.toml"), "--listen", self._address]
        self._child = subprocess.Popen([program(), *options], stderr=subprocess.PIPE, text=True)
        assert self._child.stderr is not None
        log = ""
        for line in self._child.stderr:
            log += line
            listening = re.search(r"listening address=(\S+)", line)
            if listening:
                self._address = listening[1]
                # What it says from now on has to be taken, or it would wait.
                self._listener = threading.Thread(target=_drain, args=[self._child.stderr], daemon=True)
                self._listener.start()
                return
        raise RuntimeError(f"the server ended with {self._child.wait()}: {log}")

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def kill(self) -> None:
        """Ends it without a word."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it in order."""
        self._end(signal.SIGTERM)

    def remove(self) -> None:
        """Ends it and removes its files."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def publish(self, body: dict[str, Any], token: str | None = None) -> dict[str, Any]:
        """Publishes over HTTP, as somebody else would. Must succeed."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = f"http://{self._address}/v1/publish"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            answered: dict[str, Any] = json.load(answer)
            return answered

    def send(self, device: str, body: str, *, key: str) -> tuple[int, Any]:
        """Asks `APPLICATION/DEVICE` over HTTP; answers the status, and the answer's JSON."""
        application, name = device.split("/")
        url = f"http://{self._address}/v1/devices/{name}/send?application={application}"
        request = urllib.request.Request(url, body.encode(), {"Authorization": f"Bearer {key}"})
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def metric(self, name: str) -> float:
        """A number for operators, of all shards together."""
        with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[1]) for line in lines if re.match(rf"{name}[ {{]", line))

    def _end(self, with_signal: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.send_signal(with_signal)
            child.wait()
            if self._listener is not None:
                self._listener.join()


def _drain(stream: IO[str]) -> None:
    with stream:
        stream.read()

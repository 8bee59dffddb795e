"""The server under a service manager: what it tells systemd, and when."""

import os
import signal
import socket
import subprocess
import urllib.request

import pytest
from test_named import PROGRAM
from test_native import free_port


@pytest.fixture
def manager(tmp_path):
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        yield manager


def start(port, notify_socket, *words):
    environment = {**os.environ, "NOTIFY_SOCKET": str(notify_socket)}
    command = [PROGRAM, "serve", "--listen", f"127.0.0.1:{port}", *words]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def test_the_manager_is_told_when_the_server_listens_and_when_it_stops(manager, tmp_path):
    port = free_port()
    server = start(port, tmp_path / "notify", "--shards", "3")
    try:
        assert manager.recv(1000) == b"READY=1\n"
        # Listening is over at that moment: the first try succeeds.
        urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=30)
        server.send_signal(signal.SIGTERM)
        assert manager.recv(1000) == b"STOPPING=1\n"
        assert server.wait(timeout=60) == 0
    finally:
        server.kill()


def test_a_server_that_cannot_start_is_never_ready(manager, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = start(taken.getsockname()[1], tmp_path / "notify")
        assert server.wait(timeout=60) != 0
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(1000)


def test_a_manager_that_is_not_there_is_told_to_the_log(tmp_path):
    server = start(free_port(), tmp_path / "nobody")
    try:
        line = next(line for line in server.stderr if "service manager" in line)
        assert "NOTIFY_SOCKET" in line
    finally:
        server.kill()

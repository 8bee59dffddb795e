"""The server under a service manager: what it tells systemd, and when."""

import os
import signal
import socket

import pytest
from server import Server, until


@pytest.fixture
def manager(tmp_path):
    """The socket of a service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        yield manager


def service(folder, notify_socket, *words):
    environment = {**os.environ, "NOTIFY_SOCKET": str(notify_socket)}
    return Server(None, folder, words=["serve", *words], env=environment)


def test_the_manager_is_told_when_the_server_listens_and_when_it_stops(manager, tmp_path):
    server = service(tmp_path, tmp_path / "notify", "--shards", "3").launch()
    try:
        assert manager.recv(1000) == b"READY=1\n"
        # Listening is over at that moment: the first try succeeds.
        server.get("/ready")
        server.signal(signal.SIGTERM)
        assert manager.recv(1000) == b"STOPPING=1\n"
        assert server.wait() == 0
    finally:
        server.kill()


def test_a_server_that_cannot_start_is_never_ready(manager, tmp_path):
    server = service(tmp_path, tmp_path / "notify")
    with socket.create_server(("127.0.0.1", server.port)):
        assert server.launch().wait() == 1
    assert "already in use" in server.errors(), server.errors()
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(1000)


def test_a_manager_that_is_not_there_is_told_to_the_log(tmp_path):
    server = service(tmp_path, tmp_path / "nobody").launch()
    try:
        until(lambda: "service manager" in server.errors(), "it is not told")
        assert "NOTIFY_SOCKET" in next(line for line in server.lines if "service manager" in line)
    finally:
        server.kill()

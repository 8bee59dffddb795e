"""Where the artefacts are, an old machine to try them on, and a server that runs from its folder."""

import os
import pathlib
import shutil
import socket
import subprocess
import time
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DIST = pathlib.Path(os.environ["DIST"])
VERSION = os.environ["VERSION"]


def run(*command, **options):
    """What a command prints; it has to succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def ask(port, path, **options):
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", **options)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


class Server:
    """A server that listens on `port`; `command` starts it."""

    def __init__(self, command, port, **options):
        self.port = port
        self.process = subprocess.Popen([str(word) for word in command], **options)
        deadline = time.monotonic() + 60
        while True:
            try:
                ask(port, "/ready")
                return
            except OSError:
                assert self.process.poll() is None, "it ended"
                assert time.monotonic() < deadline, "it does not listen"
                time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=60)


@pytest.fixture
def debian_11(tmp_path):
    """A Debian 11 of its own: glibc 2.31, dpkg, no systemd."""
    root = tmp_path / "root"
    run("cp", "--archive", os.environ["DEBIAN_11"], root)
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory):
    """The folder of the tarball."""
    folder = tmp_path_factory.mktemp("tarball")
    run("tar", "--directory", folder, "-xzf", DIST / f"tidegate-{VERSION}-linux-x86_64.tar.gz")
    return folder / f"tidegate-{VERSION}-linux-x86_64"


@pytest.fixture
def server(unpacked):
    port = free_port()
    started = Server([unpacked / "tidegate", "serve", "--listen", f"127.0.0.1:{port}"], port)
    yield started
    started.stop()

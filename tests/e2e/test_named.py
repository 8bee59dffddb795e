"""`tidegate sub --name`: the server remembers how far a client came that keeps nothing itself."""

import json
import subprocess
import threading
import time
import urllib.request

from test_native import PROGRAM, free_port

CONFIG = '[store]\npath = "{path}"\n[[topics]]\nselector = "jobs/#"\nack = "disk"\n'


def until(condition, what, seconds=15):
    """Waits for what comes by itself."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


class Server:
    """A server with a store in `folder`, and the command line against it."""

    def __init__(self, folder, port, config=CONFIG, **options):
        self.port = port
        file = self.config = folder / "tidegate.toml"
        file.write_text(config.format(path=folder / "data"))
        self.process = subprocess.Popen(self.command(file), stderr=subprocess.PIPE, text=True, **options)
        self.lines = []
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True).start()
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
                return
            except OSError:
                assert self.process.poll() is None, self.lines
                time.sleep(0.05)
        raise AssertionError("it does not listen")

    def command(self, file):
        return [PROGRAM, "serve", "--config", file, "--listen", f"127.0.0.1:{self.port}"]

    def errors(self):
        return "".join(self.lines)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def run(self, *words, **options):
        command = [PROGRAM, *words, "--server", f"ws://127.0.0.1:{self.port}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, **options)

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return json.load(answer)


def test_a_named_subscriber_goes_on_after_a_kill(tmp_path):
    port = free_port()
    server = Server(tmp_path, port)
    try:
        lines = "\n".join(f"job {number}" for number in range(1, 11))
        assert server.run("pub", "jobs/a", "-", input=lines + "\n").returncode == 0
        first = server.run("sub", "jobs/+", "--name", "worker", "--count", "4")
        assert first.stdout.splitlines() == [f"jobs/a {n} job {n}" for n in range(1, 5)]
        assert first.returncode == 0, first.stderr
        server.kill()
        server = Server(tmp_path, port)
        rest = server.run("sub", "jobs/+", "--name", "worker", "--count", "6")
        assert rest.stdout.splitlines() == [f"jobs/a {n} job {n}" for n in range(5, 11)]
        other = server.run("sub", "jobs/+", "--name", "another", "--count", "1")
        assert other.stdout.splitlines() == ["jobs/a 1 job 1"]
        wrong = server.run("sub", "jobs/+", "--name", "a/b", "--count", "1")
        assert wrong.returncode == 2 and "A-Z" in wrong.stderr
    finally:
        server.kill()

"""`tidegate sub --name`: the server remembers how far a client came that keeps nothing itself."""

import pathlib
import socket
import subprocess
import time

PROGRAM = pathlib.Path(__file__).parents[2] / "target/ci/tidegate"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, folder, port):
        self.port = port
        config = folder / "tidegate.toml"
        config.write_text(
            f'[store]\npath = "{folder}/data"\n[[topics]]\nselector = "jobs/#"\nack = "disk"\n'
        )
        listen = f"127.0.0.1:{port}"
        self.process = subprocess.Popen([PROGRAM, "serve", "--config", config, "--listen", listen])
        for _ in range(200):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError("it does not listen")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def run(self, *words, **options):
        command = [PROGRAM, "--server", f"ws://127.0.0.1:{self.port}", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, **options)


def test_a_named_subscriber_goes_on_after_a_kill(tmp_path):
    port = free_port()
    server = Server(tmp_path, port)
    try:
        lines = "\n".join(f"job {number}" for number in range(1, 11))
        assert server.run("pub", "jobs/a", "-", input=lines + "\n").returncode == 0
        first = server.run("sub", "jobs/+", "--name", "worker", "--count", "4")
        assert first.stdout.split("\n")[:4] == [f"jobs/a {n} job {n}" for n in range(1, 5)]
        assert first.returncode == 0, first.stderr
        server.kill()
        server = Server(tmp_path, port)
        rest = server.run("sub", "jobs/+", "--name", "worker", "--count", "6")
        assert rest.stdout.splitlines() == [f"jobs/a {n} job {n}" for n in range(5, 11)]
        other = server.run("sub", "jobs/+", "--name", "another", "--count", "1")
        assert other.stdout.splitlines() == ["jobs/a 1 job 1"]
        wrong = server.run("sub", "jobs/+", "--name", "a/b", "--count", "1")
        assert wrong.returncode == 4 and "A-Z" in wrong.stderr
    finally:
        server.kill()

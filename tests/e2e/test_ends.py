"""How the real server ends: by a panic, by signals, in time."""

import json
import os
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request

import pytest
from test_named import PROGRAM, free_port, until
from websockets.sync.client import connect

CONFIG = """
[engine]
shards = 2
[store]
path = "{path}"
[[topics]]
selector = "d/#"
ack = "disk"
[limits]
stop_ms = 3000
memory_bytes_max = 1000000000
[[webhooks]]
name = "erp"
url = "http://127.0.0.1:9/"
topics = ["orders/#"]
secrets = ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
"""
THREADS = ["shard-0", "shard-1", "store-writer", "store-reader", "memory", "api"]
THREADS += ["hook-erp", "post-erp", "keep-erp", "read-erp"]


class Program:
    """A server that is started, and not waited for."""

    def __init__(self, folder, more="", config=CONFIG):
        self.port = free_port()
        command = [PROGRAM, "serve", "--listen", f"127.0.0.1:{self.port}"]
        if config:
            file = folder / "tidegate.toml"
            file.write_text(config.format(path=folder / "data") + more)
            command += ["--config", file]
        env = {name: value for name, value in os.environ.items() if name != "RUST_BACKTRACE"}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self.lines = []
        self.reading = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reading.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def listens(self):
        return self.status("/health") == 200

    def status(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            self.refusal = json.load(error)
            return error.code
        except OSError:
            return None

    def is_caught(self, number):
        with open(f"/proc/{self.process.pid}/status") as status:
            caught = next(line for line in status if line.startswith("SigCgt:"))
        return int(caught.split()[1], 16) >> (number - 1) & 1

    def end(self, seconds=60):
        """Its exit status, and what it said."""
        status = self.process.wait(seconds)
        self.reading.join(10)
        return status, "".join(self.lines)


@pytest.mark.parametrize("thread", THREADS)
def test_a_thread_that_panics_ends_the_process_and_says_why_in_one_line(tmp_path, thread):
    with Program(tmp_path, f'[diagnostics]\nfault = "panic {thread}"\n') as program:
        status, said = program.end()
    assert status == 1, said
    lines = [line for line in said.splitlines() if "panicked" in line]
    assert len(lines) == 1, said
    assert f"the thread `{thread}` panicked: the configuration says so (" in lines[0], said


def test_a_shard_that_does_not_answer_is_named_by_ready_and_by_the_end(tmp_path):
    with Program(tmp_path, '[diagnostics]\nfault = "stall shard-1"\n') as program:
        # Connections that the stalled shard was given are never answered.
        until(lambda: program.status("/ready") == 503, "it is not ready")
        assert "shard-1 does not answer" in program.refusal["error"]
        program.process.send_signal(signal.SIGTERM)
        status, said = program.end()
    assert status == 1, said
    assert "did not stop within limits.stop_ms: still at work: shard-1" in said, said


def test_a_webhook_that_does_not_end_is_named(tmp_path):
    with Program(tmp_path, '[diagnostics]\nfault = "stall hook-erp"\n') as program:
        until(program.listens, "it listens")
        program.process.send_signal(signal.SIGTERM)
        status, said = program.end()
    assert (status, "hook-erp" in said) == (1, True), said


def test_a_stop_under_load_ends_in_order(tmp_path):
    with Program(tmp_path) as program:
        until(program.listens, "it listens")
        assert program.status("/ready") == 200
        over = threading.Event()

        def publish(topic):
            with connect(f"ws://127.0.0.1:{program.port}/v1/ws") as socket:
                command = json.dumps({"type": "publish", "topic": topic, "data": "x" * 500})
                while not over.is_set():
                    socket.send(command)

        def load(topic):
            try:
                publish(topic)
            except Exception:
                assert over.is_set() or program.process.poll() is not None or stopping.is_set()

        stopping = threading.Event()
        threads = [threading.Thread(target=load, args=(topic,)) for topic in ("d/a", "d/b", "m/a", "orders/a")]
        for thread in threads:
            thread.start()
        until(lambda: program.status("/v1/topics/d/a") == 200, "there is load")
        stopping.set()
        program.process.send_signal(signal.SIGTERM)
        status, said = program.end()
        over.set()
        for thread in threads:
            thread.join()
    assert status == 0, said


def test_a_second_signal_ends_at_once(tmp_path):
    with Program(tmp_path, '[diagnostics]\nfault = "stall hook-erp"\n') as program:
        until(program.listens, "it listens")
        program.process.send_signal(signal.SIGTERM)
        until(lambda: program.status("/ready") == 503, "the stop has begun")
        program.process.send_signal(signal.SIGTERM)
        status, said = program.end()
    assert (status, "did not stop" in said) == (128 + signal.SIGTERM, False), said


@pytest.mark.parametrize("config", [CONFIG, ""], ids=["file", "no-file"])
def test_a_reload_before_the_start_is_over_is_carried_out_after_it(tmp_path, config):
    for _ in range(10):
        with Program(tmp_path, config=config) as program:
            until(lambda: program.is_caught(signal.SIGTERM), "signals are caught")
            program.process.send_signal(signal.SIGHUP)
            until(program.listens, "it listens")
            reloaded = "not taken over: the first" if config else "nothing to read anew"
            until(lambda: reloaded in "".join(program.lines), "the reload was carried out")
            program.process.send_signal(signal.SIGTERM)
            status, said = program.end()
            assert status == 0, said


def test_a_stop_before_the_start_is_over_ends_it(tmp_path):
    with Program(tmp_path) as program:
        until(lambda: program.is_caught(signal.SIGTERM), "signals are caught")
        os.kill(program.process.pid, signal.SIGTERM)
        status, said = program.end()
    assert status == 0, said

"""How the real server ends: by a panic, by signals, in time."""

import json
import os
import signal
import threading
import urllib.error

import pytest
from server import Server, until
from websockets.sync.client import connect

CONFIG = """
[engine]
shards = 2
[store]
path = "{store}"
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
THREADS += ["hook-erp", "post-erp"]


class Program(Server):
    """A server that is started, and not waited for."""

    def __init__(self, folder, more="", config=CONFIG):
        env = {name: value for name, value in os.environ.items() if name != "RUST_BACKTRACE"}
        super().__init__(config + more or None, folder, env=env)

    def __enter__(self):
        return self.launch()

    def listens(self):
        return self.status("/health") == 200

    def refusal(self, path):
        """The code and the text with which a path is refused, if it is."""
        try:
            self.get(path, timeout=2)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]
        except OSError:
            return None, None
        return 200, None

    def is_caught(self, number):
        with open(f"/proc/{self.process.pid}/status") as status:
            caught = next(line for line in status if line.startswith("SigCgt:"))
        return int(caught.split()[1], 16) >> (number - 1) & 1

    def end(self):
        """Its exit status, and what it said."""
        return self.wait(), self.errors()


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
        code, text = until(lambda: (refused := program.refusal("/ready"))[0] == 503 and refused, "it is not ready")
        assert "shard-1 does not answer" in text, code
        program.signal(signal.SIGTERM)
        status, said = program.end()
    assert status == 1, said
    assert "did not stop within limits.stop_ms: still at work: shard-1" in said, said


def test_a_webhook_that_does_not_end_is_named(tmp_path):
    with Program(tmp_path, '[diagnostics]\nfault = "stall hook-erp"\n') as program:
        until(program.listens, "it listens")
        program.signal(signal.SIGTERM)
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
        program.signal(signal.SIGTERM)
        status, said = program.end()
        over.set()
        for thread in threads:
            thread.join()
    assert status == 0, said


def test_a_second_signal_ends_at_once(tmp_path):
    with Program(tmp_path, '[diagnostics]\nfault = "stall hook-erp"\n') as program:
        until(program.listens, "it listens")
        program.signal(signal.SIGTERM)
        until(lambda: program.status("/ready") == 503, "the stop has begun")
        program.signal(signal.SIGTERM)
        status, said = program.end()
    assert (status, "did not stop" in said) == (128 + signal.SIGTERM, False), said


@pytest.mark.parametrize("config", [CONFIG, ""], ids=["file", "no-file"])
def test_a_reload_before_the_start_is_over_is_carried_out_after_it(tmp_path, config):
    for _ in range(10):
        with Program(tmp_path, config=config) as program:
            until(lambda: program.is_caught(signal.SIGTERM), "signals are caught")
            program.signal(signal.SIGHUP)
            until(program.listens, "it listens")
            reloaded = "configuration taken over" if config else "nothing to read anew"
            until(lambda: reloaded in program.errors(), "the reload was carried out")
            program.signal(signal.SIGTERM)
            status, said = program.end()
            assert status == 0, said


def test_a_stop_before_the_start_is_over_ends_it(tmp_path):
    with Program(tmp_path) as program:
        until(lambda: program.is_caught(signal.SIGTERM), "signals are caught")
        os.kill(program.process.pid, signal.SIGTERM)
        status, said = program.end()
    assert status == 0, said

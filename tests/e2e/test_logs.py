"""What the server's log says, and what it costs: the real program, its standard error."""

import fcntl
import json
import os
import re
import signal
import subprocess
import time

import httpx
import pytest
from server import PROGRAM, Server, free_port, until
from websockets.sync.client import connect

CONFIG = """
[server]
name = "n1"
[store]
path = "{store}"
[access]
anonymous = "read"
origins = ["https://a.example"]
[[access.tokens]]
token = "secret-of-alice"
name = "alice"
publish = ["a/#"]
subscribe = ["a/#"]
[limits]
payload_bytes_max = 1000
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def start(**environment):
        env = {**os.environ, **environment}
        started.append(Server(CONFIG, tmp_path, env=env).start())
        return started[-1]

    yield start
    for server in started:
        server.kill()


def events(server):
    return [json.loads(line) for line in list(server.lines)]


def stop(server):
    assert server.stop() == 0
    assert "stopped" in server.errors(), server.errors()


def publish(server, topic, token=None):
    fields = {"authorization": f"Bearer {token}"} if token else {}
    url = f"http://127.0.0.1:{server.port}/v1/publish"
    return httpx.post(url, json={"topic": topic, "data": 1}, headers=fields, timeout=60)


def test_a_start_and_a_stop_say_what_an_operator_asks_first(start):
    server = start()
    stop(server)
    said = server.errors()
    for wanted in [
        r"INFO starting version=\"\d+\.\d+\.\d+\" commit=\"\w+\" config=\"/.*/tidegate.toml\" process=\d+",
        r"INFO access anonymous=\"read\" tokens=1 origins=https://a.example hosts= applications=0 webhooks=0",
        r"INFO topics are kept in memory, and on disk by policy store=/.*/data",
        r"INFO limits memory_bytes_max=\"no bound\" changed=payload_bytes_max=1000",
        r"INFO store open store=",
        rf"INFO listening address=127.0.0.1:{server.port} shards=\d+ connections=\d+",
        r"INFO stopping: a signal asked for it",
        r"INFO stopped",
    ]:
        assert re.search(wanted, said), f"{wanted}\n{said}"
    assert "secret-of-alice" not in said


def test_every_line_of_json_is_an_object_and_says_when_and_how_bad(start):
    server = start(TIDEGATE_LOG_FORMAT="json")
    assert publish(server, "b").status_code == 403
    stop(server)
    lines = events(server)
    assert all({"timestamp", "level", "message"} <= line.keys() for line in lines), lines
    assert lines[0]["message"] == "starting" and lines[-1]["message"] == "stopped"
    refused = [line for line in lines if line.get("code") == 4301]
    assert len(refused) == 1 and refused[0]["peer"] == "127.0.0.1", lines
    assert refused[0]["message"].startswith("refused: cannot publish to `b`: anonymous may not; present a token")


def test_the_last_line_of_json_says_what_the_program_failed_of(tmp_path):
    (tmp_path / "t.toml").write_text("[server]\nlisten = 7\n")
    command = [PROGRAM, "serve", "--config", tmp_path / "t.toml", "--log-format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == 5 and lines[-1]["level"] == "ERROR", done
    assert "server.listen" in lines[-1]["message"], done


def test_a_refused_client_is_found_in_the_log_alone(start):
    server = start(TIDEGATE_LOG_FORMAT="json")
    assert publish(server, "a/x", "secret-of-mallory").status_code == 401
    assert publish(server, "b/x", "secret-of-alice").status_code == 403
    assert server.run("sub", "#", "--token", "secret-of-alice").returncode == 4

    def found(code, **members):
        return [e for e in events(server) if e.get("code") == code and members.items() <= e.items()]

    until(lambda: found(4300, word="bad_token", peer="127.0.0.1"), server.errors)
    until(lambda: [e for e in found(4301) if "`b/x`: alice may not" in e["message"]], server.errors)
    of_session = until(lambda: found(4301, principal="alice", client="tidegate-cli"), server.errors)
    assert of_session[0]["session"].startswith("n1-"), of_session
    assert "secret-of" not in server.errors()


def test_what_a_client_does_again_and_again_is_a_few_lines(start):
    server = start()
    first = time.time() // 60
    for _ in range(50):
        assert publish(server, "b").status_code == 403
    stop(server)
    minutes = time.time() // 60 - first + 1
    refusals = [line for line in server.lines if " refused: " in line and "many more were refused: " not in line]
    assert 1 <= len(refusals) <= 3 * minutes, server.errors()


def test_a_client_cannot_write_lines_of_its_own(start):
    server = start()
    assert publish(server, "a/\n2026-01-01T00:00:00Z  INFO all is well\u001b[2J").status_code in (400, 403)
    stop(server)
    assert not [line for line in server.lines if line.startswith("2026-01-01T00:00:00Z")], server.errors()
    assert "\u001b[2J" not in server.errors()


def test_only_as_much_is_said_as_is_asked_for(start):
    silent = start(TIDEGATE_LOG="off")
    assert publish(silent, "b").status_code == 403
    assert silent.stop() == 0
    assert silent.errors() == ""
    loud = start(TIDEGATE_LOG="warn,server=debug")
    assert loud.run("sub", "x", "--from", "all", "--count", "0").returncode == 0
    until(lambda: "session ended" in loud.errors(), loud.errors)
    assert re.search(r'DEBUG session opened session="n1-\d+-\d+-\d+" principal="anonymous" peer=127.0.0.1', loud.errors())
    assert "INFO starting" not in loud.errors()


def test_a_wrong_level_is_told_with_the_right_ones():
    command = [PROGRAM, "serve", "--log-level", "verbose"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "say off, error, warn, info, debug, trace" in done.stderr, done


def test_a_standard_error_that_nobody_reads_stops_nobody(tmp_path):
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4_096)
    port = free_port()
    env = {**os.environ, "TIDEGATE_LOG": "debug"}
    command = [PROGRAM, "serve", "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stderr=writing, env=env)
    os.close(writing)
    try:

        def answers():
            try:
                return httpx.get(f"http://127.0.0.1:{port}/health", timeout=60).status_code == 200
            except httpx.TransportError:
                return False

        until(answers, "it does not listen")

        for _ in range(300):
            with connect(f"ws://127.0.0.1:{port}/v1/ws") as peer:
                peer.send('{"id":1,"type":"ping"}')
                while "pong" not in peer.recv(timeout=60):
                    pass
        assert answers()
        process.send_signal(signal.SIGTERM)
        # Its last lines are waited for, but not for ever.
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reading)

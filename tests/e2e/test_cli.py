"""The command line where things go wrong: full disks, endless input, commands that do not end, servers that are not there."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

import httpx
import pytest
from test_named import PROGRAM, Server
from test_native import free_port

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 20


@pytest.fixture
def server(tmp_path):
    server = Server(tmp_path, free_port(), '[store]\npath = "{path}"\n')
    yield server
    server.kill()


def tool(server, *args, **more):
    command = [PROGRAM, "--server", f"ws://127.0.0.1:{server.port}", *args]
    return subprocess.Popen(command, stderr=subprocess.PIPE, **more)


def wait_until(what, is_so):
    until = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < until, f"waited in vain: {what}"
        time.sleep(0.02)


def publish(server, topic, data):
    answer = httpx.post(f"http://127.0.0.1:{server.port}/v1/publish", json={"topic": topic, "data": data}, timeout=SECONDS)
    assert answer.status_code == 200, answer.text


def runs(mark):
    """Processes that have `mark` in their environment."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
                found.append(int(pid))
    return found


@pytest.mark.parametrize("verb", [["sub", "a"], ["get", "a"]])
def test_a_full_disk_is_told(server, verb):
    publish(server, "a", 1)
    with open("/dev/full", "wb") as full:
        process = tool(server, *verb, stdout=full)
        _, said = process.communicate(timeout=SECONDS)
    assert process.returncode == 1 and b"cannot write to standard output: No space left" in said, said


def test_a_reader_that_has_gone_is_not_worth_a_word(server):
    publish(server, "a", 1)
    reading, writing = os.pipe()
    os.close(reading)
    process = tool(server, "sub", "a", stdout=writing)
    os.close(writing)
    _, said = process.communicate(timeout=SECONDS)
    assert (process.returncode, said) == (0, b"")


# A process keeps the largest memory of what it was before `exec`, a copy of its parent: so a small parent measures.
METER = """
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)
"""


def test_a_line_without_end_is_refused_before_it_fills_the_memory(server):
    command = [sys.executable, "-c", METER, PROGRAM, "--server", f"ws://127.0.0.1:{server.port}", "pub", "a", "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with contextlib.suppress(BrokenPipeError):
        for _ in range(200):
            process.stdin.write(b"x" * (1 << 20))
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    said, largest = process.stderr.read(), int(process.stdout.read())
    assert process.wait(SECONDS) == 4 and b"more than 1048576 bytes" in said, said
    assert largest < 60 << 10, f"{largest} KiB"


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_command_ends_with_the_program_that_handles_requests(server, tmp_path, ending):
    mark = f"MARK_OF_{ending.name}={tmp_path.name}"
    environment = {**os.environ, mark.split("=")[0]: tmp_path.name}
    handler = tool(server, "handle", "jobs/#", "--exec", f"touch {tmp_path}/begun; sleep 3600 & sleep 3600", env=environment)
    url = f"http://127.0.0.1:{server.port}/v1/request?topic=jobs/a&timeout_ms=60000"

    def is_asked():
        # It is not answered in time: what it began runs on.
        with contextlib.suppress(httpx.TimeoutException):
            httpx.post(url, json=1, timeout=0.5)
        return (tmp_path / "begun").exists()

    wait_until("a command runs", is_asked)
    handler.send_signal(ending)
    handler.wait(SECONDS)
    wait_until("nothing of it runs any more", lambda: not runs(mark))


def test_devices_do_not_try_a_dead_server_for_ever(tmp_path):
    command = [PROGRAM, "--server", f"http://127.0.0.1:{free_port()}", "devices", "simulate"]
    process = subprocess.run([*command, "--count", "100", "--application", "a", "--key", "k"], capture_output=True, timeout=60)
    assert process.returncode == 3 and b"nobody answers there, 8 times in a row" in process.stderr, process
    lost = max(int(line.rsplit(b",", 1)[1].split()[0]) for line in process.stdout.splitlines())
    assert lost <= 8 * 64, f"{lost} attempts"


def bench(tmp_path, *args):
    mark = f"MARK_OF_BENCH={tmp_path.name}"
    environment = {**os.environ, "MARK_OF_BENCH": tmp_path.name}
    command = [PROGRAM, "bench", "ping-pong", "--duration", "300", *args]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    wait_until("its server runs beside it", lambda: len(runs(mark)) >= 2)
    return process, mark


def test_a_benchmark_that_is_interrupted_ends_at_once(tmp_path):
    process, mark = bench(tmp_path)
    process.send_signal(signal.SIGINT)
    process.wait(SECONDS)
    assert process.returncode != 0
    wait_until("its server has ended", lambda: not runs(mark))


def test_the_server_of_a_benchmark_ends_with_it_even_if_it_is_killed(tmp_path):
    process, mark = bench(tmp_path)
    process.kill()
    process.wait(SECONDS)
    wait_until("its server has ended", lambda: not runs(mark))


def test_a_conformance_suite_that_cannot_run_fails(tmp_path):
    for name in ["python2.7", "apt-get", "apt-cache"]:
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    process = subprocess.run([ROOT / "tests/conformance/autobahn"], env=environment, capture_output=True, timeout=SECONDS)
    assert process.returncode == 1 and b"pyenv install 2.7" in process.stderr, process

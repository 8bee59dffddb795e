"""The command line: what it says to whoever types it, and where things go wrong: full disks, endless input, commands that do
not end, servers that are not there."""

import contextlib
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import time

import httpx
import pytest
from server import PROGRAM, Server, free_port

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 60


@pytest.fixture
def server(tmp_path):
    server = Server('[store]\npath = "{store}"\n', tmp_path).start()
    yield server
    server.kill()


def tool(server, *args, **more):
    command = [PROGRAM, *args, "--server", f"ws://127.0.0.1:{server.port}"]
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
    command = [sys.executable, "-c", METER, PROGRAM, "pub", "--server", f"ws://127.0.0.1:{server.port}", "a", "-"]
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


@pytest.mark.long
def test_devices_do_not_try_a_dead_server_for_ever(tmp_path):
    command = [PROGRAM, "devices", "simulate", "--server", f"http://127.0.0.1:{free_port()}"]
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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pub", "a//b", "x"], "the level at byte 2 is empty"),
        (["pub", "a/b", "{bad"], "say --text"),
        (["request", "a/b", "[1,"], "say --text"),
        (["sub", "a b#"], "as a selector"),
        (["sub", "a", "--from", "yesterday"], "say snapshot, now, all or last:10"),
        (["sub", "a", "--conflation", "some"], "say off, lagging"),
        (["sub", "a", "--name", "a/b"], "A-Z"),
        (["handle", "#x", "--exec", "true"], "as a selector"),
        (["history", "a", "--since", "soon"], "write such as 10m"),
        (["bench", "nonsense"], "there is no scenario `nonsense`"),
        (["bench", "--scale", "much"], "say auto or 0.1"),
        (["get", "a", "--server", "ftp://x"], "write such as ws://localhost:8470"),
        (["serve", "--listen", "8470"], "write such as"),
        (["serve", "--server", "x"], "unexpected argument"),
        (["config", "check", "--token", "x"], "unexpected argument"),
        (["dance"], "unrecognized subcommand"),
    ],
)
def test_wrong_usage_has_one_exit_code_and_says_the_right_one(words, said):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and said in done.stderr, done


def test_a_filter_that_is_wrong_is_shown_with_a_mark_under_the_place(server):
    done = server.run("sub", "a", "--filter", "data.price >")
    assert done.returncode == 2 and "at character 13, it ends too early" in done.stderr, done
    assert done.stderr.endswith("\n  data.price >\n              ^\n"), done.stderr
    asked = server.run("request", "a", "1", "--filter", "session = 'x'")
    assert asked.returncode == 2 and "to compare write `==`" in asked.stderr, asked


def test_what_looks_like_json_can_be_published_as_text(server):
    assert server.run("publish", "logs/a", "[warn] disk", "--text").returncode == 0
    assert server.run("pub", "logs/a", "-", input="[info] lines are not looked at\n").returncode == 0
    assert server.run("subscribe", "logs/a", "--from", "all", "--count", "2").stdout.splitlines() == [
        "logs/a 1 [warn] disk",
        "logs/a 2 [info] lines are not looked at",
    ]


def test_topics_are_listed_page_by_page(server):
    for name in ["b", "a/1", "a/2", "c"]:
        publish(server, name, 1)
    assert server.run("ls").stdout.splitlines() == ["a/1 1", "a/2 1", "b 1", "c 1"]
    assert server.run("topics", "a/+").stdout.splitlines() == ["a/1 1", "a/2 1"]
    first = server.run("topics", "--limit", "2")
    assert first.stdout.splitlines() == ["a/1 1", "a/2 1"] and "--after 'a/2'" in first.stderr
    rest = server.run("topics", "--after", "a/2", "--json")
    assert [json.loads(line)["topic"] for line in rest.stdout.splitlines()] == ["b", "c"] and not rest.stderr
    assert "nothing is published to `x/#`" in server.run("topics", "x/#").stderr


def test_headers_are_published_kept_and_printed(server):
    given = ["--header", "unit=EUR", "--header", "n=7", "--header", "urgent=true"]
    headers = {"unit": "EUR", "n": 7, "urgent": True}
    assert server.run("pub", "a/b", "1", *given).returncode == 0
    assert server.get("/v1/topics/a/b")["headers"] == headers
    answer = httpx.get(f"{server.http}/v1/topics/a/b")
    assert [answer.headers[f"tidegate-header-{name}"] for name in headers] == ['"EUR"', "7", "?1"]
    assert json.loads(server.run("history", "a/b", "--json").stdout)["headers"] == headers
    read = server.run("sub", "a/b", "--count", "1", "--json", "--time")
    line = json.loads(read.stdout)
    assert (line["headers"], line["data"]) == (headers, 1) and line["time_ms"] > 1_700_000_000_000, line
    plain = server.run("sub", "a/b", "--count", "1", "--headers").stdout
    assert json.loads(re.fullmatch(r"a/b 1 (\{.*\}) 1\n", plain)[1]) == headers, plain
    assert server.run("sub", "a/b", "--count", "1").stdout == "a/b 1 1\n"
    refused = server.run("pub", "a/b", "1", "--header", "$source=x")
    assert refused.returncode == 2 and "the server's" in refused.stderr, refused


def test_a_history_is_printed_from_where_one_wants(server):
    lines = "".join(f"{number}\n" for number in range(1, 251))
    assert server.run("pub", "h", "-", input=lines).returncode == 0

    def sequences(*words):
        done = server.run("history", "h", *words, "--json")
        assert done.returncode == 0, done
        found = [json.loads(line) for line in done.stdout.splitlines()]
        assert all(line["data"] == line["sequence"] and line["topic"] == "h" for line in found)
        return [line["sequence"] for line in found]

    kept = 100
    assert sequences() == list(range(241, 251))
    assert sequences("--last", "3") == [248, 249, 250]
    assert sequences("--last", "1000") == list(range(251 - kept, 251))
    assert sequences("--after", "245", "--limit", "3") == [246, 247, 248]
    assert len(sequences("--since", "1h")) == kept and sequences("--since", "2100-01-01T00:00:00Z") == []
    shown = server.run("history", "h", "--after", "1", "--limit", "1")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z 151 151\n", shown.stdout), shown
    assert "2 to 150 are not kept any more" in shown.stderr
    assert "nothing is kept" in server.run("history", "nowhere").stderr


def test_a_server_says_how_it_is(server):
    publish(server, "a", 1)
    shown = server.run("status")
    assert shown.returncode == 0 and re.search(r"^ws://\S+ +serves$", shown.stdout, re.M), shown
    assert re.search(r"^publications +1$", shown.stdout, re.M) and re.search(r"^topics +1$", shown.stdout, re.M)
    told = json.loads(server.run("status", "--json").stdout)
    assert told["ready"] is True and told["numbers"]["tidegate_publications_total"] == 1
    assert "nobody is behind" in server.run("slow").stderr
    gone = subprocess.run([PROGRAM, "status", "--server", f"localhost:{free_port()}"], capture_output=True, text=True, timeout=60)
    assert gone.returncode == 3 and "check the address, and that it runs" in gone.stderr, gone


def test_who_is_connected_is_listed_and_one_screen_shows_the_work(server):
    assert "nobody is connected" in server.run("sessions").stderr, "who asks over HTTP is no session"
    with subprocess.Popen([PROGRAM, "sub", "a/#", "--server", f"ws://127.0.0.1:{server.port}"], stdout=subprocess.PIPE) as reader:
        try:
            publish(server, "a/1", 1)
            assert reader.stdout.readline() == b"a/1 1 1\n"
            shown = server.run("sessions").stdout.splitlines()
            assert shown[0].split()[:3] == ["SESSION", "PRINCIPAL", "CLIENT"] and len(shown) == 2, shown
            name, *rest = shown[1].split()
            assert name.startswith("tidegate-") and rest[:5] == ["anonymous", "tidegate-cli", "127.0.0.1", "websocket", "1"]
            told = json.loads(server.run("sessions", "--json").stdout)
            assert told["session"] == name and told["in_step"] is True
            screen = server.run("top", "--count", "1", "--interval-ms", "100")
            assert re.search(r"^sessions +1 +delivered +[\d.]+$", screen.stdout, re.M), screen
            assert "nobody is behind" in screen.stdout
            numbers = json.loads(server.run("top", "--count", "1", "--interval-ms", "100", "--json").stdout)
            assert numbers["now"]["tidegate_sessions"] == 1 and numbers["slow"] == []
        finally:
            reader.kill()
    drawn = on_a_terminal([PROGRAM, "top", "--interval-ms", "200", "--server", f"ws://127.0.0.1:{server.port}"], b"nobody is behind")
    assert drawn.startswith("\x1b[H") and "PER SECOND" in drawn


def test_names_stand_where_addresses_do(tmp_path):
    port = free_port()
    (tmp_path / "t.toml").write_text(f'[server]\nlisten = "localhost:{port}"\n')
    with subprocess.Popen([PROGRAM, "serve", "--config", tmp_path / "t.toml"], stderr=subprocess.DEVNULL) as process:
        try:
            command = [PROGRAM, "pub", "a", "1", "--server", f"localhost:{port}"]
            wait_until("it serves", lambda: subprocess.run(command, capture_output=True, timeout=60).returncode == 0)
        finally:
            process.kill()


def on_a_terminal(command, wanted):
    """What a command says on a terminal until `wanted` is there."""
    own, its = pty.openpty()
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its)
    os.close(its)
    said, until = b"", time.monotonic() + 60
    try:
        while wanted not in said:
            assert time.monotonic() < until, said
            if select.select([own], [], [], 1)[0]:
                said += os.read(own, 65_536)
    finally:
        process.kill()
        process.wait()
        os.close(own)
    return said.decode()


def test_who_waits_at_a_terminal_is_told_for_what(server):
    url = f"ws://127.0.0.1:{server.port}"
    said = on_a_terminal([PROGRAM, "sub", "prices/*", "--server", url], b"'a/#'")
    assert "subscribed to `prices/*`: nothing is published there yet" in said
    assert "`prices/*` has no wildcards: these are + for one level and # for the rest" in said
    later = on_a_terminal([PROGRAM, "sub", "prices/+", "--from", "now", "--server", url], b"Ctrl-C")
    assert "waiting for what is published from now on" in later and "wildcards" not in later


def test_completions_and_the_manual_know_every_command(tmp_path):
    script = subprocess.run([PROGRAM, "completions", "bash"], check=True, capture_output=True, text=True, timeout=60).stdout
    assert subprocess.run(["bash", "-n"], input=script, text=True, timeout=60).returncode == 0
    page = subprocess.run([PROGRAM, "man"], check=True, capture_output=True, text=True, timeout=60).stdout
    subprocess.run([PROGRAM, "man", "--out", tmp_path / "man"], check=True, timeout=60)
    for command in ["serve", "sub", "topics", "history", "status", "slow", "sessions", "top"]:
        assert f"tidegate__subcmd__{command}" in script or f"tidegate__{command}" in script, command
        assert f"tidegate\\-{command}" in page, command
        assert (tmp_path / "man" / f"tidegate-{command}.1").exists(), command

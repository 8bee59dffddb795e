"""/metrics as Prometheus reads it, on a server that has something to tell."""

import pathlib
import re
import shutil
import subprocess

import httpx
import pytest
from server import PROGRAM, Server, until


@pytest.fixture(params=["true", "false"], ids=["private-tables", "shared-table"])
def server(tmp_path, request):
    config = f"[engine]\nshards = 2\nprivate_fd_tables = {request.param}\n"
    server = Server(config, tmp_path).start()
    yield server
    server.kill()


def scrape(server, **fields):
    answer = httpx.get(f"http://127.0.0.1:{server.port}/metrics", headers=fields, timeout=60)
    assert answer.status_code == 200
    return answer.headers["content-type"], answer.text


def sum_of(server, name):
    """What a metric says, over all its labels."""
    found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", scrape(server)[1], re.MULTILINE)
    assert found, name
    return sum(float(value) for value in found)


def test_deliveries_and_the_process_are_told(server):
    reader = subprocess.Popen(
        [PROGRAM, "sub", "a/+", "--server", f"ws://127.0.0.1:{server.port}"], stdout=subprocess.PIPE
    )
    try:
        until(lambda: sum_of(server, "tidegate_subscriptions") == 1, "the reader is there")
        for number in range(20):
            topic = {"topic": f"a/{number}", "data": number}
            assert httpx.post(f"http://127.0.0.1:{server.port}/v1/publish", json=topic, timeout=60).status_code == 200
            reader.stdout.readline()
        count, total = (f"tidegate_delivery_latency_seconds_{part}" for part in ("count", "sum"))
        until(lambda: sum_of(server, count) >= 10, "batches are counted")
        assert sum_of(server, total) < 60 * sum_of(server, count)
    finally:
        reader.kill()
        reader.wait()
    pid = server.process.pid
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    resident = int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024
    assert 0.5 < sum_of(server, "process_resident_memory_bytes") / resident < 2
    assert sum_of(server, "process_virtual_memory_bytes") > resident
    # Less than a clock tick is told as 0: each scrape adds some.
    until(lambda: sum_of(server, "process_cpu_seconds_total") > 0, "time of the processor is told")
    assert sum_of(server, "process_start_time_seconds") > 1.6e9
    before = sum_of(server, "process_open_fds")
    clients = [httpx.Client(timeout=60) for _ in range(30)]
    for client in clients:
        client.get(f"http://127.0.0.1:{server.port}/health")
    assert 25 <= sum_of(server, "process_open_fds") - before <= 35, "thirty sockets more"
    assert sum_of(server, "process_max_fds") >= before
    assert sum_of(server, "tidegate_build_info") == 1


def test_the_format_is_what_is_asked_for_and_well_formed(server):
    kind, text = scrape(server)
    assert kind.startswith("text/plain; version=0.0.4") and "# TYPE tidegate_sends_total counter\n" in text
    kind, modern = scrape(server, accept="application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert kind.startswith("application/openmetrics-text") and modern.endswith("# EOF\n")
    assert "# TYPE tidegate_sends counter\n" in modern
    # The rules themselves are in crates/admin; where Prometheus' own tool is installed, it is asked too.
    if promtool := shutil.which("promtool"):
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), done

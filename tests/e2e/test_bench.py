"""Every scenario of the benchmark, very small: it runs, the counts are right, the report is written.

Nothing here is timed: how fast it was is not looked at.
"""

import json
import os
import pathlib
import subprocess

import pytest

PROGRAM = pathlib.Path(__file__).parents[2] / "target/ci/tidegate"

STREAMS = {
    "fastest-million": ["--clients", "40"],
    "throughput-ramp": ["--clients", "20"],
    "steady-sla": ["--clients", "20"],
    "reconnect-storm": ["--clients", "40"],
    "churn": ["--clients", "40"],
    "resume-storm": ["--clients", "60", "--rate", "50"],
    "resume-from-disk": ["--clients", "60", "--rate", "50"],
    "c12m": ["--clients", "200", "--rate", "1"],
}


def bench(scenario, *options):
    """The result of a run; a run that is not valid for lateness alone is no failure here."""
    command = [PROGRAM, "bench", scenario, "--duration", "1", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip(), done.stderr
    report = json.loads(done.stdout)
    assert report["format"] == "tidegate-bench 1"
    assert report["scenario"] == scenario
    return report["result"]


@pytest.mark.long
@pytest.mark.parametrize("scenario", STREAMS)
def test_every_message_is_counted(scenario):
    result = bench(scenario, *STREAMS[scenario])
    checks = result["checks"]
    faults = {name: count for name, count in checks.items() if name != "delivered" and count}
    assert not faults, checks
    assert checks["delivered"] > 0
    assert result["clients_at_the_end"] == int(STREAMS[scenario][1])
    measured = sum(phase["latency_ms"]["count"] for phase in result["phases"])
    assert 0 < measured <= checks["delivered"]


@pytest.mark.long
def test_deliveries_are_publications_times_readers():
    result = bench("throughput-ramp", "--clients", "7", "--topics", "5")
    # Every client reads every topic, from the first publication on.
    assert result["checks"]["delivered"] == 7 * result["published"]


@pytest.mark.long
def test_durable_publications_survive_the_kill_in_the_run():
    for scenario, topics in [("durable-publish", 10), ("durable-restart", 200)]:
        result = bench(scenario, "--topics", str(topics))
        checks = result["checks"]
        assert checks["missing"] == 0 and checks["refused"] == 0, checks
        assert checks["kept_after_kill"] == checks["acknowledged"] > 0
        assert result["restart"]["topics"] == topics
        assert result["disk_floor"]["after"]["batches_of_256"]["records_per_second"] > 0


@pytest.mark.long
def test_idle_sessions_and_round_trips():
    result = bench("idle-memory", "--clients", "500")
    assert result["sessions_at_server"] == 500
    assert result["memory"]["user_bytes_per_connection"] > 0
    result = bench("ping-pong")
    assert result["10_bytes"]["round_trip_us"]["count"] > 0
    assert result["10_bytes"]["request_us"]["count"] > 0


@pytest.mark.long
def test_devices_answer_applications():
    result = bench("device-rpc", "--clients", "50")
    assert (result["devices"], result["lost"]) == (50, 0), result
    for load in (result["reference_load"], result["saturation"]):
        assert load["refused"] == 0 and load["requests_per_second"] > 0, load
    statistics = result["server_statistics"]
    assert (statistics["devices"], statistics["errors"]) == (50, 0), statistics
    assert statistics["latency_ms"]["count"] == statistics["answers"] > 0, statistics


@pytest.mark.long
def test_a_report_and_a_comparison_are_written(tmp_path):
    for _ in range(2):
        command = [PROGRAM, "bench", "fastest-million", "--clients", "20", "--duration", "1"]
        # On a busy machine the generator is late, which makes a run invalid; the report is written all the same.
        done = subprocess.run([*command, "--out", tmp_path], capture_output=True, text=True, timeout=60)
        assert "written" in done.stdout + done.stderr, done.stderr
    first, second = sorted(tmp_path.glob("*.json"))
    page = next(tmp_path.glob("*.html")).read_text()
    assert "<svg" in page and "http://" not in page.replace("http://www.w3.org", "")
    assert "msg/s to 20 clients, p99" in page and "times this machine's floor" in page
    report = json.loads(first.read_text())
    assert report["command"].startswith("tidegate bench fastest-million --clients 20") and report["date"].endswith("Z")
    assert report["commit"]
    command = [PROGRAM, "bench", "compare", first, second]
    compared = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert "server CPU" in compared.stdout, compared.stdout


@pytest.mark.long
def test_without_a_scenario_it_measures_against_the_floor_and_keeps_the_token_to_itself():
    command = [PROGRAM, "bench", "--clients", "20", "--duration", "1", "--json"]
    env = {**os.environ, "TIDEGATE_TOKEN": "hidden"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env)
    report = json.loads(done.stdout)
    assert report["scenario"] == "quick" and report["result"]["floor"]["ratio"] > 0
    assert "hidden" not in done.stdout and report["command"].endswith("--duration 1 --json")


def test_a_target_that_is_not_there_is_a_clear_error():
    command = [PROGRAM, "bench", "fastest-million", "--target", "ws://127.0.0.1:9", "--duration", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "is the server running" in done.stderr, done.stderr


@pytest.mark.long
def test_every_way_to_send_less_ends_with_what_the_server_has():
    result = bench("reductions", "--clients", "3")
    ways = {(row["feed"], row["way"]): row for row in result["reductions"]}
    assert len(ways) == 18
    assert all(row["differences_at_the_end"] == 0 for row in ways.values()), ways
    raw = ways["scores", "raw"]["bytes_per_client_and_second"]
    assert ways["scores", "deltas, VCDIFF"]["bytes_per_client_and_second"] < raw / 5


@pytest.mark.long
def test_a_large_publication_arrives_in_pieces_and_whole():
    result = bench("large-among-small", "--clients", "3")
    assert all(phase["latency_ms"]["count"] > 0 for phase in result["phases"])
    assert result["in_pieces"]["seconds_until_all_had_it"] > 0

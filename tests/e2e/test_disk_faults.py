"""A disk that is full, or may not be written: a clear error, nothing silently lost, everything else goes on."""

import http.client
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import threading

import pytest
from server import PROGRAM, Server, free_port, until

CONFIG = '[store]\npath = "{store}"\n[[topics]]\nselector = "d/#"\nack = "disk"\nhistory_count = 100000\n'


def limit_files_to(megabytes):
    """Makes writes past a size fail with EFBIG, as a full disk makes them fail with ENOSPC."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (megabytes << 20, megabytes << 20))

    return limit


def test_a_full_disk_refuses_with_a_code_and_loses_nothing_acknowledged(tmp_path):
    server = Server(CONFIG, tmp_path, preexec_fn=limit_files_to(64)).start()
    try:
        assert server.run("pub", "m/before", "1").returncode == 0
        text = random.Random(7).randbytes(200_000).hex()
        acknowledged = 0
        for number in range(1, 401):
            done = server.run("pub", "d/a", "--key", str(number), "-", input=text + "\n")
            if done.returncode != 0:
                break
            acknowledged += 1
        else:
            raise AssertionError("the disk never became full")
        assert done.returncode == 4 and "4105" in done.stderr, done.stderr
        assert "free some space" in done.stderr, done.stderr
        # What is not on disk goes on, and what was acknowledged can be read.
        assert server.run("pub", "m/after", "2").returncode == 0
        assert server.get("/v1/topics/m/after")["data"] == 2
        assert server.get("/v1/history/d/a?last=1")["head"] == acknowledged
        again = server.run("pub", "d/b", "1")
        assert again.returncode == 4 and "4105" in again.stderr
    finally:
        server.kill()
    assert "durable topics take nothing more" in server.errors(), server.errors()
    # With room again everything that was acknowledged is there, and the next one has the next number.
    server = Server(CONFIG, tmp_path).start()
    try:
        head = server.get("/v1/history/d/a?last=1")["head"]
        assert head >= acknowledged
        key = str(acknowledged)
        assert server.run("pub", "d/a", "--key", key, "-", input=text + "\n").returncode == 0
        assert server.get("/v1/history/d/a?last=1")["head"] == head, "the key is remembered"
    finally:
        server.kill()


def publish_until_refused(port, name, text, outcome):
    """Publishes batches to one topic over one connection until a publication is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    acknowledged = 0
    try:
        for number in range(1_000):
            keys = [f"{name}-{number}-{n}" for n in range(16)]
            batch = {"publications": [{"topic": f"d/{name}", "text": text, "key": key} for key in keys]}
            connection.request("POST", "/v1/publish", json.dumps(batch), {"Content-Type": "application/json"})
            results = json.loads(connection.getresponse().read())["results"]
            refused = [one for one in results if "sequence" not in one]
            acknowledged += len(results) - len(refused)
            if refused:
                outcome[name] = (acknowledged, str(refused))
                return
    except (OSError, http.client.HTTPException) as error:
        outcome[name] = (acknowledged, f"connection lost: {error!r}")


def test_a_disk_that_fails_under_load_stops_durable_topics_only(tmp_path):
    shards = "[engine]\nshards = 4\n"
    server = Server(shards + CONFIG, tmp_path, preexec_fn=limit_files_to(64)).start()
    outcome = {}
    try:
        text = random.Random(7).randbytes(10_000).hex()
        names = [f"topic-{number}" for number in range(12)]
        publishers = [
            threading.Thread(target=publish_until_refused, args=(server.port, name, text, outcome)) for name in names
        ]
        for publisher in publishers:
            publisher.start()
        for publisher in publishers:
            publisher.join()
        for name in names:
            assert "4105" in outcome[name][1], (name, outcome[name], server.errors())
        # Topics in memory go on, on every shard, over connections of every shard.
        for number in range(32):
            assert server.run("pub", f"m/{number}", str(number)).returncode == 0, server.errors()
            assert server.get(f"/v1/topics/m/{number}")["data"] == number
            again = server.run("pub", f"d/topic-{number}", "1")
            assert again.returncode == 4 and "4105" in again.stderr, again.stderr
        health, ready = server.get("/health"), server.get("/ready")
        assert health["status"] == "ok" and "cannot write" in health["store"], health
        assert ready["status"] == "ready" and "cannot write" in ready["store"], ready
        assert server.stop() == 0, server.errors()
        assert "panicked" not in server.errors(), server.errors()
    finally:
        server.kill()
    # With room again all that was acknowledged is there.
    server = Server(CONFIG, tmp_path).start()
    try:
        assert "store" not in server.get("/health")
        for name in names:
            if outcome[name][0]:
                head = server.get(f"/v1/history/d/{name}?last=1")["head"]
                assert head >= outcome[name][0], (name, head, outcome[name])
    finally:
        server.kill()


def test_a_disk_that_is_full_at_the_start_is_not_called_damaged(tmp_path):
    server = Server(CONFIG, tmp_path, preexec_fn=limit_files_to(8)).launch()
    assert server.wait() == 1 and "has room" in server.errors(), server.errors()
    assert "damaged" not in server.errors()


def as_nobody():
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)


def test_a_directory_that_may_not_be_written_is_named_at_the_start(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o555)
    for parent in [tmp_path, *list(tmp_path.parents)[:3]]:
        if parent.owner() != "root" or os.getuid() == 0:
            parent.chmod(parent.stat().st_mode | 0o055)
    server = Server(CONFIG, tmp_path)
    server.configure(CONFIG)
    command = [shutil.copy(PROGRAM, tmp_path), *server.command()[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, preexec_fn=as_nobody)
    assert done.returncode == 1, done
    assert f"cannot open the store in {folder}" in done.stderr, done.stderr
    assert "may be written" in done.stderr, done.stderr


def test_a_second_server_on_the_same_directory_is_refused(tmp_path):
    server = Server(CONFIG, tmp_path).start()
    try:
        listen = f"127.0.0.1:{free_port()}"
        command = [PROGRAM, "serve", "--config", tmp_path / "tidegate.toml", "--listen", listen]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "another process has it open" in done.stderr, done.stderr
        assert server.run("pub", "d/a", "1").returncode == 0
    finally:
        server.kill()


@pytest.mark.parametrize("lost", [1, 7, 100])
def test_a_torn_tail_is_told_and_the_rest_is_there(tmp_path, lost):
    server = Server(CONFIG, tmp_path).start()
    try:
        for number in range(1, 6):
            assert server.run("pub", "d/a", f"payload {number}").returncode == 0
    finally:
        server.kill()
    journals = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    torn = [path for path in journals if b"payload 5" in path.read_bytes()]
    assert torn, journals
    for path in torn:
        bytes_ = path.read_bytes()
        end = bytes_.rindex(b"payload 5") + len(b"payload 5")
        path.write_bytes(bytes_[: end - lost])
    server = Server(CONFIG, tmp_path).start()
    try:
        page = server.get("/v1/history/d/a?last=10")
        kept = [one["text"] for one in page["publications"]]
        assert kept == [f"payload {number}" for number in range(1, len(kept) + 1)]
        assert len(kept) < 5
        until(lambda: "damaged" in server.errors() and "are gone" in server.errors(), "it does not say what is gone")
    finally:
        server.kill()

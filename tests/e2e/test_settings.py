"""Settings of the real program: flags, environment variables, the file, and what it says of them."""

import os
import subprocess
import tomllib

import httpx
import pytest
from server import PATIENCE_SECONDS, PROGRAM, Server

FILE = """[server]
name = "of-the-file"
[engine]
shards = 1
[diagnostics]
echo = true
[access]
anonymous = "read"
[[access.tokens]]
token = "geheim-of-the-file"
name = "a"
"""


def tidegate(*words, **variables):
    command = [PROGRAM, *map(str, words)]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=PATIENCE_SECONDS)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "t.toml"
    path.write_text(FILE)
    return path


def source_of(shown, line):
    found = [text for text in shown.splitlines() if text.startswith(f"{line} ")]
    assert len(found) == 1, (line, shown)
    return found[0].split(" # ")[1]


def test_a_flag_goes_before_a_variable_before_the_file_before_the_default(file):
    variables = {"TIDEGATE__ENGINE__SHARDS": "2", "TIDEGATE__DIAGNOSTICS__ECHO": "false", "TIDEGATE__SERVER__LISTEN": "127.0.0.1:1"}
    ran = tidegate("config", "show", "--config", file, "--shards", "3", "--origin", "loopback", **variables)
    assert ran.returncode == 0, ran.stderr
    assert source_of(ran.stdout, "shards = 3") == "flag --shards"
    assert source_of(ran.stdout, "echo = false") == "environment TIDEGATE__DIAGNOSTICS__ECHO"
    assert source_of(ran.stdout, 'name = "of-the-file"') == f"{file}:2"
    assert source_of(ran.stdout, "backlog = 4096") == "default"
    assert source_of(ran.stdout, 'origins = ["loopback"]') == "flag --origin"
    assert source_of(ran.stdout, 'listen = "127.0.0.1:1"') == "environment TIDEGATE__SERVER__LISTEN"
    assert tomllib.loads(ran.stdout)["engine"]["shards"] == 3


def test_secrets_are_shown_to_nobody(file, tmp_path):
    secret = tmp_path / "applications"
    keys = '[{id = "m", keys = [{id = "k", key = "geheim-of-a-variable", roles = ["device"]}]}]'
    secret.write_text(keys)
    ran = tidegate("config", "show", "--config", file, TIDEGATE__APPLICATIONS__FILE=str(secret))
    assert ran.returncode == 0 and "geheim" not in ran.stdout + ran.stderr, ran
    assert source_of(ran.stdout, "[[applications]]") == "environment TIDEGATE__APPLICATIONS__FILE"
    broken = tidegate("config", "show", TIDEGATE__APPLICATIONS=keys[:-1])
    assert broken.returncode == 5 and "geheim" not in broken.stdout + broken.stderr, broken


def test_a_variable_that_is_none_ends_the_start(file):
    ran = tidegate("serve", "--config", file, TIDEGATE__ENGINE__SHARD="2")
    assert ran.returncode == 5
    assert "TIDEGATE__ENGINE__SHARD: there is no such setting; did you mean `TIDEGATE__ENGINE__SHARDS`?" in ran.stderr


def test_a_server_without_a_file_is_told_by_variables(tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text('[{token = "geheim", name = "feed", publish = ["a/#"]}]\n')
    variables = {
        "TIDEGATE__ACCESS__ANONYMOUS": "read",
        "TIDEGATE__ACCESS__TOKENS__FILE": str(tokens),
        "TIDEGATE__LIMITS__PAYLOAD_BYTES_MAX": "10",
        "TIDEGATE_PORT": "tcp://10.0.0.1:8470",
    }
    with Server(None, tmp_path, env={**os.environ, **variables}) as server:
        url = f"{server.http}/v1/publish"
        feed = {"authorization": "Bearer geheim"}

        def publish(data, **more):
            return httpx.post(url, json={"topic": "a/b", "data": data}, timeout=PATIENCE_SECONDS, **more).status_code

        assert publish(1) == 403
        assert publish(1, headers=feed) == 200
        assert publish("more than ten bytes", headers=feed) == 413

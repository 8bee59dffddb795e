"""Pages of other origins: who is let in, and who hears why not."""

import re
import subprocess

import httpx
import pytest
from server import PROGRAM, Server, until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

VITE = "http://localhost:5173"


@pytest.fixture
def start(tmp_path):
    started = []

    def start(*words):
        started.append(Server(None, tmp_path, words=words).start())
        return started[-1]

    yield start
    for server in started:
        server.kill()


def is_let_in(server, origin):
    try:
        with connect(f"ws://127.0.0.1:{server.port}/v1/ws", origin=origin):
            return True
    except InvalidStatus as error:
        assert error.response.status_code == 403
        return False


def ask(server, path, **fields):
    return httpx.get(f"http://127.0.0.1:{server.port}{path}", headers=fields, timeout=60)


def test_a_refused_page_is_told_once_with_the_line_that_lets_it_in(start):
    server = start("serve")
    for _ in range(3):
        assert not is_let_in(server, VITE)
        assert ask(server, "/v1/topics", origin=VITE).status_code == 403
    told = f'put origins = ["{VITE}"] under [access] in the configuration, or start the server with --origin {VITE}'
    until(lambda: told in server.errors(), "it does not say so")
    assert not is_let_in(server, "https://other.example")
    until(lambda: "https://other.example" in server.errors(), "it does not name the other")
    assert server.errors().count(told) == 1, server.errors()


def test_a_script_of_any_origin_reads_why_its_handshake_failed_and_nothing_else(start):
    server = start("serve")
    why = ask(server, "/v1/ws", origin=VITE)
    assert why.status_code == 403 and why.json()["code"] == 4302 and VITE in why.json()["error"]
    assert why.headers["access-control-allow-origin"] == "*" and why.headers["cache-control"] == "no-store"
    own = ask(server, "/v1/ws", origin=f"http://127.0.0.1:{server.port}")
    assert own.status_code == 400 and own.json()["code"] == 4210
    renamed = ask(server, "/v1/ws", origin=VITE, host="push.example.com")
    assert renamed.status_code == 421 and renamed.json()["code"] == 4304
    assert "access-control-allow-origin" not in renamed.headers
    for path in ["/v1/topics", "/v1/sse?topic=a", "/health", "/v1/ws/", "/metrics"]:
        assert "access-control-allow-origin" not in ask(server, path, origin=VITE).headers, path


def test_a_flag_lets_pages_in(start):
    server = start("serve", "--origin", VITE, "--origin", "https://a.example")
    assert is_let_in(server, VITE) and is_let_in(server, "https://a.example")
    assert not is_let_in(server, "http://localhost:5174")
    everybody = start("serve", "--origin", "*")
    assert is_let_in(everybody, "https://b.example")


def test_a_demo_lets_pages_of_this_machine_in_and_no_others(start):
    server = start("demo")
    for origin in [VITE, "http://127.0.0.1:3000", "http://[::1]:8080", "https://app.localhost"]:
        assert is_let_in(server, origin), origin
    for origin in ["http://localhost.evil.example", "https://a.example", "null"]:
        assert not is_let_in(server, origin), origin


@pytest.mark.parametrize(("origin", "cure"), [("localhost:5173", VITE), (f"{VITE}/", VITE), ("https://A.example:443", "https://a.example")])
def test_what_no_browser_says_is_wrong_usage(origin, cure, tmp_path):
    done = subprocess.run([PROGRAM, "serve", "--origin", origin], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and re.search(f'write (such as )?"{cure}"', done.stderr), done
    (tmp_path / "t.toml").write_text(f'[access]\norigins = ["{origin}"]\n')
    checked = subprocess.run([PROGRAM, "config", "check", tmp_path / "t.toml"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 5 and "t.toml:2" in checked.stderr and cure in checked.stderr, checked

"""Devices (docs/devices.md): the examples as they stand, and what networks and processes do to attached devices."""

import concurrent.futures
import contextlib
import hashlib
import hmac
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import httpx
import pytest
from devices import (
    ADMIN_KEY,
    APPLICATION_KEY,
    CONFIG,
    DEVICE_KEY,
    EXAMPLES,
    SECONDS,
    Device,
    attach_head,
    call,
)
from proxy import ForgetfulProxy, in_thread
from server import PROGRAM, Server, until
from websockets.sync.client import connect


@pytest.fixture(params=[1, 2], ids=["one-shard", "two-shards"])
def server(request, tmp_path):
    token = '[[access.tokens]]\ntoken = "a-token"\nname = "desk"\npublish = ["devices/meters/+", "devices/nobody/+"]\n'
    server = Server(f"{CONFIG}{token}[engine]\nshards = {request.param}\n", tmp_path).start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def device_c(tmp_path_factory):
    """The example in C, compiled as its first lines say."""
    program = tmp_path_factory.mktemp("device") / "device"
    options = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1"]
    subprocess.run(["cc", *options, "-o", program, EXAMPLES / "device.c"], check=True)
    return program


# The application's side.


def ask(server, device, payload, timeout_ms=60_000):
    path = f"/v1/devices/{device}/send?application=meters&timeout_ms={timeout_ms}"
    return call(server, "POST", path, content=payload)


def code_of(answer):
    return answer.status_code, answer.json()["code"]


def attached(server):
    page = call(server, "GET", "/v1/devices?application=meters").json()
    return {one["device"] for one in page["devices"]}


def statistics(server):
    return call(server, "GET", "/v1/applications/meters/stats", ADMIN_KEY).json()


class Reader:
    """A WebSocket client of some topics."""

    def __init__(self, server, *topics, start="now"):
        self.stack = contextlib.ExitStack()
        self.peer = self.stack.enter_context(connect(f"ws://127.0.0.1:{server.port}/v1/ws", proxy=None))
        self.peer.send(json.dumps({"id": 1, "type": "subscribe", "topics": topics, "from": start}))
        while json.loads(self.peer.recv(SECONDS))["type"] != "subscribed":
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()

    def next(self):
        """The next publication: its topic's end, and its payload."""
        while True:
            event = json.loads(self.peer.recv(SECONDS))
            if event["type"] == "publication":
                return event["topic"].removeprefix("devices/meters/"), event["data"]

    def presence_of(self, device):
        """The next presence of a device."""
        while True:
            topic, data = self.next()
            if topic == f"{device}/presence":
                return data["state"]


# Devices that are programs.


class Program:
    """An example that runs; what it prints, line by line."""

    def __init__(self, server, name, command, folder):
        self.name = name
        environment = {**os.environ, "TIDEGATE_KEY": DEVICE_KEY, "TMPDIR": str(folder), "no_proxy": "*"}
        options = {"stdout": subprocess.PIPE, "text": True, "env": environment, "start_new_session": True}
        self.process = subprocess.Popen([str(word) for word in command], **options)
        self.lines = []
        threading.Thread(target=lambda: self.lines.extend(self.process.stdout), daemon=True).start()
        until(lambda: name in attached(server), f"{name} does not attach: {self.lines}")

    def says(self, text):
        """Waits for a line: a process may be over before all that it printed is read."""
        until(lambda: any(text in line for line in self.lines), f"{self.name} does not say {text}: {self.lines}")

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def programs(server, device_c, *kinds):
    """The examples of these kinds, attached."""
    url = f"http://127.0.0.1:{server.port}"
    commands = {
        "c": [device_c, "127.0.0.1", server.port, "meters", "c"],
        "py": [sys.executable, EXAMPLES / "device.py", url, "meters", "py"],
        "proof": [sys.executable, EXAMPLES / "device.py", url, "meters", "proof", "--key-id", "devices"],
        "sh": [EXAMPLES / "device.sh", url, "meters", "sh"],
    }
    with contextlib.ExitStack() as stack:
        running = []
        for kind in kinds:
            running.append(Program(server, kind, commands[kind], device_c.parent))
            stack.callback(running[-1].end)
        yield running


ALL = ("c", "py", "proof", "sh")


def test_the_examples_answer_and_tell(server, device_c):
    with Reader(server, "devices/meters/#") as reader, programs(server, device_c, *ALL):
        assert attached(server) == set(ALL)
        for name in ALL:
            assert ask(server, name, '{"a": "b c"}').text == '{"a": "b c"}'
            assert ask(server, name, "two  words").text == "two  words"
            assert isinstance(ask(server, name, "temperature").json()["celsius"], float)
        for name in ("py", "sh"):
            declined = ask(server, name, "fail")
            assert code_of(declined) == (422, 4221) and "the sensor is broken" in declined.text
        assert "larger than this device" in ask(server, "c", "x" * 5000).json()["error"]
        told = {f"{name}/{topic}" for name in ALL for topic in ("presence", "events")}
        while told:
            topic, data = reader.next()
            assert data["state"] == "attached" if topic.endswith("presence") else data["celsius"] > 15
            told.discard(topic)
        counts = statistics(server)
        assert (counts["devices"], counts["requests"], counts["errors"]) == (4, 15, 3), counts


def test_the_script_asks(server, device_c):
    with programs(server, device_c, "c"):

        def run(*words):
            command = [EXAMPLES / "ask.sh", f"http://127.0.0.1:{server.port}", "meters", *words]
            environment = {**os.environ, "TIDEGATE_KEY": APPLICATION_KEY, "no_proxy": "*"}
            return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=SECONDS)

        assert json.loads(run().stdout)["devices"][0]["device"] == "c"
        assert json.loads(run("c").stdout)["state"] == "attached"
        assert run("c", "hello").stdout == "hello\n"
        wrong = run("nobody", "hello")
        assert wrong.returncode != 0 and '"code":4223' in wrong.stdout


def test_a_killed_device_is_gone_at_once(server, device_c):
    """Half-open it is not: the kernel closes its socket."""
    with Reader(server, "devices/meters/+/presence") as reader, programs(server, device_c, "c", "py", "sh") as running:
        for program in running:
            program.signal(signal.SIGKILL)
            while reader.presence_of(program.name) != "detached":
                pass
            assert code_of(ask(server, program.name, "x")) == (410, 4111)
        assert attached(server) == set()


def test_a_device_that_is_told_to_end_detaches(server, device_c):
    with Reader(server, "devices/meters/+/presence") as reader, programs(server, device_c, *ALL) as running:
        for program in running:
            program.signal(signal.SIGTERM)
            while reader.presence_of(program.name) != "detached":
                pass
            assert program.process.wait(SECONDS) == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
def test_devices_come_back_to_a_server_that_starts_again(server, device_c, how):
    with programs(server, device_c, *ALL) as running:
        server.signal(how)
        server.wait()
        server.start()
        until(lambda: attached(server) == set(ALL), "they do not all come back")
        for name in ALL:
            assert ask(server, name, "still there?").text == "still there?"
        assert all(program.process.poll() is None for program in running)
        if how == signal.SIGTERM:
            for program in running:
                program.says('"code":4000')


def test_of_two_devices_with_one_name_the_newer_has_it(server, device_c):
    with programs(server, device_c, "c", "py", "sh") as old, Reader(server, "devices/meters/+/presence") as reader:
        for program in old:
            with Device(server, program.name) as newer:
                assert reader.presence_of(program.name) == "attached"
                assert program.process.wait(SECONDS) == 3, "it does not take the name back"
                program.says('"code":4224')
                with asking(server, program.name, "who?") as answer:
                    newer.answer(lambda _: "the newer")
                assert answer.result().text == "the newer"
            assert reader.presence_of(program.name) == "detached"


@contextlib.contextmanager
def asking(server, name, payload, **options):
    """A request under way; its answer is there afterwards."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        yield pool.submit(ask, server, name, payload, **options)


@pytest.mark.long
def test_a_device_that_is_stopped_misses_its_heartbeats(server):
    """Its socket stays open: only the silence tells, by which another device has gone that says nothing from the beginning."""
    path = "/v1/devices/attach?application=meters&device=d&framing=lines&heartbeat_ms=1000"
    ticks = f"while echo H; do sleep 0.3; done | curl -sN -X POST -T - -H 'Authorization: Bearer {DEVICE_KEY}'"
    command = ["bash", "-c", f"{ticks} --noproxy '*' 'http://127.0.0.1:{server.port}{path}'"]
    with Reader(server, "devices/meters/+/presence") as reader:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            assert reader.presence_of("d") == "attached"
            with Device(server, "silent", "&heartbeat_ms=1000"):
                while reader.presence_of("silent") != "detached":
                    pass
            assert attached(server) == {"d"}, "its heartbeats are heard"
            os.killpg(process.pid, signal.SIGSTOP)
            stopped_at = time.monotonic()
            with asking(server, "d", "x") as answer:
                assert reader.presence_of("d") == "detached"
            assert time.monotonic() - stopped_at > 1.2
            assert code_of(answer.result()) == (502, 4109)
            assert code_of(ask(server, "d", "x")) == (410, 4111)
            os.killpg(process.pid, signal.SIGCONT)
            assert '"code":4103' in process.stdout.read()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_an_attachment_that_comes_byte_by_byte_is_refused_in_time(tmp_path):
    server = Server(CONFIG + "[limits]\nrequest_ms = 2000\n", tmp_path).start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.1) as link:
            begun_at, answer, head = time.monotonic(), b"", attach_head("slow" * 50).encode()
            for byte in head:
                with contextlib.suppress(OSError):
                    link.sendall(bytes([byte]))
                with contextlib.suppress(TimeoutError):
                    answer = link.recv(1000)
                    break
            else:
                raise AssertionError("it may take as long as it likes")
            assert answer.startswith(b"HTTP/1.1 408") and b'"code":4211' in answer, answer
            assert time.monotonic() - begun_at > 1.5
        assert attached(server) == set()
    finally:
        server.kill()


def proof(server, about, key=DEVICE_KEY, key_id="devices", challenge=None):
    challenge = challenge or call(server, "GET", "/v1/devices/challenge", None).json()["challenge"]
    mac = hmac.new(key.encode(), f"{challenge}\n{about}".encode(), hashlib.sha256).hexdigest()
    return f'Tidegate-HMAC key="{key_id}", challenge="{challenge}", mac="{mac}"'


def test_a_proof_opens_what_its_key_does(server):
    def status(authorization):
        with Device(server, "d", authorization=authorization) as device:
            return device.status

    used = proof(server, "meters/d")
    assert status(used) == 200
    assert status(used) == 401
    assert status(proof(server, "meters/other")) == 401
    assert status(proof(server, "d")) == 401
    assert status(proof(server, "meters/d", key="a-key-for-nothing")) == 401
    assert status(proof(server, "meters/d", key_id="unknown")) == 401
    assert status(proof(server, "meters/d", APPLICATION_KEY, "backend")) == 403
    assert status(proof(server, "meters/d", challenge="6b01ccf8.49b306c7f52ace6f1c3282997e3b1eb9")) == 401
    assert status("Tidegate-HMAC nonsense") == 401
    assert status(f"Bearer {APPLICATION_KEY}") == 403
    assert status("Bearer wrong") == 401


def test_what_is_counted_of_an_application_is_in_the_metrics_too(server):
    url = f"ws://127.0.0.1:{server.port}/v1/devices/d/ws?application=meters"
    with Device(server, "d") as device:
        headers = {"Authorization": f"Bearer {APPLICATION_KEY}"}
        with connect(url, additional_headers=headers, proxy=None) as socket:
            socket.send("hi")
            device.answer(lambda asked: asked)
            assert socket.recv(SECONDS) == "hi"
            shown = statistics(server)
            assert (shown["devices"], shown["websockets"], shown["answers"]) == (1, 1, 1)
            lines = call(server, "GET", "/metrics", None).text.splitlines()
    for name, value in [("devices", 1), ("websockets", 1), ("answers_total", 1), ("answer_seconds_count", 1)]:
        prefix = f'tidegate_application_{name}{{application="meters",'
        found = [float(line.split()[1]) for line in lines if line.startswith(prefix)]
        assert sum(found) == value, (name, lines)
    until(lambda: statistics(server)["websockets"] == 0, "the WebSocket is gone, and is counted still")


def test_a_gateway_attaches_devices_on_its_session_and_a_device_takes_one_over(server):
    with connect(f"ws://127.0.0.1:{server.port}/v1/ws", proxy=None) as gateway:

        def command(**members):
            gateway.send(json.dumps(members))
            return json.loads(gateway.recv(SECONDS))

        with Reader(server, "devices/meters/+/presence") as reader:
            for at, name in enumerate(["g1", "g2"]):
                authorization = proof(server, f"meters/{name}")
                told = command(id=at, type="attach", device=f"meters/{name}", authorization=authorization)
                assert told == {"type": "attached", "id": at, "device": f"meters/{name}"}
                assert reader.presence_of(name) == "attached"
            with asking(server, "g2", b"read") as answer:
                asked = json.loads(gateway.recv(SECONDS))
                gateway.send(json.dumps({"type": "respond", "request": asked["request"], "data": [2]}))
            assert answer.result().json() == [2]
            with Device(server, "g1") as device:
                told = json.loads(gateway.recv(SECONDS))
                assert (told["type"], told["code"]) == ("detached", 4224)
                with asking(server, "g1", b"read") as answer:
                    device.answer(lambda asked: asked + "!")
                assert answer.result().text == "read!"
                assert attached(server) == {"g1", "g2"}
            assert reader.presence_of("g1") == "attached"
            assert reader.presence_of("g1") == "detached"
            gateway.close()
            assert reader.presence_of("g2") == "detached"


def test_a_command_is_a_device(server, tmp_path):
    url = f"ws://127.0.0.1:{server.port}"
    command = [PROGRAM, "handle", "--server", url, "--device", "meters/cli", "--exec", "rev"]
    device = Program(server, "cli", command, tmp_path)
    try:
        assert ask(server, "cli", b"hello").text == "olleh"
        with Device(server, "cli") as other:
            assert device.process.wait(SECONDS) != 0, "another has its name"
            with asking(server, "cli", b"hello") as answer:
                other.answer(lambda asked: asked)
            assert answer.result().text == "hello"
    finally:
        device.end()


@pytest.mark.long
def test_a_device_finds_the_longest_silence_that_gets_through(server, tmp_path):
    with in_thread(ForgetfulProxy, server.port) as network:
        url = f"http://127.0.0.1:{network.port}"
        command = [sys.executable, EXAMPLES / "device.py", url, "meters", "quiet", "--heartbeat", "1", "--adapt", "60"]
        device = Program(server, "quiet", command, tmp_path)
        try:
            device.says("a silence of 2 s got through")
            device.says("a silence of 4 s was too long, staying with 2 s")
            until(lambda: sum("attached" in line for line in device.lines) == 2, "it does not come back")
            assert ask(server, "quiet", b"temperature").status_code == 200
        finally:
            device.end()


def test_many_requests_are_open_at_once_and_answered_in_any_order(server):
    rounds, count = 20, 16
    with Device(server, "d") as device, concurrent.futures.ThreadPoolExecutor(count + 1) as pool:
        for turn in range(rounds):
            payloads = [f"{turn}-{number}" for number in range(count)]
            answers = [pool.submit(ask, server, "d", payload) for payload in payloads]
            asked = [device.hear() for _ in range(count)]
            if turn == 0:
                assert code_of(ask(server, "d", "one too many")) == (429, 4110)
            for message in sorted(asked, key=hash):
                device.say(f"A{message[1:5]}answer to {message[5:]}")
            assert [answer.result().text for answer in answers] == [f"answer to {payload}" for payload in payloads]
        counts = statistics(server)
        assert (counts["answers"], counts["late_answers"]) == (rounds * count, 0), counts


def test_a_device_asked_very_often_gives_each_asker_its_own_answer(server):
    """More requests than there are numbers of four digits would take long; a few thousand show the same."""
    count = 1500
    with Device(server, "d") as device:

        def answer_all():
            for _ in range(count):
                device.answer(lambda payload: payload[::-1])

        thread = threading.Thread(target=answer_all, daemon=True)
        thread.start()
        with httpx.Client(trust_env=False, timeout=SECONDS) as client:
            url = f"http://127.0.0.1:{server.port}/v1/devices/d/send?application=meters"
            headers = {"Authorization": f"Bearer {APPLICATION_KEY}"}
            for number in range(count):
                answer = client.post(url, headers=headers, content=f"number {number}")
                assert answer.text == f"number {number}"[::-1]
        thread.join(SECONDS)


def test_late_and_strange_answers_harm_nobody(server):
    with Device(server, "d") as device:
        assert code_of(ask(server, "d", "x", timeout_ms=100)) == (504, 4108)
        late = device.hear()
        device.say(f"A{late[1:5]}late")
        device.say("Affffto nothing")
        with asking(server, "d", "y") as answer:
            asked = device.hear()
            device.say(f"A{asked[1:5]}yes")
            device.say(f"A{asked[1:5]}twice")
        assert answer.result().text == "yes"
        until(lambda: statistics(server)["late_answers"] == 3, "they are counted")



def test_presence_is_the_value_of_its_topic(server):
    query = "&info=" + urllib.parse.quote('{"model":"T-1"}')
    path = "/v1/topics/devices/meters/d/presence"
    with Device(server, "d", query):
        data = call(server, "GET", path, None).json()["data"]
        assert (data["state"], data["info"]) == ("attached", {"model": "T-1"})
    until(lambda: call(server, "GET", path, None).json()["data"]["state"] == "detached", "it goes")



def test_lines_may_be_cut_anywhere(server):
    with Device(server, "d", "&framing=lines") as device, Reader(server, "devices/meters/d/events") as reader:
        for byte in b'E{"n":1}\nE{"n":2}\r\n\r\n\nE{"n":3}\n':
            device.socket.sendall(b"1\r\n%c\r\n" % byte)
        assert [reader.next()[1]["n"] for _ in range(3)] == [1, 2, 3]
        with asking(server, "d", "one line") as answer:
            asked = device.hear()
            assert asked.endswith("one line\n")
            device.say(f"A{asked[1:5]}yes\n")
        assert answer.result().text == "yes"


def test_what_breaks_the_rules_is_told_and_closed(server):
    too_large = b"fffffff\r\n" + b"x" * 2_000_000
    for body, code in ((b"zz\r\n", 4210), (b"2\r\nXY\r\n", 4200), (b"3\r\nA12\r\n", 4200), (too_large, 4205)):
        with Device(server, "d") as device:
            with contextlib.suppress(OSError):
                device.socket.sendall(body)
            closing = device.hear()
            assert closing.startswith("C") and json.loads(closing[1:])["code"] == code, (body[:20], closing)
    until(lambda: attached(server) == set(), "it is gone")


def test_a_key_is_replaced_without_a_restart(server):
    asked = "/v1/devices?application=meters"
    assert call(server, "GET", asked).status_code == 200
    path = pathlib.Path(server.file)
    both = CONFIG.replace(APPLICATION_KEY, "a-newer-key-for-the-backend")
    path.write_text(path.read_text().replace(CONFIG, both))
    server.signal(signal.SIGHUP)
    until(lambda: call(server, "GET", asked, "a-newer-key-for-the-backend").status_code == 200, "the new key")
    until(lambda: call(server, "GET", asked).status_code == 401, "the old key is gone")
    path.write_text("[applications")
    server.signal(signal.SIGHUP)
    until(lambda: "not taken over" in server.errors(), "it does not say that it cannot be read")
    assert call(server, "GET", asked, "a-newer-key-for-the-backend").status_code == 200, "a bad file changes nothing"

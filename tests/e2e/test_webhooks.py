"""Webhooks (docs/webhooks.md): what an endpoint gets, checked by the official library, and what becomes of the rest."""

import contextlib
import http.server
import json
import re
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest
from devices import CONFIG as DEVICES
from devices import SECONDS, Device, call
from server import PROGRAM, Server, free_port, until
from standardwebhooks import Webhook, WebhookVerificationError

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
MEMORY = ""
DISK = '[store]\npath = "{store}"\n[[topics]]\nselector = "jobs/#"\nack = "disk"\nhistory_count = 100000\n'


class Request:
    """One attempt as it arrived."""

    def __init__(self, headers, body):
        self.headers, self.body, self.at = headers, body, time.monotonic()
        self.id = headers["webhook-id"]
        self.message = json.loads(body)
        self.data = self.message["data"]
        self.key = (self.data["topic"], self.data["sequence"])

    def verify(self, secret=SECRET):
        return Webhook(secret).verify(self.body, self.headers)


class Endpoint:
    """A receiver that we did not write; `answer` says what each request is answered: a status, and perhaps fields."""

    def __init__(self, answer=lambda request: 204, port=0, certificate=None):
        self.requests, self.answer = [], answer
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                request = Request({name.lower(): value for name, value in self.headers.items()}, body)
                request.path = self.path
                endpoint.requests.append(request)
                answer = endpoint.answer(request)
                status, fields = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(status)
                for name, value in fields.items():
                    self.send_header(name, value)
                if status != 204:
                    self.send_header("content-length", "2")
                self.end_headers()
                if status != 204:
                    self.wfile.write(b"ok")

            def log_message(self, *_):
                pass

        class Listener(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                """A peer that was killed, or gave up waiting, is none of the test's failures."""

        self.server = Listener(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        scheme = "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            scheme = "https"
        self.url = f"{scheme}://localhost:{self.port}/hooks?tenant=7"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def keys(self):
        return [request.key for request in list(self.requests)]

    def wait(self, *keys):
        """Waits until all of these came."""
        until(lambda: set(keys) <= set(self.keys()), "not all of them come")


def section(url, topics=("jobs/#",), name="erp", secrets=(SECRET,), **settings):
    """A `[[webhooks]]` that does not take its time."""
    settings = {"pause_ms_min": 20, "pause_ms_max": 100, "timeout_ms": 5000, **settings}
    lines = [f'name = "{name}"', f'url = "{url}"', f"topics = {json.dumps(list(topics))}"]
    lines += [f"secrets = {json.dumps(list(secrets))}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    return "[[webhooks]]\n" + "\n".join(lines) + "\n"


@contextlib.contextmanager
def serving(folder, config):
    server = Server(config, folder, env={"no_proxy": "*"}).start()
    try:
        yield server
    finally:
        server.kill()


def publish(server, topic, *payloads):
    """Publishes, and answers the sequences."""
    result = server.run("pub", "--json", topic, "-", input="".join(f"{payload}\n" for payload in payloads))
    assert result.returncode == 0, result.stderr
    return [json.loads(line)["sequence"] for line in result.stdout.splitlines()]


def metric(server, name, webhook="erp"):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found = re.search(rf'^tidegate_webhook_{name}{{webhook="{webhook}"}} (\d+)$', text, re.MULTILINE)
    return int(found[1])


def letters(server, webhook="erp"):
    """The dead letters so far."""
    try:
        page = server.get(f"/v1/history/webhooks/{webhook}/dead?last=1000")
    except OSError:
        return []
    return [publication["data"] for publication in page["publications"]]


def says(server, text):
    until(lambda: text in server.errors(), f"it does not say {text!r}: {server.errors()}")


@pytest.mark.parametrize("config", [MEMORY, DISK], ids=["memory", "disk"])
def test_publications_arrive_signed_and_in_order(tmp_path, config):
    with Endpoint() as endpoint, serving(tmp_path, config + section(endpoint.url)) as server:
        publish(server, "jobs/a", '{"n": 1.50}', '"two"')
        assert server.run("pub", "--text", "jobs/b", "some text").returncode == 0
        publish(server, "other/a", "1")
        publish(server, "jobs/a", "3")
        endpoint.wait(("jobs/a", 1), ("jobs/a", 2), ("jobs/a", 3), ("jobs/b", 1))
        assert [sequence for topic, sequence in endpoint.keys() if topic == "jobs/a"] == [1, 2, 3]
        assert len(endpoint.keys()) == 4, "each once, and none of other topics"
        for request in endpoint.requests:
            assert request.path == "/hooks?tenant=7" and request.headers["content-type"] == "application/json"
            verified = request.verify()
            assert verified["type"] == "publication" and verified["timestamp"].endswith("Z")
            with pytest.raises(WebhookVerificationError):
                request.verify(OTHER_SECRET)
        by_key = {request.key: request for request in endpoint.requests}
        assert b'"data":{"n": 1.50}' in by_key["jobs/a", 1].body, "as it was published"
        assert by_key["jobs/b", 1].data["text"] == "some text"
        until(lambda: metric(server, "delivered_total") == 4, "it is counted")
        until(lambda: metric(server, "pending") == 0, "nothing waits")
        assert abs(metric(server, "last_success_timestamp_seconds") - time.time()) < SECONDS


def test_what_fails_is_tried_again_under_the_same_id(tmp_path):
    answers = iter([500, 302, 404, 200])
    with Endpoint(lambda _: next(answers)) as endpoint, serving(tmp_path, section(endpoint.url)) as server:
        publish(server, "jobs/a", "1")
        until(lambda: len(endpoint.requests) == 4, "it is tried again")
        until(lambda: metric(server, "delivered_total") == 1, "it is delivered")
        assert metric(server, "attempts_failed_total") == 3 and letters(server) == []
        assert len({(request.id, request.body) for request in endpoint.requests}) == 1
        for request in endpoint.requests:
            request.verify()
        says(server, "the endpoint fails")
        says(server, "the endpoint works again")
        assert server.errors().count("the endpoint fails") == 1


def test_an_endpoint_that_asks_for_time_gets_it(tmp_path):
    answers = iter([(503, {"Retry-After": "2"}), 200, 200])
    with Endpoint(lambda _: next(answers)) as endpoint, serving(tmp_path, section(endpoint.url)) as server:
        publish(server, "jobs/a", "1")
        until(lambda: endpoint.requests, "the first attempt")
        publish(server, "jobs/b", "1")
        endpoint.wait(("jobs/a", 1), ("jobs/b", 1))
        until(lambda: len(endpoint.requests) == 3, "all are delivered")
        assert endpoint.requests[1].at - endpoint.requests[0].at > 1.9, "other topics wait, too"


def test_an_attempt_takes_no_longer_than_it_may(tmp_path):
    is_over, first = threading.Event(), []

    def answer(request):
        if not first:
            first.append(request)
            is_over.wait(SECONDS)
        return 200

    with Endpoint(answer) as endpoint, serving(tmp_path, section(endpoint.url, timeout_ms=300)) as server:
        publish(server, "jobs/a", "1")
        until(lambda: len(endpoint.requests) == 2, "it is tried again")
        until(lambda: metric(server, "delivered_total") == 1, "it is delivered")
        assert endpoint.requests[1].at - endpoint.requests[0].at < SECONDS / 2
        is_over.set()


@pytest.mark.parametrize("config", [MEMORY, DISK], ids=["memory", "disk"])
def test_a_topic_that_fails_holds_its_own_and_no_others(tmp_path, config):
    is_mended = threading.Event()

    def answer(request):
        is_bad = request.key == ("jobs/bad", 1) and not is_mended.is_set()
        return 500 if is_bad else 200

    with Endpoint(answer) as endpoint:
        # Less room than the topic has publications.
        limits = "[limits]\nwebhook_pending_max = 20\nwebhook_topic_pending_max = 5\n"
        with serving(tmp_path, config + limits + section(endpoint.url, attempts_max=1000)) as server:
            publish(server, "jobs/bad", *range(60))
            until(lambda: len(endpoint.requests) > 3, "it is tried again")
            publish(server, "jobs/good", *range(1, 21))
            endpoint.wait(*[("jobs/good", sequence) for sequence in range(1, 21)])
            assert ("jobs/bad", 2) not in endpoint.keys(), "the next one waits for the first"
            is_mended.set()
            publish(server, "jobs/bad", "60")
            endpoint.wait(("jobs/bad", 61))
            until(lambda: metric(server, "pending") == 0, "all is delivered")
            sequences = [sequence for topic, sequence in endpoint.keys() if topic == "jobs/bad"]
            assert sequences == sorted(sequences) and set(sequences) == set(range(1, 62))
            assert sequences.count(1) > 3 and all(sequences.count(number) == 1 for number in range(2, 62))
            assert letters(server) == []


@pytest.mark.parametrize("config", [MEMORY, DISK], ids=["memory", "disk"])
def test_what_cannot_be_delivered_is_recorded(tmp_path, config):
    def answer(request):
        return 503 if request.data["sequence"] == 2 else 200

    with Endpoint(answer) as endpoint, serving(tmp_path, config + section(endpoint.url, attempts_max=3)) as server:
        publish(server, "jobs/a", '{"n":1}', '{"n":2}', '{"n":3}')
        endpoint.wait(("jobs/a", 3))
        attempts = [request for request in endpoint.requests if request.key == ("jobs/a", 2)]
        assert len(attempts) == 3 and endpoint.keys()[-1] == ("jobs/a", 3)
        (letter,) = letters(server)
        assert (letter["type"], letter["webhook"], letter["topic"], letter["sequence"]) == (
            "undelivered",
            "erp",
            "jobs/a",
            2,
        )
        assert (letter["attempts"], letter["status"], letter["data"]) == (3, 503, {"n": 2})
        assert letter["id"] == attempts[0].id and letter["first_at"] <= letter["last_at"]
        assert metric(server, "dead_letters_total") == 1
        says(server, "a dead letter")
        refused = server.run("pub", "webhooks/erp/dead", '{"forged":true}')
        assert refused.returncode == 4 and "4301" in refused.stderr, "without a token nobody writes there"
        level = server.run("sub", "--json", "webhooks/erp/dead", "--from", "all", "--count", "1")
        assert json.loads(level.stdout)["data"]["id"] == letter["id"]


def test_a_large_payload_leaves_a_letter_without_it(tmp_path):
    """The letter would be larger than a payload may be."""
    text = "x" * (1 << 20)
    with Endpoint(lambda _: 500) as endpoint, serving(tmp_path, DISK + section(endpoint.url, attempts_max=1)) as server:
        assert server.run("pub", "--text", "jobs/a", "-", input=text + "\n").returncode == 0
        endpoint.wait(("jobs/a", 1))
        assert endpoint.requests[0].verify()["data"]["text"] == text
        until(lambda: letters(server), "it is recorded")
        (letter,) = letters(server)
        assert letter["payload_bytes"] == 1 << 20 and "text" not in letter


def test_an_endpoint_that_is_gone_is_left_alone_until_a_restart(tmp_path):
    with Endpoint(lambda _: 410) as endpoint:
        config = DISK + section(endpoint.url)
        with serving(tmp_path, config) as server:
            publish(server, "jobs/a", "1", "2")
            says(server, "answered 410")
            publish(server, "jobs/b", "1")
            until(lambda: metric(server, "failing") == 2, "it is told")
            assert server.get("/ready") == {"status": "ready", "bridges": {"erp": "gone"}}
            assert endpoint.keys() == [("jobs/a", 1)] and letters(server) == []
            assert metric(server, "delivered_total") == 0
        endpoint.answer = lambda _: 200
        with serving(tmp_path, config):
            endpoint.wait(("jobs/a", 1), ("jobs/a", 2), ("jobs/b", 1))


@pytest.mark.long
def test_after_a_kill_nothing_is_lost(tmp_path):
    """Killed at any moment, again and again, while publications are delivered, and some fail."""
    count = 300
    seen = set()

    def answer(request):
        is_first = request.key not in seen
        seen.add(request.key)
        return 500 if is_first and request.key[1] % 5 == 0 else 200

    with Endpoint(answer) as endpoint:
        config = DISK + section(endpoint.url, attempts_max=1000)
        published = set()
        for turn in range(4):
            with serving(tmp_path, config) as server:
                for topic in ("jobs/a", "jobs/b", "jobs/c"):
                    sequences = publish(server, topic, *range(turn * count, turn * count + count))
                    published |= {(topic, sequence) for sequence in sequences}
                enough = len(endpoint.requests) + 1 + 37 * turn
                until(lambda enough=enough: len(endpoint.requests) >= enough, "it goes on")
        assert len(published) == 4 * 3 * count
        with serving(tmp_path, config) as server:
            endpoint.wait(*published)
            until(lambda: metric(server, "pending") == 0, "nothing waits")
            assert letters(server) == []
        ids = {}
        for request in endpoint.requests:
            request.verify()
            assert ids.setdefault(request.key, request.id) == request.id, "a repetition has the same id"
        assert len(set(ids.values())) == len(ids) == len(published)
        for topic in ("jobs/a", "jobs/b", "jobs/c"):
            firsts = list(dict.fromkeys(sequence for name, sequence in endpoint.keys() if name == topic))
            assert firsts == sorted(firsts), "in order, apart from what comes again"


def test_many_topics_are_remembered(tmp_path):
    """More than one name of a subscriber may know."""
    topics = [f"jobs/{number}" for number in range(1500)]
    with Endpoint() as endpoint:
        config = DISK + section(endpoint.url)
        with serving(tmp_path, config) as server:
            assert call(server, "POST", "/v1/publish", None, json={"topics": topics, "data": 1}).status_code == 200
            endpoint.wait(*[(topic, 1) for topic in topics])
            until(lambda: metric(server, "pending") == 0, "nothing waits")
            server.stop()
            assert "cannot remember" not in server.errors()
        with serving(tmp_path, config) as server:
            publish(server, "jobs/0", "2")
            endpoint.wait(("jobs/0", 2))
            until(lambda: metric(server, "pending") == 0, "nothing waits")
        assert len(endpoint.requests) == 1501, "each once"


def test_a_server_that_stops_in_order_repeats_nothing(tmp_path):
    with Endpoint() as endpoint:
        config = DISK + section(endpoint.url)
        with serving(tmp_path, config) as server:
            publish(server, "jobs/a", *range(50))
            until(lambda: len(endpoint.requests) > 5, "it is at work")
            server.stop()
        with serving(tmp_path, config) as server:
            endpoint.wait(*[("jobs/a", sequence) for sequence in range(1, 51)])
            until(lambda: metric(server, "pending") == 0, "nothing waits")
        assert endpoint.keys() == [("jobs/a", sequence) for sequence in range(1, 51)]


def test_an_endpoint_that_comes_back_gets_everything(tmp_path):
    port, topics = free_port(), [f"jobs/{number}" for number in range(12)]
    with serving(tmp_path, DISK + section(f"http://localhost:{port}/", attempts_max=1000)) as server:
        for topic in topics:
            publish(server, topic, "1", "2")
        says(server, "the endpoint fails")
        assert metric(server, "failing") == 1 and metric(server, "oldest_pending_timestamp_seconds") > 0
        assert server.get("/ready") == {"status": "ready", "bridges": {"erp": "failing"}}
        with Endpoint(port=port) as endpoint:
            endpoint.wait(*[(topic, sequence) for topic in topics for sequence in (1, 2)])
            says(server, "the endpoint works again")
            until(lambda: metric(server, "failing") == 0, "it is told")
            assert server.get("/ready") == {"status": "ready"}
        assert letters(server) == []


def test_what_history_no_longer_has_is_recorded(tmp_path):
    """A topic that keeps three, while the webhook may not read ahead."""
    is_mended = threading.Event()
    topics = '[[topics]]\nselector = "jobs/#"\nhistory_count = 3\n[limits]\nwebhook_pending_max = 2\n'
    limits = "recent_deliveries_max = 4\n"
    with Endpoint(lambda _: 200 if is_mended.is_set() else 500) as endpoint:
        with serving(tmp_path, topics + limits + section(endpoint.url, attempts_max=1000)) as server:
            publish(server, "jobs/a", "1", "2")
            until(lambda: metric(server, "pending") == 2, "no more than that is read")
            # More than the connection's buffers hold.
            big = json.dumps("x" * 100_000)
            newest = publish(server, "jobs/a", *[big] * 200)[-1]
            is_mended.set()
            endpoint.wait(("jobs/a", newest))
            until(lambda: metric(server, "pending") == 0, "nothing waits")
            missed = [letter for letter in letters(server) if letter["type"] == "missed"]
            gaps = {sequence for letter in missed for sequence in range(letter["from"], letter["to"] + 1)}
            delivered = {sequence for _, sequence in endpoint.keys()}
            assert gaps and gaps.isdisjoint(delivered)
            assert gaps | delivered == set(range(1, newest + 1)), "delivered or recorded, each of them"
            assert metric(server, "missed_total") == len(gaps)
            says(server, "cannot be had any more")


def test_a_secret_is_replaced_without_a_break(tmp_path):
    with Endpoint() as endpoint, serving(tmp_path, section(endpoint.url, secrets=[OTHER_SECRET, SECRET])) as server:
        publish(server, "jobs/a", "1")
        endpoint.wait(("jobs/a", 1))
        (request,) = endpoint.requests
        assert len(request.headers["webhook-signature"].split(" ")) == 2
        request.verify(SECRET)
        request.verify(OTHER_SECRET)
        with pytest.raises(WebhookVerificationError):
            request.verify("whsec_" + "A" * 32)


def test_events_of_devices_arrive(tmp_path):
    with Endpoint() as endpoint:
        webhook = section(endpoint.url, ["devices/meters/+/events"])
        with serving(tmp_path, DEVICES + webhook) as server, Device(server, "d-1") as device:
            device.say('E{"celsius":21.5}')
            device.say("Etwo words")
            endpoint.wait(("devices/meters/d-1/events", 1), ("devices/meters/d-1/events", 2))
            first, second = endpoint.requests
            assert first.verify()["data"]["data"] == {"celsius": 21.5}
            assert second.verify()["data"]["text"] == "two words"


def test_two_webhooks_are_two_subscribers(tmp_path):
    with Endpoint() as good, Endpoint(lambda _: 500) as bad:
        both = section(good.url, name="good") + section(bad.url, name="bad", attempts_max=2)
        alarm = section(good.url, ["webhooks/bad/dead"], name="alarm")
        with serving(tmp_path, DISK + both + alarm) as server:
            publish(server, "jobs/a", "1")
            good.wait(("jobs/a", 1), ("webhooks/bad/dead", 1))
            assert metric(server, "dead_letters_total", "bad") == 1
            assert metric(server, "dead_letters_total", "good") == 0
            letter = good.requests[good.keys().index(("webhooks/bad/dead", 1))].verify()["data"]["data"]
            assert (letter["webhook"], letter["topic"]) == ("bad", "jobs/a")


def test_https_trusts_whom_it_is_told_to(tmp_path):
    pair = tmp_path / "pair.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext basicConstraints=CA:FALSE "
    command += "-addext subjectAltName=DNS:localhost"
    made = subprocess.run([*command.split(), "-keyout", pair, "-out", tmp_path / "cert.pem"], capture_output=True)
    assert made.returncode == 0, made.stderr
    certificate = (tmp_path / "cert.pem").read_text()
    pair.write_text(pair.read_text() + certificate)
    with Endpoint(certificate=pair) as endpoint:
        trusting = section(endpoint.url, name="trusting", ca_file=str(tmp_path / "cert.pem"))
        with serving(tmp_path, trusting + section(endpoint.url, name="usual", attempts_max=1)) as server:
            publish(server, "jobs/a", "1")
            endpoint.wait(("jobs/a", 1))
            endpoint.requests[0].verify()
            until(lambda: letters(server, "usual"), "an unknown certificate is refused")
            assert len(endpoint.requests) == 1
            assert "certificate" in letters(server, "usual")[0]["error"]


def test_what_is_wrong_is_said_before_it_starts(tmp_path):
    file = tmp_path / "tidegate.toml"

    def refusal(text, *words):
        file.write_text(text)
        command = [PROGRAM, *(words or ("config", "check", file))]
        result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=SECONDS)
        assert result.returncode == 5, result
        return result.stderr

    assert "tidegate.toml:5: `webhooks.attempt_max`" in (wrong := refusal(section("http://x").replace(
        "secrets", "attempt_max = 1\nsecrets"))) and "did you mean `attempts_max`?" in wrong
    assert "is not an http:// or https:// address" in refusal(section("x"))
    assert "openssl rand" in refusal(section("http://x", secrets=["whsec_AAAA"]))
    assert "needs a `name`" in refusal(section("http://x", name="a/b"))
    missing = section("https://x", ca_file=str(tmp_path / "none.pem"))
    said = refusal(missing, "serve", "--config", file, "--listen", f"127.0.0.1:{free_port()}")
    assert "cannot start the webhook `erp`" in said and "ca_file" in said

"""Sessions over plain HTTP (docs/protocol.md#sessions-over-plain-http), read by `httpx-sse`, by curl, and through nginx.

None of these clients was written for Tidegate: what they need of the server is what the specifications say.
"""

import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import urllib.parse

import httpx
import pytest
from httpx_sse import connect_sse
from server import Server, free_port, until
from websockets.sync.client import connect

CONFIG = """
[engine]
shards = 2
[store]
path = "{store}"
[access]
origins = ["https://app.example"]
[[topics]]
selector = "kept/#"
ack = "disk"
history_count = 100000
[[topics]]
selector = "short/#"
history_count = 3
[[topics]]
selector = "many/#"
history_count = 1000
[limits]
poll_ms = 700
poll_silence_ms = 60000
stream_keep_alive_ms = 300
"""

# Long after anything should have arrived, and shorter than any test may hang.
SECONDS = 60


# So long that what is published on a busy machine still finds the poll waiting.
PATIENT = {"poll_ms = 700": "poll_ms = 60000"}


@pytest.fixture
def server(request, tmp_path):
    config = CONFIG
    for setting, other in getattr(request, "param", {}).items():
        assert setting in config
        config = config.replace(setting, other)
    server = Server(config, tmp_path).start()
    yield server
    server.kill()


def url_of(server, path):
    return f"http://127.0.0.1:{server.port}{path}"


def publish(server, topic, *values):
    publications = [{"topic": topic, "data": value} for value in values]
    answer = httpx.post(url_of(server, "/v1/publish"), json={"publications": publications}, timeout=SECONDS)
    assert all("sequence" in result for result in answer.json()["results"]), answer.text


@contextlib.contextmanager
def events(server, query, last_event_id=None):
    """The events of `/v1/sse`, as httpx-sse reads them."""
    headers = {} if last_event_id is None else {"Last-Event-ID": last_event_id}
    # The environment's proxies are none of ours.
    with httpx.Client(timeout=SECONDS, trust_env=False) as client:
        with connect_sse(client, "GET", url_of(server, f"/v1/sse?{query}"), headers=headers) as source:
            source.response.raise_for_status()
            raw = source.response.extensions["network_stream"].get_extra_info("socket")
            # Signs of life keep the client's own timeout from ever coming.
            timer = threading.Timer(2 * SECONDS, raw.shutdown, [socket.SHUT_RDWR])
            timer.start()
            try:
                # httpx-sse tells blocks without data too, such as `retry` alone, which the specification discards.
                yield (event for event in source.iter_sse() if event.data)
            finally:
                timer.cancel()


def next_of(source, *names):
    """The next event of one of these names; publications are called `message`."""
    return next(event for event in source if event.event in names)


def take(source, count):
    """The next `count` publications, with their ids; nothing may be missing between them."""
    taken = [next_of(source, "message", "gap") for _ in range(count)]
    assert all(event.event == "message" for event in taken), taken
    return taken


def data_of(events):
    return [json.loads(event.data)["data"] for event in events]


# Resuming by Last-Event-ID.


def test_of_one_topic_a_reader_gets_exactly_what_it_missed(server):
    publish(server, "kept/a", *range(5))
    with events(server, "topic=kept/a&from=all") as source:
        read = take(source, 3)
        assert data_of(read) == [0, 1, 2]
    publish(server, "kept/a", *range(5, 200))
    with events(server, "topic=kept/a", read[-1].id) as source:
        assert json.loads(next_of(source, "subscribed").data)["topics"][0]["recovered"] is True
        missed = take(source, 197)
        assert data_of(missed) == list(range(3, 200))
        publish(server, "kept/a", "live")
        assert data_of(take(source, 1)) == ["live"]


def test_the_id_may_also_be_in_the_query(server):
    publish(server, "kept/a", 1, 2, 3)
    with events(server, "topic=kept/a&from=all") as source:
        first = take(source, 1)[0]
    with events(server, "topic=kept/a&last_event_id=" + urllib.parse.quote(first.id)) as source:
        assert data_of(take(source, 2)) == [2, 3]


def test_of_one_topic_what_is_not_kept_any_more_is_a_gap(server):
    publish(server, "short/a", 1)
    with events(server, "topic=short/a") as source:
        read = take(source, 1)
    publish(server, "short/a", *range(2, 11))
    with events(server, "topic=short/a", read[0].id) as source:
        gap = json.loads(next_of(source, "gap", "message").data)
        assert (gap["type"], gap.get("from"), gap["to"], gap["reason"]) == ("gap", 2, 7, "history")
        assert data_of(take(source, 3)) == [8, 9, 10]


def test_a_reader_that_missed_nothing_is_told_nothing_twice(server):
    publish(server, "kept/a", 1)
    with events(server, "topic=kept/a") as source:
        read = take(source, 1)
    with events(server, "topic=kept/a", read[0].id) as source:
        next_of(source, "subscribed")
        publish(server, "kept/a", 2)
        assert data_of(take(source, 1)) == [2]


def test_of_several_topics_a_reader_gets_everything_at_least_once(server):
    query = "topic=many/a&topic=many/b&from=all"
    publish(server, "many/a", 1, 2)
    publish(server, "many/b", 1, 2)
    seen = {"many/a": set(), "many/b": set()}

    def note(event):
        wire = json.loads(event.data)
        seen[wire["topic"]].add(wire["sequence"])

    with events(server, query) as source:
        for event in (read := take(source, 4)):
            note(event)
    for number in range(3, 8):
        publish(server, "many/a", number)
        publish(server, "many/b", number)
    with events(server, query, read[-1].id) as source:
        while seen != {"many/a": set(range(1, 8)), "many/b": set(range(1, 8))}:
            note(next_of(source, "message"))


@pytest.mark.parametrize("query", ["topic=many/b&topic=many/a", "topic=many/%2B"])
def test_who_is_cut_again_and_again_while_it_catches_up_gets_on_and_loses_nothing(server, query):
    topics = ["many/a", "many/b", "many/c"][: 2 if "many/b" in query else 3]
    for topic in topics:
        publish(server, topic, *range(1, 11))
    first_published = time.monotonic()
    # An id of before named a time, of which two seconds came again: these are older.
    while time.monotonic() - first_published < 2.2:
        time.sleep(0.1)
    for topic in topics:
        publish(server, topic, *range(11, 16))
    wanted = {(topic, number) for topic in topics for number in range(1, 16)}
    seen, last_id, connections = set(), None, 0
    while not wanted <= seen:
        connections += 1
        assert connections <= len(wanted), f"it does not get on: {sorted(wanted - seen)}"
        with events(server, f"{query}&from=all", last_id) as source:
            # Three publications, then the cable is pulled.
            for event in take(source, min(3, len(wanted - seen))):
                wire = json.loads(event.data)
                seen.add((wire["topic"], wire["data"]))
                last_id = event.id
        if connections == 2:
            publish(server, topics[0], 16)
            wanted.add((topics[0], 16))


def test_a_reader_that_is_cut_before_anything_was_published_has_a_place_to_go_on_from(server):
    for number, query in enumerate(["topic=many/a", "topic=many/a&topic=many/b", "topic=many/%2B"]):
        with events(server, f"{query}&from=now") as source:
            last_id = next_of(source, "subscribed").id
        publish(server, "many/a", number)
        with events(server, f"{query}&from=now", last_id) as source:
            while data_of(take(source, 1)) != [number]:
                pass


@pytest.mark.parametrize("query", ["topic=many/a&topic=many/b", "topic=many/%2B", "topic=many/a"])
def test_a_new_epoch_is_a_gap(server, query):
    publish(server, "many/a", 1, 2)
    with events(server, query) as source:
        read = take(source, 1)
    server.kill()
    server.start()
    publish(server, "many/a", "after")
    with events(server, query, read[0].id) as source:
        first = next_of(source, "gap", "message")
        gap = json.loads(first.data)
        assert (first.event, gap["topic"], gap["reason"]) == ("gap", "many/a", "epoch"), first
        publish(server, "many/a", "live")
        while data_of([next_of(source, "message")]) != ["live"]:
            pass


def test_a_reader_of_a_durable_topic_misses_nothing_over_kills(server):
    """As an `EventSource` would: it connects again, with the last id that it saw."""
    acknowledged, is_over = [], threading.Event()

    def publish_next(client):
        number = len(acknowledged)
        data = "the end" if is_over.is_set() else number
        body = {"topic": "kept/k", "data": data, "key": f"k-{data}"}
        with contextlib.suppress(httpx.HTTPError):
            acknowledged.append(client.post(url_of(server, "/v1/publish"), json=body).json()["sequence"])
            return data == "the end"
        time.sleep(0.02)

    def publish_on():
        with httpx.Client(trust_env=False, timeout=5) as client:
            while not publish_next(client):
                pass

    def kill_and_restart():
        for _ in range(3):
            go_on()
            server.kill()
            server.start()
        go_on()
        is_over.set()

    def go_on():
        enough = len(acknowledged) + 40
        until(lambda: len(acknowledged) >= enough, "nothing is acknowledged")

    threads = [threading.Thread(target=work, daemon=True) for work in (publish_on, kill_and_restart)]
    for thread in threads:
        thread.start()
    read, last_event_id, connections = [], None, 0
    deadline = time.monotonic() + 4 * SECONDS
    try:
        while read[-1:] != ["the end"]:
            assert time.monotonic() < deadline, len(read)
            with contextlib.suppress(httpx.HTTPError, StopIteration):
                with events(server, "topic=kept/k&from=all", last_event_id) as source:
                    connections += 1
                    while read[-1:] != ["the end"]:
                        event = take(source, 1)[0]
                        read += data_of([event])
                        last_event_id = event.id
            time.sleep(0.02)
    finally:
        for thread in threads:
            thread.join(60)
    # One that was kept, and whose answer was lost in a kill, may stand before the end.
    assert read[:-1] == list(range(len(read) - 1))
    assert acknowledged == [*range(1, len(acknowledged)), len(read)]
    assert len(read) - len(acknowledged) in (0, 1)
    assert len(read) > 100 and connections >= 3


# curl.


class Curl:
    """A curl that reads on; its lines, one by one."""

    def __init__(self, *words):
        command = ["curl", "--silent", "--show-error", "--no-buffer", "--noproxy", "*", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.timer = threading.Timer(SECONDS, self.process.kill)
        self.timer.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.timer.cancel()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def line(self, start):
        """The next line that starts so, without what it starts with."""
        for line in self.process.stdout:
            if line.startswith(start):
                return line[len(start) :].rstrip("\r\n")
        raise AssertionError(f"curl ended before a line with `{start}`")

    def rest(self):
        return self.process.stdout.read()


def curl(*words):
    """One exchange: status, fields by name in small letters, body."""
    command = ["curl", "--silent", "--show-error", "--include", "--max-time", str(SECONDS), "--noproxy", "*", *words]
    answer = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    head, _, body = answer.partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(first.split()[1]), fields, body


def lines_of(body):
    return [json.loads(line) for line in body.splitlines() if line]


@pytest.mark.parametrize("path", ["/v1/sse", "/v1/stream"])
@pytest.mark.parametrize("version", [[], ["-0"]], ids=["http-1.1", "http-1.0"])
def test_curl_reads_what_is_published_as_it_is_published(server, path, version):
    start = 'data: {"type":"publication"' if path == "/v1/sse" else '{"type":"publication"'
    with Curl(*version, "--include", url_of(server, f"{path}?topic=kept/a")) as reader:
        assert reader.line("HTTP/").split()[1] == "200"
        head = []
        while (line := reader.line("")) != "":
            head.append(line.lower())
        assert ("transfer-encoding: chunked" in head) == (version == [])
        assert "x-accel-buffering: no" in head
        assert any(line.startswith("cache-control:") and "no-transform" in line for line in head)
        reader.line("event: subscribed" if path == "/v1/sse" else '{"type":"subscribed"')
        for number in range(20):
            # The next one is published when this one has come: whoever holds it back holds it for ever.
            publish(server, "kept/a", number)
            assert f'"data":{number}' in reader.line(start)


def test_each_way_is_given_signs_of_life(server):
    with Curl(url_of(server, "/v1/sse?topic=kept/a")) as reader:
        reader.line("event: subscribed")
        assert reader.line(":") is not None
    with Curl(url_of(server, "/v1/stream?topic=kept/a")) as reader:
        reader.line('{"type":"subscribed"')
        assert reader.line("") == ""


def test_commands_in_the_body_and_in_requests_of_their_own(server):
    body = '{"id":1,"type":"hello","client":"curl"}{"id":2,"type":"subscribe","topic":"kept/a"}'
    with Curl("--data", body, url_of(server, "/v1/stream")) as reader:
        welcome = json.loads('{"type":"welcome"' + reader.line('{"type":"welcome"'))
        assert welcome["id"] == 1
        reader.line('{"type":"subscribed"')
        commands = [{"id": 3, "type": "publish", "topic": "kept/a", "data": 1}, {"id": 4, "type": "ping"}]
        url = url_of(server, "/v1/commands?session=" + welcome["key"])
        status, _, answer = curl("--data", json.dumps(commands), url)
        assert (status, json.loads(answer)) == (202, {"accepted": 2})
        told = [json.loads("{" + reader.line("{")) for _ in range(3)]
        assert {event["type"] for event in told} == {"published", "publication", "pong"}


def test_commands_for_a_session_that_ended(server):
    with Curl(url_of(server, "/v1/stream?topic=kept/a")) as reader:
        key = json.loads(reader.line(""))["key"]
    url, body = url_of(server, "/v1/commands?session=" + key), '{"type":"ping"}'
    answer = until(lambda: (told := curl("--data", body, url))[0] != 202 and told, "the session outlives its connection")
    assert answer[0] == 404 and json.loads(answer[2])["code"] == 4002


def open_poll(server, query="topic=kept/a", *words):
    """Opens a session by poll: its key, and the first batch's number."""
    status, _, body = curl(*words, url_of(server, f"/v1/poll?{query}"))
    assert status == 200, body
    told = lines_of(body)
    assert told[0]["type"] == "welcome" and told[-1]["type"] == "polled"
    return told[0]["key"], told[-1]["batch"]


@pytest.mark.parametrize("version", [[], ["-0"]], ids=["http-1.1", "http-1.0"])
def test_a_lost_answer_to_a_poll_is_given_again(server, version):
    key, batch = open_poll(server, "topic=kept/a", *version)
    publish(server, "kept/a", 1, 2)
    url = url_of(server, f"/v1/poll?session={key}&batch=")
    first = curl(*version, f"{url}{batch}")
    told = lines_of(first[2])
    assert [event["data"] for event in told[:-1] if event["type"] == "publication"] == [1, 2]
    # What comes between does not change what is given again.
    publish(server, "kept/a", 3)
    assert curl(*version, f"{url}{batch}")[2] == first[2]
    assert curl(*version, f"{url}{batch}")[2] == first[2]
    later = lines_of(curl(*version, f"{url}{told[-1]['batch']}")[2])
    assert [event["data"] for event in later[:-1] if event["type"] == "publication"] == [3]
    assert later[-1]["batch"] == told[-1]["batch"] + 1



@pytest.mark.parametrize("server", [PATIENT], indirect=True, ids=["patient"])
def test_a_poll_waits_for_something_to_tell(server):
    key, batch = open_poll(server)
    accepted = server.metric("tidegate_connections_accepted_total")
    with Curl(url_of(server, f"/v1/poll?session={key}&batch={batch}")) as reader:
        # Each look is a connection, too.
        looks = itertools.count(1)
        until(lambda: server.metric("tidegate_connections_accepted_total") - accepted > next(looks), "no poll comes")
        publish(server, "kept/a", 1)
        assert '"data":1' in reader.line('{"type":"publication"')
        reader.line('{"type":"polled"')



def test_a_poll_may_carry_commands(server):
    key, batch = open_poll(server)
    url = url_of(server, f"/v1/poll?session={key}&batch={batch}")
    told = lines_of(curl("--data", '{"id":7,"type":"publish","topic":"kept/a","data":1}', url)[2])
    if len(told) == 2:
        told += lines_of(curl(url_of(server, f"/v1/poll?session={key}&batch={told[-1]['batch']}"))[2])
    kinds = {event["type"] for event in told}
    assert {"published", "publication", "polled"} <= kinds


# Pages of other origins.


@pytest.mark.parametrize("path", ["/v1/sse", "/v1/stream", "/v1/poll"])
def test_a_foreign_origin_is_refused(server, path):
    foreign = ["--header", "Origin: https://evil.example"]
    status, fields, body = curl(*foreign, url_of(server, f"{path}?topic=kept/a"))
    assert (status, json.loads(body)["code"]) == (403, 4302)
    assert "access-control-allow-origin" not in fields
    key, _ = open_poll(server)
    status, _, body = curl(*foreign, "--data", '{"type":"ping"}', url_of(server, f"/v1/commands?session={key}"))
    assert (status, json.loads(body)["code"]) == (403, 4302)


@pytest.mark.parametrize("path", ["/v1/sse", "/v1/stream", "/v1/poll"])
def test_an_origin_that_is_listed_is_served(server, path):
    ours = ["--header", "Origin: https://app.example"]
    with Curl("--include", *ours, url_of(server, f"{path}?topic=kept/a")) as reader:
        assert "200" in reader.line("HTTP/")
        head = []
        while (line := reader.line("")) != "":
            head.append(line.lower())
    assert "access-control-allow-origin: https://app.example" in head
    assert any(line.startswith("vary:") and "origin" in line for line in head)
    asked = ["--header", "Access-Control-Request-Method: POST"]
    asked += ["--header", "Access-Control-Request-Headers: authorization, content-type"]
    status, fields, _ = curl("--request", "OPTIONS", *ours, *asked, url_of(server, path))
    assert status in (200, 204) and fields["access-control-allow-origin"] == "https://app.example"
    assert "POST" in fields["access-control-allow-methods"]
    assert {"authorization", "content-type"} <= set(fields["access-control-allow-headers"].lower().split(", "))


def test_refusals_can_be_read_by_pages_of_listed_origins(server):
    ours = ["--header", "Origin: https://app.example"]
    status, fields, body = curl(*ours, url_of(server, "/v1/poll?session=none&batch=1"))
    assert (status, json.loads(body)["code"]) == (404, 4002)
    assert fields["access-control-allow-origin"] == "https://app.example"


def test_the_servers_own_pages_are_served(server):
    own = ["--header", f"Origin: http://127.0.0.1:{server.port}"]
    assert curl(*own, url_of(server, "/v1/poll?topic=kept/a"))[0] == 200


# What is refused.

REFUSED = {
    "a bad selector": ("topic=a//b", 400, 4203),
    "a pattern that goes on": ("topic=a/%23/b", 400, 4203),
    "an unknown start": ("topic=a&from=sideways", 400, 4200),
    "one position of two topics": ("topic=a&topic=b&from=e:1", 400, 4200),
    "an unknown conflation": ("topic=a&conflation=sideways", 400, 4200),
    "a priority out of bounds": ("topic=a&priority=10", 400, 4200),
    "an interval that is no number": ("topic=a&interval_ms=soon", 400, 4210),
    "an unknown delta": ("topic=a&delta=zip", 400, 4200),
    "a bad filter": ("topic=a&filter=data+%3E", 400, 4220),
    "an unknown parameter": ("topic=a&sideways=1", 400, 4210),
    "padding that is no number": ("topic=a&padding=much", 400, 4210),
    "a bad token": ("topic=a&token=wrong", 401, 4300),
    "an unknown session": ("session=none", 404, 4002),
}


@pytest.mark.parametrize("path", ["/v1/sse", "/v1/stream", "/v1/poll"])
@pytest.mark.parametrize(("query", "status", "code"), REFUSED.values(), ids=REFUSED)
def test_bad_parameters_are_refused(server, path, query, status, code):
    answer = curl(url_of(server, f"{path}?{query}"))
    assert answer[0] == status, answer
    refused = json.loads(answer[2])
    assert refused["code"] == code and refused["error"].startswith("cannot ") and refused["word"]


BODIES = {
    "no JSON": ("sideways", 4210),
    "no command": ('{"type":"sideways"}', 4201),
    "half a command": ('{"type":"ping"', 4210),
    "hello in second place": ('[{"type":"ping"},{"type":"hello","token":"x"}]', 4200),
}


@pytest.mark.parametrize(("body", "code"), BODIES.values(), ids=BODIES)
def test_bad_commands_are_refused(server, body, code):
    answer = curl("--data", body, url_of(server, "/v1/poll"))
    # What cannot be read is refused as a request; what may not be done, as a command.
    if answer[0] == 200:
        told = lines_of(answer[2])
        assert code in [event.get("code") for event in told], told
    else:
        assert (answer[0], json.loads(answer[2])["code"]) == (400, code)


def test_wrong_methods_are_refused(server):
    for path in ("/v1/sse", "/v1/stream", "/v1/poll"):
        status, _, body = curl("--request", "DELETE", url_of(server, path))
        assert (status, json.loads(body)["code"]) == (405, 4213)
    status, _, body = curl(url_of(server, "/v1/commands?session=x"))
    assert (status, json.loads(body)["code"]) == (405, 4213)


def test_padding_is_sent_first(server):
    with Curl(url_of(server, "/v1/sse?topic=kept/a&padding=4096")) as reader:
        before = 0
        while not (line := reader.line("")).startswith("event: welcome"):
            before += len(line) + 1
        assert before >= 4096


# nginx.

NGINX = """
daemon off;
master_process off;
pid nginx.pid;
error_log stderr;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://127.0.0.1:{target}; }}
    location /v1/ws {{
      proxy_pass http://127.0.0.1:{target};
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection upgrade;
    }}
  }}
}}
"""


@pytest.fixture
def front(server, tmp_path):
    """nginx before the server, with its buffering as it comes; something that has a port."""
    front = type("Front", (), {"port": free_port()})
    folder = tmp_path / "nginx"
    folder.mkdir()
    (folder / "nginx.conf").write_text(NGINX.format(port=front.port, target=server.port))
    program = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    process = subprocess.Popen([program, "-p", folder, "-c", folder / "nginx.conf"], stderr=subprocess.PIPE)
    try:

        def answers():
            assert process.poll() is None, process.stderr.read()
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(url_of(front, "/health"), trust_env=False, timeout=SECONDS).status_code == 200

        until(answers, "nginx does not listen")
        yield front
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize("path", ["/v1/sse", "/v1/stream"])
def test_nginx_passes_streams_on_as_they_come(server, front, path):
    start = 'data: {"type":"publication"' if path == "/v1/sse" else '{"type":"publication"'
    with Curl(url_of(front, f"{path}?topic=kept/a")) as reader:
        reader.line("event: subscribed" if path == "/v1/sse" else '{"type":"subscribed"')
        for number in range(10):
            # The next one is published when this one has come: whoever holds it back holds it for ever.
            publish(server, "kept/a", number)
            assert f'"data":{number}' in reader.line(start)


def test_nginx_passes_a_resume_on(server, front):
    publish(server, "kept/a", 1, 2, 3)
    with events(front, "topic=kept/a&from=all") as source:
        first = take(source, 1)[0]
    with events(front, "topic=kept/a", first.id) as source:
        assert data_of(take(source, 2)) == [2, 3]


@pytest.mark.parametrize("server", [PATIENT], indirect=True, ids=["patient"])
def test_nginx_passes_polls_and_commands_on(server, front):
    key, batch = open_poll(front)
    status, _, body = curl("--data", '{"id":1,"type":"ping"}', url_of(front, f"/v1/commands?session={key}"))
    assert (status, json.loads(body)) == (202, {"accepted": 1})
    told = lines_of(curl(url_of(front, f"/v1/poll?session={key}&batch={batch}"))[2])
    assert told[0] == {"type": "pong", "id": 1}
    with Curl(url_of(front, f"/v1/poll?session={key}&batch={told[-1]['batch']}")) as reader:
        publish(server, "kept/a", 1)
        assert '"data":1' in reader.line('{"type":"publication"')


def test_nginx_passes_web_sockets_on(server, front):
    with connect(f"ws://127.0.0.1:{front.port}/v1/ws", proxy=None) as peer:
        peer.send(json.dumps({"id": 1, "type": "subscribe", "topic": "kept/a"}))
        assert json.loads(peer.recv(timeout=SECONDS))["type"] == "subscribed"
        for number in range(10):
            publish(server, "kept/a", number)
            assert json.loads(peer.recv(timeout=SECONDS))["data"] == number


def test_a_reader_behind_nginx_that_goes_away_ends_its_session(server, front):
    with Curl(url_of(front, "/v1/stream?topic=kept/a")) as reader:
        key = json.loads(reader.line(""))["key"]
    url = url_of(server, "/v1/commands?session=" + key)
    until(lambda: curl("--data", '{"type":"ping"}', url)[0] != 202, "the session outlives its reader")

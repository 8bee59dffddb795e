"""PUT, raw values and tables with a curl that we did not write, and the command line beside it."""

import json
import subprocess

import pytest
from server import Server

CONFIG = """
[[topics]]
selector = "fleeting/#"
retain = false
[limits]
payload_bytes_max = 100000
table_bytes_max = 50000
[access]
anonymous = "read"
[[access.tokens]]
token = "writer"
name = "w"
publish = ["#"]
subscribe = ["#"]
"""


@pytest.fixture
def server(tmp_path):
    server = Server(CONFIG, tmp_path).start()
    yield server
    server.kill()


def curl(server, path, *words, token="writer", **options):
    """The status, the fields and the body of what curl is answered."""
    rights = ["-H", f"Authorization: Bearer {token}"] if token else []
    url = f"http://127.0.0.1:{server.port}{path}"
    command = ["curl", "-sS", "-i", "--max-time", "60", *rights, *words, url]
    done = subprocess.run(command, capture_output=True, timeout=90, **options)
    assert done.returncode == 0, done.stderr
    head, body = done.stdout.split(b"\r\n\r\n", 1)
    while head.startswith(b"HTTP/1.1 100"):
        head, body = body.split(b"\r\n\r\n", 1)
    status, *lines = head.decode().split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    return int(status.split()[1]), fields, body


def test_what_curl_puts_is_what_curl_gets(server, tmp_path):
    picture = bytes(range(256)) * 300
    (tmp_path / "picture").write_bytes(picture)
    status, fields, body = curl(server, "/v1/topics/a/json", "-T", "-", "-H", "Content-Type: application/json", input=b'{"x": 1.10}\n')
    assert status == 200 and json.loads(body)["topic"] == "a/json", (status, body)
    said = json.loads(body)
    assert fields["etag"] == f'"{said["epoch"]}:{said["sequence"]}"'
    assert curl(server, "/v1/topics/a/text", "-X", "PUT", "-d", "grüße")[0] == 200
    # With a file curl says no type, and asks before it sends a large one.
    assert curl(server, "/v1/topics/a/picture", "-T", tmp_path / "picture")[0] == 200
    for topic, kind, payload in [
        ("json", "application/json", b'{"x": 1.10}'),
        ("text", "text/plain; charset=utf-8", "grüße".encode()),
        ("picture", "application/octet-stream", picture),
    ]:
        status, fields, body = curl(server, f"/v1/topics/a/{topic}?raw")
        assert (status, fields["content-type"], body) == (200, kind, payload), topic
        assert fields["x-content-type-options"] == "nosniff" and fields["content-security-policy"] == "sandbox"
        assert fields.get("content-disposition") == ("attachment" if topic == "picture" else None)
    (tmp_path / "large").write_bytes(b"x" * 100_001)
    status, _, body = curl(server, "/v1/topics/a/large", "-T", tmp_path / "large")
    assert (status, json.loads(body)["code"]) == (413, 4205)
    status, _, body = curl(server, "/v1/topics/a/text", "-X", "PUT", "-d", "x", token=None)
    assert (status, json.loads(body)["code"]) == (403, 4301)
    status, _, body = curl(server, "/v1/topics/a/text", "-X", "DELETE")
    assert (status, json.loads(body)["code"]) == (405, 4213)


def test_curl_changes_only_what_it_saw_and_asks_only_for_what_is_new(server, tmp_path):
    tags = tmp_path / "tag"
    status, first, _ = curl(server, "/v1/topics/doc", "-X", "PUT", "-d", "one", "-H", "If-None-Match: *")
    assert status == 200
    assert curl(server, "/v1/topics/doc", "-X", "PUT", "-d", "two", "-H", "If-None-Match: *")[0] == 412
    # curl keeps the tag by itself.
    assert curl(server, "/v1/topics/doc?raw", "--etag-save", tags)[0] == 200
    assert tags.read_text().strip() == first["etag"]
    assert curl(server, "/v1/topics/doc?raw", "--etag-compare", tags)[0] == 304
    change = ["-X", "PUT", "-d", "two", "-H", f"If-Match: {first['etag']}", "-H", "Idempotency-Key: change-1"]
    status, second, body = curl(server, "/v1/topics/doc", *change)
    assert (status, json.loads(body)["sequence"]) == (200, 2)
    assert curl(server, "/v1/topics/doc", *change)[2] == body, "the same request again is the same publication"
    status, _, body = curl(server, "/v1/topics/doc", *change[:-2])
    assert (status, json.loads(body)["code"]) == (412, 4235)
    status, _, body = curl(server, "/v1/topics/doc?raw", "--etag-compare", tags)
    assert (status, body) == (200, b"two") and second["etag"] != first["etag"]


def test_a_table_is_one_request_and_goes_on_in_pages(server):
    for number in range(30):
        put = ["-X", "PUT", "-H", "Content-Type: application/json", "-d", json.dumps({"n": number, "x": "x" * 3_000})]
        assert curl(server, f"/v1/topics/t/{number:02}", *put)[0] == 200
    assert curl(server, "/v1/topics/fleeting/t", "-X", "PUT", "-d", "x")[0] == 200
    names, after = [], ""
    while after is not None:
        _, _, body = curl(server, f"/v1/topics?selector=%23&values=true{after and '&after=' + after}")
        assert len(body) < 55_000
        page = json.loads(body)
        assert all(("data" in row) == row["topic"].startswith("t/") for row in page["topics"])
        names += [row["topic"] for row in page["topics"]]
        after = page.get("next")
    assert names == ["fleeting/t", *(f"t/{number:02}" for number in range(30))]
    done = server.run("topics", "t/+", "--values", "--limit", "40", "--token", "writer")
    lines = done.stdout.splitlines()
    assert len(lines) == 30 and lines[7].startswith('t/07 1 {"n":7,'), done


def test_get_says_at_once_that_there_is_no_value_and_waits_where_it_is_told_to(server):
    done = server.run("get", "none/yet")
    assert done.returncode == 1 and "nothing is kept there" in done.stderr and "4212" in done.stderr, done
    assert curl(server, "/v1/topics/now", "-X", "PUT", "-d", "here")[0] == 200
    for words in [["get", "now"], ["get", "now", "--wait-ms", "20000"]]:
        done = server.run(*words)
        assert (done.returncode, done.stdout) == (0, "here\n"), done
    done = server.run("get", "none/yet", "--wait-ms", "200")
    assert done.returncode == 1 and "none came in 200 ms" in done.stderr, done

"""`tidegate store`, and stores of programs before this one."""

import base64
import json
import pathlib
import shutil
import subprocess
import tarfile
import urllib.request

from server import PROGRAM, Server, until
from websockets.sync.client import connect


CONFIG = '[store]\npath = "{store}"\n[[topics]]\nselector = "d/#"\nack = "disk"\nhistory_count = 100\n'
FIXTURES = pathlib.Path(__file__).parent / "fixtures"


def store(*words):
    return subprocess.run([PROGRAM, "store", *words], capture_output=True, text=True, timeout=60)


def publish(server, **publication):
    body = json.dumps(publication).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v1/publish", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_a_store_of_format_1_opens_resumes_and_is_extended(tmp_path):
    """Made by the program before formats had numbers: 130 publications of d/a, 120 of d/b/c, killed by kill -9."""
    with tarfile.open(FIXTURES / "store-format-1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for _ in range(2):
        server = Server(CONFIG, tmp_path).start()
        try:
            page = server.get("/v1/history/d/a?after=30&limit=1000")
            assert page["epoch"] == "1a200da84d6-a9493424"
            assert page["publications"][0]["sequence"] == 31
            numbers = [one["data"]["n"] for one in page["publications"]]
            assert numbers == list(range(31, page["head"] + 1)), numbers
            rest = server.run("sub", "d/+", "--name", "worker", "--count", "1")
            assert rest.stdout.startswith("d/a "), rest
            assert server.get("/v1/topics/d/b/c")["sequence"] == 120
            assert "damaged" not in server.errors() and "copied" not in server.errors(), server.errors()
        finally:
            server.kill()
    server = Server(CONFIG, tmp_path).start()
    try:
        assert publish(server, topic="d/a", data={"n": 131})["sequence"] == 131
        assert publish(server, topic="d/new", data=1, key="k")["sequence"] == 1
    finally:
        server.kill()
    checked = store("check", tmp_path / "data")
    assert checked.returncode == 0 and "are whole" in checked.stdout, checked


# Idempotency keys of the fixture stay known for a hundred years.
RECORD_FORM_1 = CONFIG.replace("[[topics]]", "[limits]\nidempotency_window_ms = 3153600000000\n[[topics]]")
RECORD_FORM_1_EPOCH = "1a204ce5342-46cba6a1"
RECORD_FORM_1_LARGE = "0123456789abcdef" * 50_000


def test_records_of_form_1_are_resumed_and_extended(tmp_path):
    """Made at a788572, before records had headers, and killed by kill -9: d/json has 20 publications, of which the
    subscriber `worker` acknowledged 15; d/keyed has three, two of them with a key; d/text, d/bytes and d/large have one each."""
    with tarfile.open(FIXTURES / "store-record-form-1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    assert store("adopt", tmp_path / "data").returncode == 0
    server = Server(RECORD_FORM_1, tmp_path)
    for start in range(2):
        server.start()
        try:
            check_what_form_1_had(server)
            last = {
                name: publish(server, topic=f"d/{name}", data={"start": start})["sequence"]
                for name in ("json", "text", "bytes", "large", "keyed")
            }
            assert last == {"json": 21 + start, "text": 2 + start, "bytes": 2 + start, "large": 2 + start, "keyed": 4 + start}
            assert publish(server, topic="d/new", data=start, key="new")["sequence"] == 1
            assert "damaged" not in server.errors() and "copied" not in server.errors(), server.errors()
        finally:
            server.kill()
    checked = store("check", tmp_path / "data")
    assert checked.returncode == 0 and "are whole" in checked.stdout, checked


def check_what_form_1_had(server):
    payloads = {}
    for name, member in [("json", "data"), ("text", "text"), ("bytes", "base64"), ("large", "text"), ("keyed", "data")]:
        page = server.get(f"/v1/history/d/{name}?after=0&limit=1000")
        assert page["epoch"] == RECORD_FORM_1_EPOCH
        payloads[name] = [(one["sequence"], one.get(member)) for one in page["publications"]]
        assert all("headers" not in one for one in page["publications"]), page
    assert payloads["json"][:20] == [(number, {"n": number}) for number in range(1, 21)]
    assert payloads["text"][0] == (1, "grüße\n")
    assert payloads["bytes"][0] == (1, base64.b64encode(bytes(range(256))).decode())
    assert payloads["large"][0] == (1, RECORD_FORM_1_LARGE)
    assert payloads["keyed"][:3] == [(1, 1), (2, 2), (3, 3)]
    repeated = [publish(server, topic="d/keyed", data="again", key=key)["sequence"] for key in ("order-1", "order-2")]
    assert repeated == [1, 2], "the keys are known"
    with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as socket:
        position = {"epoch": RECORD_FORM_1_EPOCH, "sequence": 7}
        socket.send(json.dumps({"type": "subscribe", "topic": "d/json", "from": position}))
        [described] = hear(socket, "subscribed")["topics"]
        assert described["recovered"] is True, described
        heard = [hear(socket, "publication")["sequence"] for _ in range(8, 21)]
        assert heard == list(range(8, 21))
    with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as socket:
        socket.send(json.dumps({"type": "subscribe", "topic": "d/json", "name": "worker"}))
        assert hear(socket, "subscribed")["topics"][0]["start"] == 15
        assert hear(socket, "publication")["data"] == {"n": 16}


def test_a_damaged_store_names_the_command_that_goes_on_without_it(tmp_path):
    server = Server(CONFIG, tmp_path).start()
    try:
        for number in range(1, 11):
            publish(server, topic="d/a", text=f"payload {number} of many", key=f"k{number}")
    finally:
        server.kill()
    data = tmp_path / "data"
    (journal,) = data.glob("log/*.jnl")
    bytes_ = bytearray(journal.read_bytes())
    bytes_[bytes_.index(b"payload 4 of many")] ^= 1
    journal.write_bytes(bytes_)
    server.launch()
    assert server.wait() == 1, server.errors()
    assert f"tidegate store repair {data}" in server.errors() and str(journal) in server.errors(), server.errors()
    assert store("check", data).returncode == 1
    repaired = store("repair", data)
    assert repaired.returncode == 0 and str(journal) in repaired.stdout, repaired
    assert "9 records are whole" in repaired.stdout, repaired.stdout
    server = Server(CONFIG, tmp_path).start()
    try:
        page = server.get("/v1/history/d/a?last=100")
        assert [one["sequence"] for one in page["publications"]] == [1, 2, 3, 5, 6, 7, 8, 9, 10]
        assert publish(server, topic="d/a", text="again", key="k9")["sequence"] == 9
        until(lambda: "4 to 4 are gone" in server.errors(), "it does not say what is gone")
    finally:
        server.kill()


def test_a_copy_put_back_is_noticed_and_commands_say_what_is_meant(tmp_path):
    server = Server(CONFIG, tmp_path).start()
    try:
        epoch = publish(server, topic="d/a", data=1)["epoch"]
        refused = store("backup", tmp_path / "data", tmp_path / "copy")
        assert refused.returncode == 1 and "another process has it open" in refused.stderr, refused
    finally:
        server.kill()
    data, copy = tmp_path / "data", tmp_path / "copy"
    assert store("backup", data, copy).returncode == 0
    epochs = {epoch}

    def epoch_at_start():
        server = Server(CONFIG, tmp_path).start()
        try:
            return server.get("/v1/topics/d/a")["epoch"]
        finally:
            server.kill()

    assert epoch_at_start() == epoch, "kill -9 keeps it"
    # Behind the server's back.
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    epochs.add(epoch_at_start())
    assert len(epochs) == 2
    # On purpose.
    shutil.rmtree(data)
    assert store("restore", copy, data).returncode == 0
    epochs.add(epoch_at_start())
    assert len(epochs) == 3
    # Moved to another place.
    shutil.rmtree(data)
    shutil.copytree(copy, data)
    assert store("adopt", data).returncode == 0
    assert epoch_at_start() == epoch


def put_back(snapshot, data):
    """Writes what a snapshot has into the files that are there, as a disk that is put back has it: inodes and births stay."""
    there = {file.relative_to(data) for file in data.rglob("*") if file.is_file()}
    then = {file.relative_to(snapshot) for file in snapshot.rglob("*") if file.is_file()}
    for file in there - then:
        (data / file).unlink()
    for file in then:
        (data / file).parent.mkdir(parents=True, exist_ok=True)
        with open(data / file, "r+b" if file in there else "w+b") as target:
            target.write((snapshot / file).read_bytes())
            target.truncate()


def hear(socket, kind):
    while True:
        event = json.loads(socket.recv(timeout=60))
        if event["type"] == kind:
            return event


def test_a_snapshot_of_the_disk_put_back_is_noticed_when_the_first_client_that_was_further_comes(tmp_path):
    data, snapshot = tmp_path / "data", tmp_path / "snapshot"
    server = Server(CONFIG, tmp_path).start()
    try:
        for number in range(1, 4):
            epoch = publish(server, topic="d/a", data=f"before {number}")["epoch"]
    finally:
        server.kill()
    shutil.copytree(data, snapshot)
    server = Server(CONFIG, tmp_path).start()
    try:
        assert [publish(server, topic="d/a", data=f"lost {n}")["sequence"] for n in (4, 5, 6)] == [4, 5, 6]
        assert publish(server, topic="d/b", data=1)["epoch"] == epoch
    finally:
        server.kill()
    put_back(snapshot, data)
    server = Server(CONFIG, tmp_path).start()
    try:
        # Nothing on the disk shows it.
        assert publish(server, topic="d/a", data="again 4") == {
            "topic": "d/a", "epoch": epoch, "sequence": 4, "level": "disk"
        }
        with connect(f"ws://127.0.0.1:{server.port}/v1/ws") as reader, connect(f"ws://127.0.0.1:{server.port}/v1/ws") as further:
            reader.send(json.dumps({"type": "subscribe", "topic": "d/a", "from": "now"}))
            hear(reader, "subscribed")
            position = {"epoch": epoch, "sequence": 6}
            further.send(json.dumps({"type": "subscribe", "topic": "d/a", "from": position}))
            gap = hear(further, "gap")
            assert gap["reason"] == "epoch", gap
            told = hear(reader, "gap")
            assert (told["reason"], told["to"]) == ("epoch", 4) and told["epoch"] != epoch, told
        after = publish(server, topic="d/a", data="5 in another life")
        assert (after["sequence"], after["epoch"]) == (5, told["epoch"])
        assert "older copy that was put back" in server.errors(), server.errors()
    finally:
        server.kill()
    server = Server(CONFIG, tmp_path).start()
    try:
        assert server.get("/v1/topics/d/a")["epoch"] == told["epoch"]
    finally:
        server.kill()

"""TLS of the server's own, spoken by clients that we did not write, and listeners beside it."""

import json
import os
import shutil
import socket
import ssl
import subprocess

import httpx
import pytest
from server import PROGRAM, Server, free_port, until
from test_tls import make_certificates, openssl
from websockets.exceptions import ConnectionClosed, InvalidMessage
from websockets.sync.client import connect

SECONDS = 60
CONFIG = """
[access]
anonymous = "read"
[[access.tokens]]
certificate = "feeder.example"
name = "feeder"
publish = ["#"]
subscribe = ["#"]

[[listeners]]
address = "{address}"

[[listeners]]
address = "127.0.0.1:TLS"
surfaces = ["clients", "publish"]
certificates = [{certificate = "FOLDER/good.pem", key = "FOLDER/good.key"}, {certificate = "FOLDER/other.pem", key = "FOLDER/other.key"}]

[[listeners]]
address = "127.0.0.1:MUTUAL"
certificates = [{certificate = "FOLDER/good.pem", key = "FOLDER/good.key"}]
tls_min = "1.3"
client_certificates = "required"
client_ca = "FOLDER/ca.pem"
"""


class Node:
    """A server with a plain listener, one that speaks TLS, and one that asks clients for certificates."""

    def __init__(self, folder):
        self.folder, self.ca = folder, folder / "ca.pem"
        make_certificates(folder)
        self.issue("feeder", "DNS:feeder.example")
        self.tls, self.mutual = free_port(), free_port()
        config = CONFIG.replace("TLS", str(self.tls)).replace("MUTUAL", str(self.mutual))
        self.server = Server(config.replace("FOLDER", str(folder)), folder).start()

    def issue(self, name, names):
        """A certificate of the authority, in place of one of that name."""
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        openssl(
            self.folder, "req", *key, "-keyout", "new.key", "-out", "new.csr", "-subj", f"/CN={name}",
            "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=CA:FALSE",
        )  # fmt: skip
        openssl(
            self.folder, "ca", "-config", "ca.cnf", "-batch", "-notext", "-in", "new.csr", "-out", "new.pem",
            "-cert", "ca.pem", "-keyfile", "ca.key", "-days", "30",
        )  # fmt: skip
        for ending in ["key", "pem"]:
            os.replace(self.folder / f"new.{ending}", self.folder / f"{name}.{ending}")

    def context(self, certificate=None):
        context = ssl.create_default_context(cafile=self.ca)
        if certificate:
            context.load_cert_chain(self.folder / f"{certificate}.pem", self.folder / f"{certificate}.key")
        return context

    def connect(self, port, certificate=None):
        return connect(
            f"wss://localhost:{port}/v1/ws", ssl=self.context(certificate), subprotocols=["tidegate.v1.json"],
            open_timeout=SECONDS, close_timeout=SECONDS, sock=socket.create_connection(("127.0.0.1", port), SECONDS),
        )  # fmt: skip

    def shown(self, host="localhost"):
        """The certificate that is shown to who asks for a name, and the protocol that is agreed to."""
        context = self.context()
        context.check_hostname = False
        context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", self.tls), SECONDS) as plain:
            with context.wrap_socket(plain, server_hostname=host) as open_socket:
                return open_socket.getpeercert(binary_form=True), open_socket.selected_alpn_protocol()

    def metric(self, name):
        text = httpx.get(f"{self.server.http}/metrics", timeout=SECONDS).text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + "{"))


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = Node(tmp_path_factory.mktemp("listeners"))
    yield node
    node.server.kill()


def run(*words, **options):
    return subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, **options)


def hear(client, kind):
    while True:
        event = json.loads(client.recv(timeout=SECONDS))
        if event["type"] == kind:
            return event


def test_clients_of_every_kind_speak_tls(node):
    url = f"https://localhost:{node.tls}"
    for version in ["--tlsv1.2", "--tlsv1.3"]:
        limit = ["--tls-max", version[-3:]]
        done = run("curl", "-sS", version, *limit, "--cacert", node.ca, f"{url}/health", f"{url}/ready")
        assert done.stdout.count("status") == 2, done
    done = run("openssl", "s_client", "-connect", f"127.0.0.1:{node.tls}", "-CAfile", node.ca, "-brief", input="")
    assert done.returncode == 0 and "Verification: OK" in done.stderr, done
    script = f"fetch('{url}/health').then((it) => it.text()).then((it) => console.log(it))"
    done = run("node", "-e", script, env={**os.environ, "NODE_EXTRA_CA_CERTS": str(node.ca)})
    assert '"ok"' in done.stdout, done
    with node.connect(node.tls) as client:
        client.send('{"type":"hello","id":1}')
        hear(client, "welcome")
    done = run(PROGRAM, "topics", "--server", f"wss://localhost:{node.tls}", "--ca", node.ca)
    assert done.returncode == 0, done


def test_names_choose_the_certificate_and_only_http_1_1_is_spoken(node):
    good, protocol = node.shown("localhost")
    assert protocol == "http/1.1"
    other, _ = node.shown("push.example")
    assert other != good and node.shown("eu.push.example")[0] == other


def test_a_certificate_is_a_principal(node):
    with node.connect(node.mutual, "feeder") as feeder, node.connect(node.tls) as reader:
        reader.send('{"type":"subscribe","id":1,"topic":"prices"}')
        hear(reader, "subscribed")
        reader.send('{"type":"publish","id":2,"topic":"prices","data":0}')
        assert hear(reader, "refused")["code"] == 4301
        large = "x" * 300_000
        for data in [1, large, 2]:
            feeder.send(json.dumps({"type": "publish", "id": 3, "topic": "prices", "data": data}))
            hear(feeder, "published")
            assert hear(reader, "publication")["data"] == data
    url = f"https://localhost:{node.mutual}"
    shows = ["--cert", node.folder / "feeder.pem", "--key", node.folder / "feeder.key"]
    publish = ["-d", '{"topic":"prices","data":3}', f"{url}/v1/publish", "-w", "%{http_code}"]
    done = run("curl", "-sS", "--cacert", node.ca, *shows, *publish)
    assert done.stdout.endswith("200"), done
    done = run("curl", "-sS", "--cacert", node.ca, "-H", "tidegate-certificate: feeder.example",
               "-d", '{"topic":"prices","data":3}', f"https://localhost:{node.tls}/v1/publish", "-w", "%{http_code}")  # fmt: skip
    assert done.stdout.endswith("403"), "what a client says of itself in that field is not heard"
    failed = node.metric("tidegate_tls_handshakes_failed_total")
    # In TLS 1.3 a client may have sent its request before it hears that it needs a certificate.
    with pytest.raises((ssl.SSLError, OSError, ConnectionClosed, InvalidMessage)):
        with node.connect(node.mutual) as client:
            client.recv(timeout=SECONDS)
    until(lambda: node.metric("tidegate_tls_handshakes_failed_total") > failed, "it is counted")
    until(lambda: "4244" in node.server.errors() or "bad_client_certificate" in node.server.errors(), "it is logged")


def test_surfaces_are_those_of_the_listener(node):
    get = ["curl", "-sS", "-o", os.devnull, "-w", "%{http_code}", "--cacert", node.ca]
    assert run(*get, f"https://localhost:{node.tls}/metrics").stdout == "404"
    assert run(*get, f"{node.server.http}/metrics").stdout == "200"
    assert run(*get, f"http://localhost:{node.tls}/health").returncode != 0, "TLS is spoken there"


def test_renewed_certificates_are_taken_over_and_nobody_is_cut_off(node):
    before = node.shown()[0]
    with node.connect(node.tls) as client:
        node.issue("good", "DNS:localhost,IP:127.0.0.1")
        until(lambda: node.shown()[0] != before, "the new one is shown")
        client.send('{"type":"subscribe","id":1,"topic":"x"}')
        hear(client, "subscribed")
        renewed = node.shown()[0]
        shutil.copy(node.folder / "other.key", node.folder / "good.key")
        until(lambda: "is not that of the certificate" in node.server.errors(), "what does not hold is told")
        assert node.shown()[0] == renewed, "the old ones go on"


def test_what_does_not_hold_is_told_at_the_start(node):
    config = node.folder / "wrong.toml"
    for certificate, key, told in [
        ("old", "old", "expired"),
        ("other", "feeder", "is not that of the certificate"),
        ("missing", "missing", "cannot read certificates"),
    ]:
        pair = f'{{certificate = "{node.folder}/{certificate}.pem", key = "{node.folder}/{key}.key"}}'
        config.write_text(f'[[listeners]]\naddress = "127.0.0.1:{free_port()}"\ncertificates = [{pair}]\n')
        done = run(PROGRAM, "serve", "--config", config)
        assert done.returncode != 0 and told in done.stderr, done

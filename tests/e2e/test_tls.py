"""The command line through a real nginx that speaks TLS: every way of speaking, and what is said where it does not work."""

import json
import shutil
import signal
import subprocess
import time

import httpx
import pytest
from server import PROGRAM, Server, free_port, until

SECONDS = 60
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  map $http_upgrade $connection_upgrade {{ default upgrade; "" close; }}
{servers}
}}
"""
SERVER = """
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {folder}/{name}.pem;
    ssl_certificate_key {folder}/{name}.key;
    location / {{
      proxy_pass http://127.0.0.1:{to};
      proxy_http_version 1.1;
      proxy_set_header Host $http_host;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_buffering off;
    }}
  }}
"""
# What each certificate is for, and for how many days.
CERTIFICATES = {"good": ("DNS:localhost,IP:127.0.0.1", 30), "other": ("DNS:push.example,DNS:*.push.example", 30), "old": ("DNS:localhost", -1)}


def openssl(folder, *words):
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr


def make_certificates(folder):
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca=d\n[d]\nnew_certs_dir=.\ndatabase=index\nserial=serial\ndefault_md=sha256\npolicy=p\n"
        "copy_extensions=copy\nunique_subject=no\n[p]\ncommonName=supplied\n"
    )
    (folder / "index").write_text("")
    (folder / "serial").write_text("01\n")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=our own authority", "-days", "30")
    for name, (names, days) in CERTIFICATES.items():
        openssl(
            folder, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}",
            "-addext", f"subjectAltName={names}", "-addext", "basicConstraints=CA:FALSE",
        )  # fmt: skip
        day = 86_400
        ends = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() + days * day))
        begins = time.strftime("%Y%m%d%H%M%SZ", time.gmtime(time.time() - 10 * day))
        openssl(
            folder, "ca", "-config", "ca.cnf", "-batch", "-notext", "-in", f"{name}.csr", "-out", f"{name}.pem",
            "-cert", "ca.pem", "-keyfile", "ca.key", "-startdate", begins, "-enddate", ends,
        )  # fmt: skip


class Proxy:
    """A server, and an nginx before it with a port for each certificate."""

    def __init__(self, folder):
        self.folder, self.ca = folder, folder / "ca.pem"
        self.server = Server('[[topics]]\nselector = "#"\nhistory_count = 100\n', folder).start()
        make_certificates(folder)
        self.ports = {name: free_port() for name in CERTIFICATES}
        servers = "".join(
            SERVER.format(port=port, folder=folder, name=name, to=self.server.port) for name, port in self.ports.items()
        )
        (folder / "nginx.conf").write_text(CONFIG.format(folder=folder, servers=servers))
        self.nginx = subprocess.Popen([NGINX, "-c", folder / "nginx.conf", "-e", folder / "error.log"], stderr=subprocess.DEVNULL)
        until(self.answers, "nginx listens")

    def answers(self):
        try:
            return httpx.get(self.url("https"), verify=False, timeout=SECONDS).status_code
        except httpx.TransportError:
            return None

    def url(self, scheme, name="good", host="localhost"):
        return f"{scheme}://{host}:{self.ports[name]}"

    def run(self, *words, url=None, ca=True, **options):
        trust = ["--ca", self.ca] if ca else []
        command = [PROGRAM, *words, "--server", url or self.url("wss"), *trust]
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, **options)

    def start(self, *words):
        command = [PROGRAM, *words, "--server", self.url("wss"), "--ca", self.ca]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def stop(self):
        self.nginx.send_signal(signal.SIGTERM)
        self.nginx.wait(timeout=SECONDS)
        self.server.kill()


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    proxy = Proxy(tmp_path_factory.mktemp("tls"))
    yield proxy
    proxy.stop()


@pytest.mark.parametrize("scheme", ["wss", "https"])
def test_every_command_speaks_tls(proxy, scheme):
    url, topic = proxy.url(scheme), f"tls/{scheme}"
    large = json.dumps({"x": "y" * 200_000})
    for payload in ["1", large]:
        done = proxy.run("pub", topic, "-", url=url, input=payload + "\n")
        assert done.returncode == 0, done
    done = proxy.run("get", topic, url=url)
    assert (done.returncode, done.stdout) == (0, large + "\n"), done.stderr
    done = proxy.run("sub", topic, "--from", "all", "--count", "2", url=url)
    assert done.stdout.splitlines() == [f"{topic} 1 1", f"{topic} 2 {large}"], done.stderr
    done = proxy.run("history", topic, url=url)
    assert len(done.stdout.splitlines()) == 2 and large in done.stdout, done.stderr
    done = proxy.run("request", "$server/ping", '{"a":1}', url=url)
    assert (done.returncode, done.stdout.strip()) == (0, '{"a":1}'), done
    done = proxy.run("top", "--count", "1", "--json", url=url)
    assert done.returncode == 0 and json.loads(done.stdout)["now"]["tidegate_topics"] >= 1, done
    for words in [["topics"], ["status"], ["slow"], ["get", topic, "--wait-ms", "20000"]]:
        done = proxy.run(*words, url=url)
        assert done.returncode == 0, done


def test_a_subscriber_and_a_handler_go_on_over_tls(proxy):
    handler = proxy.start("handle", "sum/#", "--exec", "cat")
    reader = proxy.start("sub", "live/+", "--count", "200")
    try:
        served = lambda: proxy.run("request", "sum/x", '{"n":2}', "--timeout-ms", "2000").stdout.strip() == '{"n":2}'  # noqa: E731
        until(served, "the handler answers")
        subscribed = lambda: "tidegate_subscriptions{" in metrics(proxy) and readers(proxy) >= 1  # noqa: E731
        until(subscribed, "the reader is there")
        lines = "".join(f'{{"n":{number}}}\n' for number in range(200))
        assert proxy.run("pub", "live/a", "-", input=lines).returncode == 0
        out, _ = reader.communicate(timeout=SECONDS)
        assert out.splitlines() == [f'live/a {n + 1} {{"n":{n}}}' for n in range(200)]
    finally:
        for process in (handler, reader):
            process.kill()
            process.wait()


def metrics(proxy):
    return httpx.get(f"http://127.0.0.1:{proxy.server.port}/metrics", timeout=SECONDS).text


def readers(proxy):
    lines = [line for line in metrics(proxy).splitlines() if line.startswith("tidegate_subscriptions{")]
    return sum(float(line.split()[-1]) for line in lines)


# By a command that keeps a connection, and by one that asks over HTTP.
@pytest.mark.parametrize("words", [["pub", "a", "1"], ["topics"]])
def test_what_is_wrong_is_told_in_plain_words(proxy, words):
    plain = f"127.0.0.1:{proxy.server.port}"
    for url, ca, told in [
        (proxy.url("wss"), False, ["of no authority that is trusted", "--ca FILE"]),
        (proxy.url("wss", "other"), True, ["is for push.example, *.push.example, not for localhost"]),
        (proxy.url("wss", "old"), True, ["has expired", "clock"]),
        (f"wss://{plain}", True, ["speaks no TLS", "ws://"]),
        (proxy.url("ws"), True, ["speaks TLS there", "wss://"]),
        (proxy.url("wss", host="127.0.0.1"), True, []),
    ]:
        done = proxy.run(*words, url=url, ca=ca)
        assert done.returncode == (3 if told else 0), done
        assert all(text in done.stderr for text in told), done.stderr
    missing = proxy.folder / "none.pem"
    empty = proxy.folder / "empty.pem"
    empty.write_text("nothing\n")
    for file, told in [(missing, "cannot read"), (empty, "no certificate")]:
        command = [PROGRAM, *words, "--server", proxy.url("wss"), "--ca", file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode != 0 and told in done.stderr and str(file) in done.stderr, done

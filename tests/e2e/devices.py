"""A device spoken by hand, and the application's side of it (docs/devices.md)."""

import json
import pathlib
import socket

import httpx

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples/devices"
CONFIG = (EXAMPLES / "tidegate.toml").read_text()
DEVICE_KEY, APPLICATION_KEY, ADMIN_KEY = "a-key-for-devices", "a-key-for-the-backend", "a-key-for-the-operator"

# Long after anything should have happened, and shorter than any test may hang.
SECONDS = 60


def call(server, method, path, key=APPLICATION_KEY, **options):
    url = f"http://127.0.0.1:{server.port}{path}"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    # The environment's proxies are none of ours.
    with httpx.Client(trust_env=False, verify=False, timeout=SECONDS) as client:
        return client.request(method, url, headers=headers, **options)


def attach_head(name, query="", authorization=f"Bearer {DEVICE_KEY}"):
    return (
        f"POST /v1/devices/attach?application=meters&device={name}{query} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {authorization}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )


class Device:
    def __init__(self, server, name, query="", authorization=f"Bearer {DEVICE_KEY}"):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout=SECONDS)
        self.socket.sendall(attach_head(name, query, authorization).encode())
        self.response = self.socket.makefile("rb")
        self.status = int(self.response.readline().split()[1])
        while self.response.readline().strip():
            pass
        if self.status == 200:
            welcome = self.hear()
            assert welcome.startswith("W"), welcome
            self.welcome = json.loads(welcome[1:])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.response.close()
        self.socket.close()

    def hear(self):
        """The next message; empty at the end of the response."""
        size = int(self.response.readline(), 16)
        return self.response.read(size + 2)[:size].decode()

    def say(self, message):
        self.socket.sendall(b"%x\r\n%b\r\n" % (len(message.encode()), message.encode()))

    def answer(self, answer):
        asked = self.hear()
        assert asked.startswith("Q"), asked
        self.say(f"A{asked[1:5]}{answer(asked[5:])}")

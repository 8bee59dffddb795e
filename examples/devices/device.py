#!/usr/bin/env python3
"""A device in Python, with nothing but the standard library. docs/devices.md says what is spoken.

    TIDEGATE_KEY=a-key-for-devices ./device.py http://127.0.0.1:8470 meters py-1

With `--key-id devices` the key itself never travels: the device proves that it has it. With `--adapt 600` it tells no events
and looks for the longest silence, up to so many seconds, that the way to the server survives.
"""

import argparse
import hashlib
import hmac
import http.client
import json
import os
import random
import signal
import socket
import ssl
import threading
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

HEARTBEAT_S = 10
CONFIRM_S = 5
EVENT_S = 5
PAUSE_S_MIN, PAUSE_S_MAX = 0.5, 30
TAKEN_OVER = 4224


class Refused(Exception):
    """The server does not let the device attach."""


class TakenOver(Exception):
    """Another device attached under this name."""


def answer(payload):
    """What the device answers to a request; an exception declines it."""
    if payload == b"temperature":
        return json.dumps({"celsius": round(random.gauss(21, 0.5), 2)}).encode()
    if payload == b"fail":
        raise RuntimeError("the sensor is broken")
    return payload


def event():
    return json.dumps({"celsius": round(random.gauss(21, 0.5), 2), "time": time.time()}).encode()


class Rhythm:
    """How long the device is silent, and the longest silence after which it was still heard."""

    def __init__(self, seconds, longest):
        self.seconds = self.safe = seconds
        self.longest = longest

    def longer(self):
        return min(2 * self.seconds, self.longest)

    def got_through(self):
        if self.seconds > self.safe:
            print(f"a silence of {self.seconds} s got through", flush=True)
        self.safe, self.seconds = self.seconds, self.longer()

    def was_lost(self):
        print(f"a silence of {self.seconds} s was too long, staying with {self.safe} s", flush=True)
        self.seconds = self.longest = self.safe


class Attachment:
    """One connection: the messages of both bodies."""

    def __init__(self, server, path, authorization):
        self.sending = threading.Lock()
        self.socket = connect(server)
        head = f"POST {path} HTTP/1.1\r\nHost: {server.netloc}\r\n{authorization}Transfer-Encoding: chunked\r\n\r\n"
        self.socket.sendall(head.encode())
        self.response = self.socket.makefile("rb")

    def read_head(self):
        status = int(self.response.readline().split()[1])
        head = http.client.parse_headers(self.response)
        if status != 200:
            raise Refused(status, self.response.read(int(head.get("content-length", 0))).decode())

    def say(self, message):
        with self.sending:
            self.socket.sendall(b"%x\r\n%b\r\n" % (len(message), message))

    def hear(self):
        """The next message, a chunk; empty at the end."""
        line = self.response.readline()
        if not line:
            raise ConnectionError("the connection is gone")
        size = int(line.split(b";")[0], 16)
        chunk = self.response.read(size + 2)
        if len(chunk) < size + 2:
            raise ConnectionError("the connection is gone")
        return chunk[:size]

    def give_up(self):
        self.socket.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.socket.close()


def connect(server):
    port = server.port or (443 if server.scheme == "https" else 80)
    link = socket.create_connection((server.hostname, port), timeout=10)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # A server that takes no heartbeat for so long is gone, although no packet says so.
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000)
    if server.scheme == "https":
        link = ssl.create_default_context().wrap_socket(link, server_hostname=server.hostname)
    return link


def authorization(words):
    """The key, or the proof that we have it."""
    if words.key_id is None:
        return f"Authorization: Bearer {words.key}\r\n"
    link = connect(words.server)
    with link, link.makefile("rb") as response:
        head = f"GET /v1/devices/challenge HTTP/1.1\r\nHost: {words.server.netloc}\r\nConnection: close\r\n\r\n"
        link.sendall(head.encode())
        challenge = json.loads(response.read().partition(b"\r\n\r\n")[2])["challenge"]
    text = f"{challenge}\n{words.application}/{words.device}"
    mac = hmac.new(words.key.encode(), text.encode(), hashlib.sha256).hexdigest()
    return f'Authorization: Tidegate-HMAC key="{words.key_id}", challenge="{challenge}", mac="{mac}"\r\n'


def attach(words):
    query = {
        "application": words.application,
        "device": words.device,
        "heartbeat_ms": words.rhythm.seconds * 1000,
        "info": json.dumps({"program": "device.py"}),
    }
    path = "/v1/devices/attach?" + urllib.parse.urlencode(query)
    attachment = Attachment(words.server, path, authorization(words))
    try:
        attachment.read_head()
        attachment.socket.settimeout(None)
        return attachment
    except BaseException:
        attachment.close()
        raise


def repeat(attachment, is_over, seconds, message):
    """Says something again and again, until the attachment is over."""
    try:
        while not is_over.is_set():
            attachment.say(message())
            is_over.wait(seconds)
    except OSError:
        pass  # Whoever reads will notice.


def adapt(attachment, is_over, confirmed, rhythm):
    """Is silent for longer and longer, until the attachment is over or does not survive it."""
    try:
        while not is_over.wait(rhythm.seconds):
            confirmed.clear()
            attachment.say(b"H%d" % (rhythm.longer() * 1000))
            if not confirmed.wait(CONFIRM_S):
                if not is_over.is_set():
                    rhythm.was_lost()
                    attachment.give_up()
                return
            rhythm.got_through()
    except OSError:
        pass  # Whoever reads will notice.


def begin(words, attachment, is_over, confirmed):
    """Starts what the device says unasked."""
    rhythm = words.rhythm
    if words.adapt:
        tasks = [(adapt, (attachment, is_over, confirmed, rhythm))]
    else:
        beats = [(rhythm.seconds, lambda: b"H"), (EVENT_S, lambda: b"E" + event())]
        tasks = [(repeat, (attachment, is_over, seconds, what)) for seconds, what in beats]
    for task, arguments in tasks:
        threading.Thread(target=task, args=arguments, daemon=True).start()


def respond(attachment, number, payload):
    try:
        message = b"A" + number + answer(payload)
    except Exception as error:
        message = b"N" + number + str(error).encode()
    try:
        attachment.say(message)
    except OSError:
        pass


def serve(words, on_attached):
    """Attaches and serves until the connection is gone."""
    attachment, is_over, confirmed = attach(words), threading.Event(), threading.Event()
    is_attached = False
    words.attachment = attachment
    # Requests are answered side by side: a slow one holds nobody up.
    workers = ThreadPoolExecutor(max_workers=8)
    try:
        while message := attachment.hear():
            kind, rest = message[:1], message[1:]
            if kind == b"W":
                confirmed.set()
                if not is_attached:
                    is_attached = True
                    print("attached", rest.decode(), flush=True)
                    on_attached()
                    begin(words, attachment, is_over, confirmed)
            elif kind == b"Q":
                workers.submit(respond, attachment, rest[:4], rest[4:])
            elif kind == b"C":
                print("closed", rest.decode(), flush=True)
                if json.loads(rest)["code"] == TAKEN_OVER:
                    raise TakenOver
    finally:
        is_over.set()
        words.attachment = None
        attachment.close()
        workers.shutdown(wait=False)


def main():
    parser = argparse.ArgumentParser(description="A device that attaches to a Tidegate server.")
    parser.add_argument("server", type=urllib.parse.urlsplit, help="such as http://127.0.0.1:8470")
    parser.add_argument("application")
    parser.add_argument("device")
    parser.add_argument("--key-id", help="prove the key instead of sending it; its id in the configuration")
    parser.add_argument("--heartbeat", type=int, default=HEARTBEAT_S, help="seconds between signs of life")
    parser.add_argument("--adapt", type=int, metavar="SECONDS", help="find a longer heartbeat, up to this")
    words = parser.parse_args()
    words.rhythm = Rhythm(words.heartbeat, words.adapt or words.heartbeat)
    words.key, words.attachment = os.environ.get("TIDEGATE_KEY", ""), None
    pause = PAUSE_S_MIN

    def detach(*_):
        if words.attachment:
            # Not through `say`: the signal may have come while that holds its lock.
            words.attachment.socket.sendall(b"1\r\nD\r\n")
        os._exit(0)

    def start_over():
        nonlocal pause
        pause = PAUSE_S_MIN

    signal.signal(signal.SIGTERM, detach)
    signal.signal(signal.SIGINT, detach)
    while True:
        try:
            serve(words, start_over)
        except TakenOver:
            raise SystemExit(3) from None  # To attach again would take the name from the other.
        except Refused as refused:
            status, why = refused.args
            print("refused", status, why, flush=True)
            if 400 <= status < 404:
                pause = PAUSE_S_MAX  # Not soon mended.
        except (OSError, ValueError, IndexError, http.client.HTTPException) as error:
            print("gone:", error, flush=True)
        # A random part keeps many devices from coming back at one moment.
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(2 * pause, PAUSE_S_MAX)


if __name__ == "__main__":
    main()

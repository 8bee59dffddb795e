#!/usr/bin/env python3
"""A server that says what a scenario has written down: README.md, "Scripts". Only the standard library.

It plays orders of events that the real server has only now and then. `scripted.py SCENARIO.json --listen ADDRESS` listens
and says where, as the real one does. It speaks WebSocket, in both dialects (docs/protocol.md).
"""

import argparse
import asyncio
import base64
import hashlib
import json
import sys
from pathlib import Path

DIALECTS = ("tidegate.v1.json", "tidegate.v1")
LIMITS = {"payload_bytes_max": 1_048_576, "message_bytes_max": 1_572_864}
KINDS = {"json": 1, "text": 2, "bytes": 3}
# RFC 6455, 1.3 and 5.2.
ACCEPT_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


class Script:
    """What is left to be played, and what `$name` stands for."""

    def __init__(self, scenario):
        self.features = scenario.get("features")
        self._entries = list(scenario["script"])
        self._captured = {}

    def answer(self, command):
        """What is said to a command, and whether the connection breaks then."""
        captured = dict(self._captured)
        if self._entries and matches(self._entries[0]["on"], command, captured):
            self._captured = captured
            entry = self._entries.pop(0)
            return [replaced(event, captured) for event in entry.get("send", [])], entry.get("cut", False)
        return [self._usual(command)], False

    def _usual(self, command):
        kind, about = command["type"], {"id": command["id"]} if "id" in command else {}
        if kind == "hello":
            welcome = {"type": "welcome", **about, "session": "s-1", "node": "scripted", "version": "0", "limits": LIMITS}
            return welcome if self.features is None else {**welcome, "features": self.features}
        if kind == "ping":
            return {"type": "pong", **about}
        if kind == "unsubscribe":
            ended = {"subscription": command["subscription"]} if "subscription" in command else {}
            selectors = command.get("topics") or [command["topic"]] if not ended else []
            return {"type": "unsubscribed", **about, **ended, "selectors": selectors}
        expected = json.dumps(self._entries[0]["on"]) if self._entries else "nothing more"
        error = f"cannot play this: the script has {expected} here, and {json.dumps(command)} came"
        print(error, file=sys.stderr, flush=True)
        return {"type": "refused", **about, "code": 4200, "error": error}


def matches(expected, actual, captured):
    """README.md, "Matching"."""
    if isinstance(expected, str) and expected.startswith("!$"):
        return captured.get(expected[1:]) != actual
    if isinstance(expected, str) and expected.startswith("$"):
        return captured.setdefault(expected, actual) == actual
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            key in actual and matches(value, actual[key], captured) for key, value in expected.items()
        )
    if isinstance(expected, list):
        is_alike = isinstance(actual, list) and len(actual) == len(expected)
        return is_alike and all(matches(one, other, captured) for one, other in zip(expected, actual))
    return expected == actual


def replaced(value, captured):
    """A value with `$name` replaced by what it stands for."""
    if isinstance(value, dict):
        return {key: replaced(inner, captured) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, captured) for inner in value]
    return captured.get(value, value) if isinstance(value, str) else value


class Json:
    """One object in each text message."""

    opcode = TEXT

    def encode(self, event):
        return json.dumps(event).encode()

    def decode(self, message):
        return [json.loads(message)]


class Binary:
    """Records: docs/protocol.md#binary-dialect. Nothing is said in a short form."""

    opcode = BINARY

    def __init__(self):
        self._numbers = {}

    def encode(self, event):
        for topic in [*event.get("topics", []), event]:
            if "number" in topic:
                self._numbers[topic["topic"]] = topic["number"]
        if event["type"] not in ("publication", "fragment"):
            return b"\0" + counted(json.dumps(event).encode())
        number = event.get("number", self._numbers.get(event["topic"]))
        place = varint(number) + varint(event["sequence"])
        if event["type"] == "publication":
            kind, payload = payload_of(event)
            return bytes([0x20 + kind]) + place + counted(payload)
        piece = varint(event["total"]) + varint(event["offset"]) + counted(base64.b64decode(event["base64"]))
        return bytes([0x70 + KINDS[event["kind"]]]) + place + piece

    def decode(self, message):
        commands, at = [], 0
        while at < len(message):
            if message[at] != 0:
                raise ValueError(f"cannot read the record {message[at]:#x}: scripts know control records alone")
            length, at = read_varint(message, at + 1)
            commands.append(json.loads(message[at : at + length]))
            at += length
        return commands


def payload_of(event):
    if "text" in event:
        return KINDS["text"], event["text"].encode()
    if "base64" in event:
        return KINDS["bytes"], base64.b64decode(event["base64"])
    return KINDS["json"], json.dumps(event["data"]).encode()


def varint(number):
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def read_varint(message, at):
    number = shift = 0
    while True:
        number |= (message[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 0x80:
            return number, at


def counted(content):
    return varint(len(content)) + content


async def shake_hands(reader, writer):
    """Answers the handshake with the dialect that is asked for."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = [line.partition(":") for line in head.split("\r\n")[1:]]
    fields = {name.lower(): value.strip() for name, _, value in lines}
    offered = [each.strip() for each in fields.get("sec-websocket-protocol", "").split(",")]
    dialect = next((each for each in offered if each in DIALECTS), None)
    if dialect is None:
        raise ConnectionError("it does not speak WebSocket")
    accept = base64.b64encode(hashlib.sha1(fields["sec-websocket-key"].encode() + ACCEPT_KEY).digest()).decode()
    answer = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"]
    answer += [f"Sec-WebSocket-Accept: {accept}", f"Sec-WebSocket-Protocol: {dialect}", "", ""]
    writer.write("\r\n".join(answer).encode())
    return Binary() if dialect == DIALECTS[1] else Json()


async def read_frame(reader):
    """A frame of a client: its opcode and what it carries, unmasked. None of ours is split."""
    first, second = await reader.readexactly(2)
    length = second & 0x7F
    if length > 125:
        length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
    mask = await reader.readexactly(4)
    masked = await reader.readexactly(length)
    return first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(masked))


def frame(opcode, content):
    length = len(content)
    if length < 126:
        return bytes([0x80 | opcode, length]) + content
    if length < 1 << 16:
        return bytes([0x80 | opcode, 126]) + length.to_bytes(2, "big") + content
    return bytes([0x80 | opcode, 127]) + length.to_bytes(8, "big") + content


async def serve(script, reader, writer):
    dialect = await shake_hands(reader, writer)
    while True:
        opcode, content = await read_frame(reader)
        if opcode == CLOSE:
            writer.write(frame(CLOSE, content))
            return
        if opcode == PING:
            writer.write(frame(PONG, content))
        if opcode not in (TEXT, BINARY):
            continue
        for command in dialect.decode(content):
            events, is_cut = script.answer(command)
            for event in events:
                writer.write(frame(dialect.opcode, dialect.encode(event)))
            await writer.drain()
            if is_cut:
                return


async def main(path, address):
    script = Script(json.loads(path.read_text(encoding="utf-8")))

    async def handle(reader, writer):
        try:
            await serve(script, reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            # The client is gone.
            pass
        finally:
            writer.close()

    host, _, port = address.rpartition(":")
    server = await asyncio.start_server(handle, host, int(port))
    print(f"listening address={host}:{server.sockets[0].getsockname()[1]}", file=sys.stderr, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Plays the script of a scenario.")
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--listen", default="127.0.0.1:0")
    given = parser.parse_args()
    asyncio.run(main(given.scenario, given.listen))

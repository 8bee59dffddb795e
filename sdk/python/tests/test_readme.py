"""Every example of the README is run, as a reader would copy it, and prints what it says it prints."""

from __future__ import annotations

import asyncio
import re
import sys
import textwrap
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from server import Server

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLES: list[str] = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)

CONFIG = """
[store]
path = "{store}"
[[access.tokens]]
token = "fresh"
name = "reader"
subscribe = ["#"]
[[applications]]
id = "meters"
[[applications.keys]]
id = "devices"
key = "a-key-for-devices"
roles = ["device"]
[[topics]]
selector = "orders/#"
ack = "disk"
"""

AROUND = """
import asyncio
from tidegate import Client

async def main():
    async with Client("ws://localhost:8470") as client:
{}
        # Until everything that is expected was printed.
        await asyncio.to_thread(input)

asyncio.run(main())
"""


def whole(example: str) -> str:
    """An example with what the ones before it have said already: a client."""
    return example if "asyncio.run" in example else AROUND.format(textwrap.indent(example, " " * 8))


def test_they_are_there() -> None:
    assert len(EXAMPLES) >= 9


# One after the other: some of them speak of the same topics.
@pytest.mark.parametrize("example", EXAMPLES, ids=[example.strip().splitlines()[-1].strip()[:40] for example in EXAMPLES])
async def test_example(server: Server, example: str) -> None:
    program = re.sub("(ws|http)://localhost:8470", rf"\1://127.0.0.1:{server.port}", whole(example))
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "-W", "error", "-c", program, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert child.stdout is not None
    wanted = re.findall(r"# prints: (.*)$", example, re.MULTILINE)
    printed: list[str] = []
    while len(printed) < len(wanted) and (line := (await child.stdout.readline()).decode()):
        printed += [line.strip()] if line.strip() in wanted else []
    _, errors = await child.communicate(b"\n")
    assert (printed, child.returncode, errors.decode()) == (wanted, 0, "")

"""What the README says to type, typed."""

import os
import pathlib
import re
import subprocess

import pytest
from server import PROGRAM, Server, until

README = (pathlib.Path(__file__).parents[2] / "README.md").read_text()
TOUR = README.partition("## A tour in 60 seconds")[2].partition("\n## ")[0]
TYPED = re.search(r"\n\n((?:    .*\n)+)", TOUR)[1]


@pytest.fixture
def demo():
    """The server that `make run` starts; its port."""
    with Server(None, words=["demo"]) as server:
        until(lambda: server.status("/v1/topics/markets/ftse/AAL") == 200, "the market does not open")
        yield server.port


@pytest.mark.long
def test_the_tour_can_be_typed(demo):
    folder = str(pathlib.Path(PROGRAM).parent)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "TIDEGATE_SERVER": f"ws://127.0.0.1:{demo}"}
    lines = [line.strip() for line in TYPED.splitlines() if not line.strip().startswith(("#", "export "))]
    assert len(lines) >= 6
    for line in lines:
        # One screen goes on until Ctrl-C.
        command = "timeout --preserve-status --signal=INT 5 " + line if line.endswith(" top") else line
        command = command.replace("localhost:8470", f"127.0.0.1:{demo}").replace("curl ", "curl --fail --silent --show-error ")
        done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=90)
        assert done.returncode in ((0, 130) if line.endswith(" top") else (0,)), f"{line}: {done.stderr}"
        assert done.stdout, line


def test_every_command_that_is_named_is_there():
    code = "\n".join(re.findall(r"`[^`\n]+`|^    .*$", README, re.MULTILINE))
    commands = set(re.findall(r"\btidegate ([a-z]+)\b", code))
    assert {"sub", "pub", "top", "serve", "bench"} <= commands
    for verb in sorted(commands):
        done = subprocess.run([PROGRAM, verb, "--help"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"tidegate {verb}: {done.stderr}"

#!/usr/bin/env python3
"""Records docs/terminal.svg, the picture of the README: runs each command against a real server and draws what it said.

    docs/terminal.py target/release/tidegate

The commands appear one after the other, as they were typed; where nothing moves (print, reduced motion) all are there.
"""

import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from html import escape

ADDRESS = "127.0.0.1:8470"
COLUMNS = 92
CELL, LINE, MARGIN = 8.4, 20, 16
# What is typed, and how many lines of its answer are worth the room.
SCENE = [
    ("# Live: any topic or pattern. `tidegate demo` feeds a market.", 0),
    ("tidegate sub 'markets/ftse/+' --count 3", 3),
    ("# Less: one batch a second, only what moved, only the newest of each.", 0),
    ("tidegate sub 'markets/#' --conflation always --interval-ms 1000 --filter 'data.change_percent > 0.4' --count 3", 3),
    ("# Nothing is lost: this worker was away while orders came, and goes on where it stopped.", 0),
    ("tidegate pub orders/1 '{\"item\":\"tea\"}'", 0),
    ("tidegate sub 'orders/#' --name packer --count 1", 1),
    ("tidegate pub orders/1 '{\"item\":\"milk\"}'", 0),
    ("tidegate sub 'orders/#' --name packer --count 1", 1),
]


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "tidegate.toml")
        config.write_text(f'[store]\npath = "{folder}/data"\n[[topics]]\nselector = "orders/#"\nack = "disk"\n')
        server = subprocess.Popen([program, "demo", "--listen", ADDRESS, "--config", config],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait()
            lines = [line for scene in enumerate(SCENE) for line in play(program, *scene)]
        finally:
            server.terminate()
            server.wait()
    pathlib.Path(__file__).with_suffix(".svg").write_text(draw(lines))


def wait():
    for _ in range(200):
        try:
            urllib.request.urlopen(f"http://{ADDRESS}/ready", timeout=1)
            return time.sleep(2)  # for the market to have moved
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"there is no server at {ADDRESS}")


def play(program, step, scene):
    """The lines of one command, each with its class and the step in which it appears."""
    typed, count = scene
    if typed.startswith("#"):
        return [("note", typed, step)]
    done = subprocess.run(["bash", "-c", f"PATH={program.parent}:$PATH {typed}"], capture_output=True, text=True, timeout=60)
    said = (done.stdout + done.stderr).splitlines()
    assert done.returncode == 0 and len(said) >= count, (typed, said)
    return [("typed", line, step) for line in wrapped("$ " + typed)] + [("said", short(line), step) for line in said[:count]]


def short(line):
    return line if len(line) <= COLUMNS else line[: COLUMNS - 1] + "…"


def wrapped(line):
    """A command on as many lines as it takes, as a shell reads it."""
    lines = []
    while len(line) > COLUMNS:
        at = line.rindex(" --", 0, COLUMNS - 2)
        lines.append(line[:at] + " \\")
        line = "    " + line[at + 1 :]
    return [*lines, line]


def draw(lines):
    width, height = int(COLUMNS * CELL + 2 * MARGIN), len(lines) * LINE + 2 * MARGIN
    rows = "\n".join(
        f'<text class="{kind} s{step}" x="{MARGIN}" y="{MARGIN + 14 + row * LINE}">{escape(text)}</text>'
        for row, (kind, text, step) in enumerate(lines)
    )
    delays = "\n".join(f".s{step} {{ animation: hidden {step * 1.2:.1f}s steps(1) }}" for step in range(1, len(SCENE)))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">
<title>A terminal: values of a live market, less of it, and a worker that goes on where it stopped</title>
<style>
text {{ font: 14px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre }}
.note {{ fill: #8b949e }} .typed {{ fill: #79c0ff }} .said {{ fill: #e6edf3 }}
@keyframes hidden {{ from, to {{ opacity: 0 }} }}
@media (prefers-reduced-motion: no-preference) {{
{delays}
}}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
{rows}
</svg>
"""


main()

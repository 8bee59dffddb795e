"""Every shared scenario, over each transport, against the real server."""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance import known_verbs, run
from tidegate import TransportName

SCENARIOS = sorted(Path(__file__).resolve().parents[2].glob("conformance/scenarios/*.json"))


def load(path: Path) -> dict[str, Any]:
    scenario: dict[str, Any] = json.loads(path.read_text())
    return scenario


def test_there_is_a_verb_for_every_step_and_a_step_for_every_verb() -> None:
    assert len(SCENARIOS) >= 47
    assert {step["do"] for path in SCENARIOS for step in load(path)["steps"]} == known_verbs()


# A script is played over WebSocket only.
REAL = [path for path in SCENARIOS if "script" not in load(path)]
PLAYED = [path for path in SCENARIOS if "script" in load(path)]


@pytest.mark.parametrize("transport", ["websocket", "sse", "poll"])
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
async def test_scenario(path: Path, transport: TransportName) -> None:
    await run(load(path), transport)


@pytest.mark.parametrize("path", PLAYED, ids=lambda path: path.stem)
async def test_script(path: Path) -> None:
    await run(load(path), "websocket")


async def test_a_scenario_that_does_not_hold_fails_with_its_step() -> None:
    wrong = [
        {"do": "start_server"},
        {"do": "connect", "client": "c"},
        {"do": "subscribe", "client": "c", "as": "s", "selectors": ["a/b"]},
        {"do": "publish", "client": "c", "topic": "a/b", "data": 1, "answer": {"sequence": 1}},
        {"do": "expect", "subscription": "s", "events": [{"event": "update", "topic": "a/b", "data": True}]},
    ]
    with pytest.raises(AssertionError, match="step 5.*'data': True.*got .*'sequence': 1"):
        await run({"steps": wrong}, "websocket")

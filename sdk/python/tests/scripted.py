"""The server of the conformance kit that plays the script of a scenario."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from server import Server

SCRIPTED = Path(__file__).resolve().parents[2] / "conformance" / "scripted.py"


class ScriptedServer(Server):
    """Started and stopped as the real one is."""

    def __init__(self, scenario: dict[str, Any]) -> None:
        super().__init__(json.dumps(scenario))

    def command(self) -> list[str]:
        return [sys.executable, str(SCRIPTED), str(self.file), "--listen", self.address]

    def configure(self, config: str) -> None:
        self.file.write_text(config)

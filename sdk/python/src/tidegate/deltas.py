"""Publications told as differences from earlier ones of their topic. docs/protocol.md, section 5a. Pure."""

from __future__ import annotations

import json
import zlib
from typing import Any

from .canonical import canonical
from .errors import LocalCode, TidegateError
from .protocol import Event


class BadDelta(Exception):
    """A delta that does not make what it should: the topic has to be asked for whole."""


def check_available(delta: str) -> None:
    """Raises a `TidegateError` (4905) if deltas of this kind cannot be applied here."""
    if delta != "json-patch":
        text = f'cannot read deltas of the kind `{delta}`: this SDK does not know them; use "json-patch" or "none"'
        raise TidegateError(LocalCode.MISUSED, text)
    try:
        import jsonpatch  # noqa: F401
    except ImportError:
        text = "cannot read deltas: the package `jsonpatch` is not installed; run `pip install 'tidegate[jsonpatch]'`"
        raise TidegateError(LocalCode.MISUSED, text) from None


class Deltas:
    """The last JSON payload that came of each topic, from which the next may be made."""

    def __init__(self) -> None:
        # As text, so that nobody who was given the value can change what the next is made from.
        self._bases: dict[str, tuple[int, str]] = {}

    def clear(self) -> None:
        """Forgets everything, because the connection is gone: deltas are made from what it carried."""
        self._bases.clear()

    def handle_publication(self, wire: Event) -> None:
        """Keeps what came whole."""
        if "data" in wire:
            self._bases[wire["topic"]] = wire["sequence"], json.dumps(wire["data"])
        else:
            self._bases.pop(wire["topic"], None)

    def handle_delta(self, wire: Event) -> Event:
        """Makes the publication of a delta. Raises `BadDelta` if its base is not here, or its check differs."""
        sequence, text = self._bases.get(wire["topic"], (None, ""))
        if sequence != wire["base"] or "patch" not in wire:
            raise BadDelta("what it is made from is not here")
        data = _patched(json.loads(text), wire["patch"])
        if zlib.crc32(canonical(data)) != wire["crc"]:
            raise BadDelta("what it makes has another check than the publication")
        publication = {
            "type": "publication",
            "topic": wire["topic"],
            "sequence": wire["sequence"],
            "data": data,
        }
        self.handle_publication(publication)
        return publication


def _patched(base: Any, patch: Any) -> Any:
    import jsonpatch

    try:
        return jsonpatch.apply_patch(base, patch, in_place=True)
    except Exception as error:  # Whatever it trips over, the patch is of another base.
        raise BadDelta(str(error)) from error

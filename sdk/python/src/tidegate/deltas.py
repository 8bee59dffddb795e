"""Publications told as differences from earlier ones of their topic. docs/protocol.md#deltas. Pure."""

from __future__ import annotations

import base64
import json
import zlib
from importlib.util import find_spec
from typing import Any

from .canonical import canonical
from .errors import LocalCode, TidegateError
from .protocol import Event, PayloadKind

PACKAGES = {"json-patch": "jsonpatch", "vcdiff": "vcdiff_decoder"}
"""What applies deltas of each kind. Both are extras, and named as the kind without its dash."""


class BadDelta(Exception):
    """A delta that does not make what it should: the topic has to be asked for whole."""


def check_available(delta: str) -> None:
    """Raises a `TidegateError` (4905) if deltas of this kind cannot be applied here."""
    if delta not in PACKAGES:
        text = f"cannot read deltas of the kind `{delta}`: this SDK does not know them; use one of {list(PACKAGES)}"
        raise TidegateError(LocalCode.MISUSED, text)
    package = PACKAGES[delta]
    if not _is_installed(package):
        extra = f"pip install 'tidegate[{delta.replace('-', '')}]'"
        text = f"cannot read deltas: the package `{package}` is not installed; run `{extra}`"
        raise TidegateError(LocalCode.MISUSED, text)


class Deltas:
    """The last payload that came of each reading, from which the next may be made."""

    def __init__(self) -> None:
        # As bytes, so that nobody who was given the value can change what the next is made from.
        self._bases: dict[int | str, tuple[int, PayloadKind, bytes]] = {}

    def clear(self) -> None:
        """Forgets everything, because the connection is gone: deltas are made from what it carried."""
        self._bases.clear()

    def forget(self, key: int | str) -> None:
        """Forgets a reading's."""
        self._bases.pop(key, None)

    def keep(self, key: int | str, wire: Event) -> None:
        """Keeps what came whole."""
        self._bases[key] = wire["sequence"], *_source(wire)

    def apply(self, key: int | str, wire: Event) -> tuple[bytes, Any]:
        """The payload that a delta makes, and its value if that is known. Keeps it.

        Raises `BadDelta` if its base is not here, or its check differs.
        """
        kind = wire["kind"]
        sequence, base_kind, base = self._bases.get(key, (None, kind, b""))
        if sequence != wire["base"] or base_kind != kind:
            raise BadDelta("what it is made from is not here")
        data = None
        if "patch" in wire:
            data = _patched(json.loads(base), wire["patch"])
            payload = canonical(data)
        else:
            payload = _decoded(base, wire["vcdiff"])
        if zlib.crc32(payload) != wire["crc"]:
            raise BadDelta("what it makes has another check than the publication")
        self._bases[key] = wire["sequence"], kind, payload
        return payload, data


def _source(wire: Event) -> tuple[PayloadKind, bytes]:
    """A payload's kind and its bytes as they were published, as far as they are known."""
    if "text" in wire:
        return "text", wire["text"].encode()
    if "bytes" in wire:
        return "bytes", wire["bytes"]
    if "base64" in wire:
        return "bytes", base64.b64decode(wire["base64"])
    return "json", (wire.get("source") or json.dumps(wire["data"])).encode("utf-8", "surrogatepass")


def _patched(base: Any, patch: Any) -> Any:
    import jsonpatch

    try:
        return jsonpatch.apply_patch(base, patch, in_place=True)
    except Exception as error:  # Whatever it trips over, the patch is of another base.
        raise BadDelta(str(error)) from error


def _decoded(base: bytes, delta: str) -> bytes:
    import vcdiff_decoder

    try:
        return bytes(vcdiff_decoder.decode(base, base64.b64decode(delta)))
    except Exception as error:  # As above.
        raise BadDelta(str(error)) from error


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ValueError:  # Somebody put nothing in its place.
        return False

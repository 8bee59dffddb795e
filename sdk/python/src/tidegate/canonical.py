"""The canonical form of JSON (RFC 8785), over which the check of a JSON patch's result is made. Pure."""

from __future__ import annotations

import json
from typing import Any


def canonical(value: Any) -> bytes:
    """The canonical form of a value that came from JSON. Numbers are written as ECMAScript writes doubles."""
    return _text(value).encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        # Sorted by UTF-16 code units, which is not the order of code points.
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_string(key)}:{_text(value[key])}" for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, str):
        return _string(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _number(float(value))


def _string(value: str) -> str:
    # Python escapes exactly what RFC 8785 does, and in the same way.
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """ECMA-262, Number::toString. Python finds the same shortest digits, but puts the point elsewhere."""
    if value == 0:
        return "0"
    if value < 0:
        return "-" + _number(-value)
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # Where the point is, counted from the first digit that is not 0.
    point = int(exponent or 0) + len(whole) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        padded = digits.ljust(point, "0")
        return padded[:point] + (f".{padded[point:]}" if len(padded) > point else "")
    if -6 < point <= 0:
        return "0." + "0" * -point + digits
    shown = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
    return f"{shown}e{point - 1:+d}"

"""JSON text to values that are safe to keep, and back to bytes that any server can read.

Safe: finite numbers, no lone surrogates, bounded depth. Does not know MCP.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

MAX_DEPTH: Final = 100
"""Levels of nesting. Deeper values would exhaust the stack of whoever walks them later."""


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


_DECODER: Final = json.JSONDecoder(parse_constant=lambda _: None, parse_float=_finite)
_ENCODER: Final = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":"))
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Only such text can decode to a lone surrogate; the rest needs no second look."""
_LONE: Final = re.compile("[\ud800-\udfff]")


class Unreadable(ValueError):
    """Text that is not JSON, or JSON that cannot be kept."""


class Unsendable(ValueError):
    """A value that no JSON-RPC message can carry; the message teaches what to send instead."""


def encode(message: Any) -> bytes:
    """Compact UTF-8 JSON without a line break.

    Raises:
        Unsendable: Holds NaN or infinity, a lone surrogate, something that is no JSON value, too long an
            integer, or nests deeper than `MAX_DEPTH`.
    """
    try:
        text = _ENCODER.encode(message)
        if text.count("[") + text.count("{") > MAX_DEPTH:
            _measure(message, MAX_DEPTH + 10)  # the envelope of the arguments has a few levels of its own
        return text.encode()
    except UnicodeEncodeError:
        raise Unsendable(
            "an argument holds half of a surrogate pair (such as '\\ud800'), which is not a character; "
            "remove it or send the whole character"
        ) from None
    except (RecursionError, Unreadable):
        raise Unsendable(
            f"the arguments nest too deeply or contain themselves; the limit is {MAX_DEPTH} levels"
        ) from None
    except TypeError as exc:
        raise Unsendable(
            f"an argument is no JSON value ({exc}); use text, numbers, booleans, null, lists, objects"
        ) from None
    except ValueError as exc:
        what = (
            "a list or object that contains itself"
            if "Circular" in str(exc)
            else ("an integer that is too long" if "digits" in str(exc) else "NaN or an infinite number")
        )
        raise Unsendable(
            f"an argument holds {what}, which JSON cannot carry; send null or text instead"
        ) from None


def parse(text: str, depth: int = MAX_DEPTH) -> Any:
    """Read one JSON value. NaN and infinite numbers become None, lone surrogates U+FFFD.

    Raises:
        Unreadable: Not JSON, or nested deeper than `depth`, or with an integer of thousands of digits.
    """
    try:
        value = _DECODER.decode(text)
        if text.count("[") + text.count("{") > depth:
            _measure(value, depth)
        if _SURROGATE.search(text):
            value = clean(value, depth)
    except json.JSONDecodeError as exc:
        raise Unreadable(f"not JSON: {exc}") from None
    except RecursionError:
        raise Unreadable(f"nested deeper than {depth} levels") from None
    except ValueError as exc:
        raise (
            exc if isinstance(exc, Unreadable) else Unreadable("holds an integer of thousands of digits")
        ) from None
    return value


def _measure(value: Any, depth: int) -> None:
    """Raise `Unreadable` where a value nests deeper than `depth`: level by level, without recursion."""
    level = [value] if isinstance(value, (dict, list, tuple)) else []
    for _ in range(depth):
        inner = [item.values() if isinstance(item, dict) else item for item in level]
        level = [child for items in inner for child in items if isinstance(child, (dict, list, tuple))]
        if not level:
            return
    raise Unreadable(f"nested deeper than {depth} levels")


def clean(value: Any, depth: int = MAX_DEPTH) -> Any:
    """The same JSON value with finite numbers and whole characters only.

    Raises:
        Unreadable: Nested deeper than `depth`.
    """
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple, Mapping)) and depth <= 0:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, (list, tuple)):
        return [clean(item, depth - 1) for item in value]
    if isinstance(value, Mapping):
        return {whole(str(key)): clean(item, depth - 1) for key, item in value.items()}
    return value


def whole(text: str) -> str:
    """`text` with every lone surrogate replaced by U+FFFD."""
    if text.isascii():
        return text
    return _LONE.sub("\ufffd", text)

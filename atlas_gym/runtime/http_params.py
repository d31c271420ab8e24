"""Arguments that are repeated in headers, where a tool's schema marks them with `x-mcp-header`.

Owns finding the marks and writing the values, as the protocol without sessions has them. Does not know
connections.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from atlas_gym.runtime.http_stream import Events

Marks: TypeAlias = "dict[tuple[str, ...], str]"
"""Path of names to an argument -> the header's name after `Mcp-Param-`."""

MISMATCH: Final = -32020
"""How a server says that headers and message differ; it has done nothing then."""

_MARK: Final = "x-mcp-header"
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_SAFE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_ENCODED: Final = re.compile(r"=\?base64\?.*\?=")
_DEPTH: Final = 20


def marks(schema: Any) -> Marks:
    """The marked arguments of a tool's input schema."""
    found: Marks = {}
    level: list[tuple[tuple[str, ...], Any]] = [((), schema)]
    for _ in range(_DEPTH):
        below: list[tuple[tuple[str, ...], Any]] = []
        for path, part in level:
            if not isinstance(part, dict):
                continue
            mark = part.get(_MARK)
            if path and isinstance(mark, str) and _TOKEN.fullmatch(mark):
                found[path] = mark
            inner = part.get("properties")
            below += [((*path, str(k)), v) for k, v in inner.items()] if isinstance(inner, dict) else []
        level = below
    return found


def headers(found: Marks, arguments: Mapping[str, Any]) -> dict[str, str]:
    """A header for each marked argument that is given and can be written."""
    made: dict[str, str] = {}
    for path, mark in found.items():
        value: Any = arguments
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if isinstance(value, bool):
            value = "true" if value else "false"
        with contextlib.suppress(ValueError):  # an integer of thousands of digits
            if isinstance(value, str | int | float):
                made[f"mcp-param-{mark.lower()}"] = header_value(str(value))
    return made


def header_value(text: str) -> str:
    """Text as a header can carry it, in the protocol's own wrapping where need be."""
    if text == "" or (_SAFE.fullmatch(text) and not _ENCODED.fullmatch(text)):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def results(body: bytes, *, stream: bool) -> Iterable[dict[str, Any]]:
    """The results in the body of an answer; what cannot be read is left out."""
    parts = [body]
    if stream:
        events = Events()
        parts = [event.data for event in (*events.feed(body), *events.end())]
    for part in parts:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(part)
            if isinstance(value, dict) and isinstance(value.get("result"), dict):
                yield value["result"]

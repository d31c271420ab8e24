"""A raw `tools/call` result as a Python value and as text.

Owns the order of trust: structured content, text that is JSON, text that is a Python container, text.
Images, audio and binary resources become a short description with a handle. Does not know sessions.
"""

from __future__ import annotations

import ast
import binascii
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from atlas_gym.wire.codec import Unreadable, clean, encode, parse, whole

_LITERAL_CHARS: Final = 1_000_000
"""Longer text is never tried as a Python literal: the parser's memory is some hundred times the text."""
_LEAVES: Final = 50
"""Words and numbers of a structured result that are looked for in its text."""
_LOOKED_AT: Final = 100_000
"""Characters of the text in which they are looked for."""
_QUOTED: Final = re.compile(
    r"'(?:[^'\\\n]|\\(?:[\\'\"abfnrtv0]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}))*'"
    r'|"(?:[^"\\\n]|\\(?:[\\\'"abfnrtv0]|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}))*"'
)
_BARE: Final = re.compile(r"(?:[\[\](){},:\s+-]|\d++(?:\.\d*+)?(?:e[+-]?\d++)?(?![\w.])|True|False|None)*+")
"""What `repr` writes outside of strings. Only that reaches Python's parser, which warns about the rest."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes that a tool returned: an image, audio, a binary resource."""

    handle: str
    """`blob:` and the first hex digits of the SHA-256 of the data: equal bytes, equal handle."""
    mime: str
    data: str
    """Base64, as the server sent it."""
    size: int
    """Bytes after decoding (of the text, if it is no base64)."""

    def describe(self, kind: str) -> str:
        """One line for the agent."""
        return f"[{kind} {self.mime}, {self.size} bytes, {self.handle}]"


def to_value(result: Mapping[str, Any]) -> tuple[Any, str]:
    """What a tool returned, for programs and for readers.

    Args:
        result: The raw result of `tools/call`.

    Returns:
        The value (JSON types, finite, safe to keep) and the text. One block of content is its own value,
        several are a list of theirs, and none is [] (which is how many servers return an empty list).
    """
    value, text, _ = unpack(result)
    return value, text


def unpack(result: Mapping[str, Any]) -> tuple[Any, str, tuple[Blob, ...]]:
    """`to_value`, and the binary parts that the text and the value name by handle."""
    content = result.get("content")
    blocks = [_block(b) for b in content] if isinstance(content, list) else []
    text = "\n".join(block.text for block in blocks)
    blobs = tuple(block.blob for block in blocks if block.blob)
    structured = result.get("structuredContent")
    if structured is not None:
        value = _unwrap(structured, blocks)
        if not _tells(text, value, blocks):  # an agent that reads only the text must not miss the result
            text = "\n".join(filter(None, (text, _compact(value))))
        return value, text, blobs
    values = [block.read() for block in blocks]
    return (values[0] if len(values) == 1 else values), text, blobs


def parse_text(text: str) -> Any:
    """JSON, else a Python list, tuple, dict, True, False or None, else the text itself.

    Numbers count only as JSON writes them: "007" and "1_000" stay text, and so do "NaN" and "1e999".
    """
    stripped = text.strip()
    if not stripped:
        return text
    if stripped[0] in '{["' or stripped[0].isdecimal() or stripped[0] == "-":
        try:
            value = parse(stripped)
        except Unreadable:
            pass
        else:
            return text if value is None else value
    constants = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
    if stripped in constants:
        return constants[stripped]
    if stripped[0] in "[({" and stripped[-1] in "])}" and len(stripped) <= _LITERAL_CHARS:
        return _literal(stripped, text)
    return text


def _literal(stripped: str, text: str) -> Any:
    if not _BARE.fullmatch(_QUOTED.sub("", stripped)):
        return text
    try:
        value = clean(ast.literal_eval(stripped))
        encode(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text  # also what is too deep, and sets, which JSON has not
    return value if isinstance(value, (list, dict)) else text


@dataclass(frozen=True, slots=True)
class Block:
    """One entry of a result's content, read."""

    text: str
    value: Any = None
    plain: bool = False
    """Whether the value is what the text reads as; that is only found out when somebody asks."""
    blob: Blob | None = None

    def read(self) -> Any:
        """The value."""
        return parse_text(self.text) if self.plain else self.value


def _block(raw: Any) -> Block:
    if not isinstance(raw, Mapping):
        return Block(text=_compact(raw), value=raw)
    kind = raw.get("type")
    if kind == "text" or (kind is None and isinstance(raw.get("text"), str)):
        return _plain(raw.get("text"))
    if kind in ("image", "audio"):
        return _binary(str(kind), raw.get("data"), raw.get("mimeType"))
    if kind == "resource" and isinstance(raw.get("resource"), Mapping):
        return resource(raw["resource"])
    if kind == "resource_link":
        link = {
            key: raw[key] for key in ("uri", "name", "mimeType", "description") if raw.get(key) is not None
        }
        return Block(
            text=f"[resource {raw.get('name', '')} {raw.get('uri', '')}]".replace("  ", " "), value=link
        )
    return Block(text=_compact(raw), value=dict(raw))


def resource(raw: Mapping[str, Any]) -> Block:
    """One entry of a resource's `contents`, or an embedded resource."""
    if isinstance(raw.get("blob"), str):
        return _binary("resource", raw["blob"], raw.get("mimeType"))
    return _plain(raw.get("text"))


def _plain(text: Any) -> Block:
    if not isinstance(text, str):
        return Block(text=_compact(text), value=text)
    return Block(text=whole(text), plain=True)


def _binary(kind: str, data: Any, mime: Any) -> Block:
    text = data if isinstance(data, str) else ""
    try:
        raw = binascii.a2b_base64(text.encode())
    except ValueError:
        raw = text.encode()
    blob = Blob(
        handle=f"blob:{hashlib.sha256(raw).hexdigest()[:16]}",
        mime=mime if isinstance(mime, str) and mime else "application/octet-stream",
        data=text,
        size=len(raw),
    )
    value = {"type": kind, "mimeType": blob.mime, "bytes": blob.size, "handle": blob.handle}
    return Block(text=blob.describe(kind), value=value, blob=blob)


def _tells(text: str, value: Any, blocks: list[Block]) -> bool:
    """Whether the text gives anything of the value away. "View ready." beside a table of data does not."""
    if not text:
        return False
    leaves = list(islice(_leaves(value), _LEAVES))
    start = text[:_LOOKED_AT]
    if not leaves or any(_holds(start, leaf) for leaf in leaves):
        return True
    return any(block.read() == value for block in blocks)


def _holds(text: str, word: str) -> bool:
    """Whether a word or number stands in the text, and not inside of another: no y in "ready"."""
    at = text.find(word)
    while at >= 0:
        around = text[at - 1 : at] + text[at + len(word) : at + len(word) + 1]
        if not any(c.isascii() and c.isalnum() for c in around):
            return True
        at = text.find(word, at + 1)
    return False


def _leaves(value: Any) -> Iterator[str]:
    """The words and numbers of a JSON value as prose writes them: 3.0 also as 3, 1234 also as 1,234."""
    level = [value]
    while level:  # level by level: a value may be deep
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
            elif item and isinstance(item, str):
                yield item
            elif isinstance(item, int | float) and not isinstance(item, bool):
                yield from (str(item), f"{item:,g}" if isinstance(item, float) else f"{item:,}")
        level = below


def _unwrap(structured: Any, blocks: list[Block]) -> Any:
    """FastMCP wraps what is no object as {"result": ...}. A tool's own such object shows in its text."""
    if not (isinstance(structured, dict) and list(structured) == ["result"]):
        return structured
    if any(block.plain and block.read() == structured for block in blocks):
        return structured
    inner = structured["result"]
    # A tool that returns text is wrapped too; it is read as the same text is that comes unwrapped.
    return parse_text(inner) if isinstance(inner, str) else inner


def _compact(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value).decode()

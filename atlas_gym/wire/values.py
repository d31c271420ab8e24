"""A raw `tools/call` result as a Python value and as text.

Owns the order of trust: structured content, text that is JSON, text that is a Python container, text.
Images, audio and binary resources become a short description with a handle. Does not know sessions.
"""

from __future__ import annotations

import ast
import binascii
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from atlas_gym.wire.codec import Unreadable, clean, encode, parse, whole

_LITERAL_CHARS: Final = 1_000_000
"""Longer text is never tried as a Python literal: the parser's memory is some hundred times the text."""
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
        return value, text or _compact(value), blobs
    values = [block.value for block in blocks]
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
    value: Any
    plain: bool = False
    blob: Blob | None = None


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
    return Block(text=whole(text), value=parse_text(whole(text)), plain=True)


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


def _unwrap(structured: Any, blocks: list[Block]) -> Any:
    """FastMCP wraps what is no object as {"result": ...}. A tool's own such object shows in its text."""
    if not (isinstance(structured, dict) and list(structured) == ["result"]):
        return structured
    if any(block.plain and block.value == structured for block in blocks):
        return structured
    inner = structured["result"]
    # A tool that returns text is wrapped too; it is read as the same text is that comes unwrapped.
    return parse_text(inner) if isinstance(inner, str) else inner


def _compact(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else encode(value).decode()

"""What a server's tools were when its lock was written: names, digests, observed result shapes.

Owns the file `lock.json`, the digest of a tool and the comparison. Holds no text of any server, and does
not know how a server is started or asked.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.errors import LockError, closest

SCHEMA: Final = 1
_HASHED: Final = ("name", "description", "inputSchema", "outputSchema")
_HEX: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class ToolLock:
    """One tool: a digest of what an agent is told about it, and what its results look like."""

    name: str
    digest: str
    """SHA-256, hexadecimal, see `digest_tool`."""
    shape: str | None = None
    """What a result looked like as Python types, when the tool was really called; None if it was not."""


@dataclass(frozen=True)
class Lock:
    """What one server was."""

    server_version: str
    """As the server itself says; its package's version stands in the manifest."""
    protocol: str
    """Version of the protocol that it agreed to."""
    tools: tuple[ToolLock, ...]
    """In the order in which it lists them."""

    @property
    def shapes(self) -> dict[str, str]:
        """Tool name -> observed shape, for the tools that have one."""
        return {tool.name: tool.shape for tool in self.tools if tool.shape is not None}


def tidy(raw: Any) -> Any:
    """A raw tool with the indentation of its descriptions removed.

    Python 3.13 strips docstrings that older versions leave indented, and servers send them as they are:
    without this the same server would be another one on another Python.
    """
    if isinstance(raw, Mapping):
        return {
            key: inspect.cleandoc(value) if key == "description" and isinstance(value, str) else tidy(value)
            for key, value in raw.items()
        }
    return [tidy(value) for value in raw] if isinstance(raw, list) else raw


def digest_tool(raw: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of name, description and schemas of one raw tool."""
    told = tidy({key: raw.get(key) for key in _HASHED})
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def compare(lock: Lock, raw_tools: Iterable[Mapping[str, Any]]) -> list[str]:
    """Every difference between a lock and what the server lists, as a phrase each; empty when equal."""
    now = {str(raw.get("name")): digest_tool(raw) for raw in raw_tools}
    before = {tool.name: tool.digest for tool in lock.tools}
    missing = [f"tool {name!r} is gone" for name in before if name not in now]
    extra = [f"tool {name!r} is new" for name in now if name not in before]
    changed = [
        f"tool {name!r} has another description or schema"
        for name, digest in before.items()
        if name in now and now[name] != digest
    ]
    return missing + extra + changed


def load_lock(path: Path) -> Lock:
    """Read a `lock.json`.

    Raises:
        LockError: It is missing or corrupt; names the file, the field and the next step.
    """
    name = path.parent.name
    again = f"Restore it, or write it again: atlas-gym servers lock {name}."
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as exc:
        raise LockError(f"{path}: corrupt or missing ({exc}). {again}") from exc
    if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
        found = raw.get("schema") if isinstance(raw, dict) else type(raw).__name__
        raise LockError(f"{path}: schema {found!r}; this version of atlas-gym reads {SCHEMA}. {again}")
    try:
        return Lock(
            _text(raw, "server_version"), _text(raw, "protocol"), tuple(_tool(t) for t in raw["tools"])
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise LockError(f"{path}: corrupt: {_reason(exc)}. {again}") from exc


def save_lock(path: Path, lock: Lock) -> None:
    """Write a `lock.json`, whole or not at all.

    Raises:
        StorageError: The disk is full or the folder not writable.
    """
    raw = {
        "schema": SCHEMA,
        "server_version": lock.server_version,
        "protocol": lock.protocol,
        "tools": [{"name": t.name, "digest": t.digest, "shape": t.shape} for t in lock.tools],
    }
    with settings.storage(f"Writing {path}"):
        part = path.with_suffix(".part")
        part.write_text(json.dumps(raw, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        part.replace(path)


def _tool(raw: Any) -> ToolLock:
    digest = _text(raw, "digest")
    if len(digest) != 64 or not _HEX.issuperset(digest):
        raise ValueError(f"tool {raw.get('name')!r}: digest {digest[:80]!r} is not 64 hexadecimal digits")
    shape = raw.get("shape")
    if shape is not None and not isinstance(shape, str):
        raise ValueError(f"tool {raw.get('name')!r}: shape must be a string or null")
    return ToolLock(_text(raw, "name"), digest, shape)


def _text(raw: Any, field: str) -> str:
    if not isinstance(raw, Mapping):
        raise ValueError(f"expected an object, found {type(raw).__name__}")
    if field not in raw:
        near = closest(field, raw)
        raise ValueError(f"field {field!r} is missing" + (f" (there is {near!r})" if near else ""))
    if not isinstance(raw[field], str):
        raise ValueError(f"field {field!r} must be a string, found {type(raw[field]).__name__}")
    return str(raw[field])


def _reason(exc: Exception) -> str:
    return f"field {exc.args[0]!r} is missing" if isinstance(exc, KeyError) else str(exc)

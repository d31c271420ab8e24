"""The texts of installed servers' tools, in the cache: other people's prose stays out of the repository.

Owns one file per installation, written once the server was really asked. Does not ask it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.runtime.install import Installation
from atlas_gym.toolspace.lock import tidy

SCHEMA: Final = 1


@dataclass(frozen=True)
class Texts:
    """What a server said of itself and of its tools."""

    tools: tuple[dict[str, Any], ...]
    """Raw entries of `tools/list`, descriptions without their indentation."""
    server_version: str = ""
    protocol: str = ""
    notes: tuple[str, ...] = ()
    """What was odd about the listing."""


def texts_file(installation: Installation) -> Path:
    """Where the texts of this installation are, or would be."""
    return installation.directory / "tools.json"


def load_texts(installation: Installation) -> Texts | None:
    """The cached texts; None when there are none, or none that this version can read."""
    try:
        raw = json.loads(texts_file(installation).read_text(encoding="utf-8"))
        if raw["schema"] != SCHEMA:
            return None
        return Texts(tuple(raw["tools"]), raw["server_version"], raw["protocol"], tuple(raw["notes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save_texts(
    installation: Installation,
    tools: Sequence[dict[str, Any]],
    *,
    server_version: str,
    protocol: str,
    notes: Sequence[str] = (),
) -> Texts:
    """Keep what the server said.

    Raises:
        StorageError: The disk is full or the cache not writable; then no half-written file stays.
    """
    texts = Texts(tuple(tidy(tool) for tool in tools), server_version, protocol, tuple(notes))
    file = texts_file(installation)
    raw = {
        "schema": SCHEMA,
        "server_version": texts.server_version,
        "protocol": texts.protocol,
        "notes": list(texts.notes),
        "tools": list(texts.tools),
    }
    with settings.storage(f"Writing {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(".part")
        try:
            part.write_text(json.dumps(raw), encoding="utf-8")
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    return texts


def drop_texts(installation: Installation) -> None:
    """Forget the texts, if there are any."""
    with settings.storage(f"Deleting {texts_file(installation)}"):
        texts_file(installation).unlink(missing_ok=True)

"""A short name for what a setup lays out: equal setups have equal digests, on every machine.

Owns the canonical form. Does not know how a setup is laid out, nor who keeps things by its digest.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from atlas_gym.task.setup import EPOCH, Setup

_FORMAT: Final = 1
"""Raise it when `lay_out` makes something else of the same setup: what was kept by a digest is then stale."""


class _Hash(Protocol):
    def update(self, data: bytes, /) -> object: ...


def digest(setup: Setup) -> str:
    """Thirty-two hex digits over everything that `lay_out` reads.

    Fields that have their default do not count, so that a field added later changes no digest. The order of
    items, rows, commits and of the files of a commit counts (it decides what is on disk); that of other
    mappings does not. Numbers of different types differ (a database keeps 1 and 1.0 apart), and the bytes of
    a binary file count, not how its base64 is written.
    """
    values = setup.model_dump(exclude_defaults=True)
    for item in values.get("binaries", ()):
        item["base64"] = base64.b64decode(item["base64"])
    for repository in values.get("repositories", ()):
        for commit in repository["commits"]:
            if "files" in commit:
                commit["files"] = list(commit["files"].items())
    sha = hashlib.sha256()
    _feed(sha, [_FORMAT, EPOCH, values])
    return sha.hexdigest()[:32]


def _feed(sha: _Hash, value: Any) -> None:
    """Each value with its type and its length: no two different values feed the same bytes."""
    if value is None:
        sha.update(b"n;")
    elif isinstance(value, bool):
        sha.update(b"b%d;" % value)
    elif isinstance(value, int):
        sha.update(b"i%x;" % value)
    elif isinstance(value, float):
        sha.update(f"f{value.hex()};".encode())
    elif isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        sha.update(b"s%d:%b" % (len(data), data))
    elif isinstance(value, bytes):
        sha.update(b"x%d:%b" % (len(value), value))
    elif isinstance(value, Mapping):
        sha.update(b"{%d:" % len(value))
        for key in sorted(value):
            _feed(sha, key)
            _feed(sha, value[key])
    elif isinstance(value, Sequence):
        sha.update(b"[%d:" % len(value))
        for part in value:
            _feed(sha, part)
    else:
        raise TypeError(f"a setup holds a {type(value).__name__}, which has no canonical form")

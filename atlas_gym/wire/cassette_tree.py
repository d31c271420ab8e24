"""Files to content and back: what an episode left, as a cassette keeps it.

Owns that nothing of a foreign cassette is written outside of the directory it is meant for. Does not know
what the files are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from atlas_gym import settings
from atlas_gym.wire.cassette_file import CassetteError

_PARTS: Final = ("files", "state")


def read_tree(root: Path) -> dict[str, bytes | None]:
    """Everything below a snapshot's `files` and `state`.

    Args:
        root: Of a snapshot, which holds plain files and directories only.

    Returns:
        Path below `root` -> content; None for a directory.

    Raises:
        StorageError: Something cannot be read.
    """
    found: dict[str, bytes | None] = {}
    with settings.storage("Reading what the episode left"):
        for part in _PARTS:
            for folder, _, names in os.walk(root / part):
                at = Path(folder)
                found[at.relative_to(root).as_posix()] = None
                for name in names:
                    found[(at / name).relative_to(root).as_posix()] = (at / name).read_bytes()
    return found


def write_tree(root: Path, tree: Mapping[str, bytes | None]) -> None:
    """Write what `read_tree` read.

    Raises:
        CassetteError: A path would lead out of `files` and `state`.
        StorageError: It cannot be written.
    """
    with settings.storage("Writing what the recorded episode left"):
        for path, data in sorted(tree.items()):
            parts = PurePosixPath(path).parts
            if not parts or parts[0] not in _PARTS or ".." in parts or "\0" in path:
                raise CassetteError(f"The cassette holds a file {path!r}, which is no path of an episode.")
            target = root.joinpath(*parts)
            if data is None:
                target.mkdir(parents=True, exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)

"""Directories of the cache that are complete or absent, whoever is killed and whoever else makes them.

Owns the marker of completeness and the lock against others. Does not know what is in a directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.errors import InstallError

_MARKER: Final = ".complete"


def facts(place: Path) -> dict[str, Any] | None:
    """What `finish` wrote about a complete directory; None when it is absent or half-made."""
    try:
        raw = json.loads((place / _MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return raw if isinstance(raw, dict) else None


@contextmanager
def making(place: Path) -> Iterator[None]:
    """Hold the directory's lock while it is looked at and made: other threads and processes wait.

    Call `start` when it must be made and `finish` when it is. If the block fails, Ctrl-C included, what was
    started is removed.

    Raises:
        StorageError: The cache cannot be written.
    """
    with settings.storage(f"Locking {place}"):
        place.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(place.parent / f".{place.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        with settings.storage(f"Locking {place}"):
            fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        except BaseException:  # Ctrl-C too: nothing half-installed may stay
            if facts(place) is None:
                remove(place)
            raise
    finally:
        os.close(handle)


def start(place: Path) -> None:
    """Begin with an empty directory, inside `making`.

    Raises:
        StorageError: It cannot be made.
    """
    remove(place)
    with settings.storage(f"Creating {place}"):
        place.mkdir()


def finish(place: Path, about: Mapping[str, Any]) -> None:
    """Declare the directory complete.

    Args:
        place: The directory.
        about: JSON values that `facts` gives back.

    Raises:
        StorageError: The marker cannot be written.
    """
    with settings.storage(f"Writing {place / _MARKER}"):
        part = place / f"{_MARKER}.part"
        part.write_text(json.dumps(about, indent=1), encoding="utf-8")
        part.replace(place / _MARKER)


def remove(place: Path) -> None:
    """Delete the directory, if it is there; call it inside `making`.

    Raises:
        InstallError: It cannot be deleted.
    """
    if place.exists():
        # The marker goes first: a removal that is cut short leaves nothing that looks complete.
        (place / _MARKER).unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
    if place.exists():
        raise InstallError(f"{place} is half-made and cannot be removed. Delete it, then try again.")

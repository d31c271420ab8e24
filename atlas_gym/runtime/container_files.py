"""An episode's directories on their way into a container: whose they are, that they are no links, their size.

Owns the user that containers run as and the change of owners: only what is ours is given, and no link is
followed. Does not know what a container is.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atlas_gym import settings

_NOBODY: Final = 65532
"""Whom containers run as where we are root: nobody's number on a usual machine. Not 65534, which owns what
network file systems could not map, and may have reserved blocks of a disk."""


@dataclass(frozen=True)
class Identity:
    """The user of a container's processes, as numbers that its engine understands."""

    uid: int
    gid: int
    given: bool
    """Whether directories of ours have to be given to it."""

    @property
    def user(self) -> str:
        """What `docker run --user` takes."""
        return f"{self.uid}:{self.gid}"


def identity(*, rootless: bool) -> Identity:
    """Who containers run as: this process's user, or nobody when that is root.

    Args:
        rootless: Of the engine: then its root is the user that runs it.
    """
    if rootless:
        return Identity(0, 0, False)
    if os.getuid() == 0:
        return Identity(_NOBODY, _NOBODY, True)
    return Identity(os.getuid(), os.getgid(), False)


def give(folders: Sequence[Path], who: Identity) -> None:
    """Make `who` the owner of directories and all that is in them; at once when it is already.

    A directory's own owner is changed after everything in it, and nothing of a directory that has been given
    is looked at again: the servers that change it meanwhile own all that they make.

    Raises:
        StorageError: The file system does not let us.
    """
    if not who.given:
        return
    mine = os.getuid()
    with settings.storage("Giving the episode's directories to its containers' user"):
        for folder in folders:
            if folder.stat(follow_symlinks=False).st_uid != mine:
                continue
            for _, directories, files, fd in os.fwalk(folder, topdown=False, follow_symlinks=False):
                for name in (*files, *directories):
                    with suppress(FileNotFoundError):  # another server of the episode starts, and is faster
                        os.chown(name, who.uid, who.gid, dir_fd=fd, follow_symlinks=False)
            os.chown(folder, who.uid, who.gid, follow_symlinks=False)


def solid(folder: Path) -> Path:
    """The same path, with a directory there.

    A server may have put a link in its place, and an engine follows links when it mounts.

    Raises:
        StorageError: It cannot be replaced.
    """
    with settings.storage(f"Looking at {folder.name} before it is mounted"):
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(folder.lstat().st_mode):
                return folder
            folder.unlink()
        folder.mkdir(mode=0o700)
    return folder


def let_through(folders: Sequence[Path], who: Identity) -> None:
    """Let `who`, and nobody else, reach what lies below directories whose names it knows; not list them.

    Raises:
        StorageError: The file system does not let us.
    """
    if not who.given:
        return
    with settings.storage("Opening the way to the episode's directories to its containers' user"):
        for folder in folders:
            if not folder.stat().st_mode & 0o001:
                os.chown(folder, -1, who.gid, follow_symlinks=False)
                folder.chmod(0o710)


def measure(roots: Sequence[Path], most: int) -> tuple[int, int]:
    """Entries below some directories, `most` at most, and the bytes of disk that they fill.

    What disappears meanwhile, or is closed to us, is not counted.
    """
    entries = size = 0
    waiting = [str(root) for root in roots]
    while waiting and entries < most:
        with suppress(OSError), os.scandir(waiting.pop()) as found:
            for entry in found:
                entries += 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    with suppress(OSError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                if entries >= most:
                    break
    return entries, size

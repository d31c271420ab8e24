"""Removing and copying directory trees that somebody hostile may have made, or may still be changing.

Owns both walks: relative to open directories, following no links, without recursion. Does not know what
the trees are for.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK: Final = 1 << 20

_MAX_PATH: Final = 3800
"""Bytes of a path in a copy, whose readers do not walk: the kernel takes 4095, and they add to it."""

MAX_NOTES: Final = 1000
"""Entries left out of a copy that are named; then one note, for the path "", says that there are more."""


@contextmanager
def _held(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _opened(name: str | Path, flags: int, parent: int | None = None) -> Iterator[int]:
    with _held(os.open(name, flags, dir_fd=parent)) as fd:
        yield fd


def _unlock(name: str, parent: int) -> None:
    """Give the owner all rights on a directory, never through a link."""
    with _opened(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, parent) as fd:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            os.chmod(f"/proc/self/fd/{fd}", 0o700)


def remove(root: Path) -> None:
    """Remove a directory and everything in it; nothing happens when it is not there.

    Subdirectories are first moved up into `root`, so that a tree of any depth needs two open directories.

    Raises:
        OSError: Something could not be removed.
    """
    try:
        parent = os.open(root.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        with suppress(FileNotFoundError):
            _unlock(root.name, parent)
            with _opened(root.name, _DIRECTORY, parent) as top:
                _empty(top)
            os.rmdir(root.name, dir_fd=parent)
    finally:
        os.close(parent)


def _empty(top: int) -> None:
    moved = 0
    waiting = [name for name in os.listdir(top) if not _unlinked(name, top)]
    while waiting:
        name = waiting.pop()
        # Gone already when an empty directory of the tree had the name that one of ours was moved to.
        with suppress(FileNotFoundError):
            _unlock(name, top)
            with _opened(name, _DIRECTORY, top) as fd:
                for child in os.listdir(fd):
                    if not _unlinked(child, fd):
                        moved = _move_up(child, fd, top, moved)
                        waiting.append(f".moved-{moved}")
            os.rmdir(name, dir_fd=top)


def _move_up(child: str, parent: int, top: int, moved: int) -> int:
    """Move a directory to `top` as ".moved-N" with the first free N above `moved`; returns N."""
    _unlock(child, parent)  # its ".." changes, which needs the right to write it
    while True:
        moved += 1
        try:
            os.rename(child, f".moved-{moved}", src_dir_fd=parent, dst_dir_fd=top)
        except OSError as exc:
            if exc.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        else:
            return moved


def _unlinked(name: str, parent: int) -> bool:
    """Remove `name` unless it is a directory."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise
        return False
    return True


@dataclass
class CopyBudget:
    """What may still be copied, and what was not."""

    bytes: int
    files: int
    depth: int
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def skip(self, path: str, reason: str) -> None:
        """Note one entry that is left out; a hostile tree must not fill the memory with notes."""
        if len(self.skipped) < MAX_NOTES:
            self.skipped.append((path, reason))
        elif len(self.skipped) == MAX_NOTES:
            self.skipped.append(("", "more was left out than can be named"))


def copy(source: Path, target: Path, budget: CopyBudget) -> None:
    """Copy directories and regular files; see `Workspace.snapshot` for the rules.

    Entries are taken in order of their names, directories after the files beside them, so that what fits
    is the same every time. `target` may be there.

    Raises:
        OSError: The target cannot be written. What cannot be read in the source is skipped, be it all of it.
    """
    target.mkdir(mode=0o700, exist_ok=True)
    try:
        opened = os.open(source, _DIRECTORY)
    except (FileNotFoundError, NotADirectoryError, PermissionError) as exc:
        budget.skip(source.name, f"not readable: {exc.strerror}")
        return
    with _held(opened) as base:
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            parts = waiting.pop(0)
            try:
                fd = _walk(base, parts)
            except OSError as exc:
                budget.skip("/".join((source.name, *parts)), f"not readable: {exc.strerror}")
                continue
            try:
                waiting += _copy_entries(fd, source.name, parts, target.joinpath(*parts), budget)
            finally:
                os.close(fd)


def _walk(base: int, parts: tuple[str, ...]) -> int:
    """Open a directory component by component; a link swapped in anywhere on the way is refused."""
    fd = os.dup(base)
    for part in parts:
        try:
            below = os.open(part, _DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def _copy_entries(
    fd: int, label: str, parts: tuple[str, ...], target: Path, budget: CopyBudget
) -> list[tuple[str, ...]]:
    below: list[tuple[str, ...]] = []
    for name in sorted(os.listdir(fd)):
        path = "/".join((label, *parts, name))
        try:
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
        except OSError:
            continue  # gone since it was listed
        if len(os.fsencode(target / name)) > _MAX_PATH:
            budget.skip(path, "its path is too long")
        elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            budget.skip(path, "a symbolic link" if stat.S_ISLNK(mode) else "not a regular file")
        elif budget.files <= 0:
            budget.skip(path, "too many files")
        elif stat.S_ISREG(mode):
            budget.files -= 1
            _copy_file(fd, name, path, target / name, budget)
        elif len(parts) >= budget.depth:
            budget.skip(path, "too deep")
        else:
            budget.files -= 1
            (target / name).mkdir(mode=0o700)
            below.append((*parts, name))
    return below


def _copy_file(parent: int, name: str, path: str, target: Path, budget: CopyBudget) -> None:
    try:
        # O_NONBLOCK: a FIFO put in the file's place meanwhile must not make us wait for a writer.
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError as exc:
        budget.skip(path, f"not readable: {exc.strerror}")
        return
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            budget.skip(path, "not a regular file")
            return
        if about.st_size > budget.bytes:
            budget.skip(path, f"too large: {about.st_size} bytes, {budget.bytes} left")
            return
        budget.bytes -= about.st_size
        with open(target, "xb") as out:
            left = about.st_size  # it may be growing
            while left > 0 and (data := os.read(fd, min(left, _CHUNK))):
                out.write(data)
                left -= len(data)
        os.chmod(target, 0o700 if about.st_mode & 0o100 else 0o600)
        os.utime(target, ns=(about.st_mtime_ns, about.st_mtime_ns))
    finally:
        os.close(fd)

"""A file system of an image, put together from files of this machine and sent as a tar stream.

Owns paths, links and times in the stream, so that equal files make an equal layer. Does not know what the
files are for, nor the engine.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from atlas_gym.errors import InstallError

_BLOCK: Final = 512
_CHUNK: Final = 1 << 20


@dataclass(frozen=True)
class Entry:
    """One file, directory or link; its path is the key in `Tree`."""

    mode: int
    source: Path | None = None
    """File of this machine that holds the content."""
    data: bytes = b""
    """The content, when there is no source."""
    link: str = ""
    """Target of a symbolic link."""
    directory: bool = False
    size: int = 0
    mtime: int = 0


class Tree:
    """Paths without a leading slash, each added once: what was added first stays.

    Args:
        mtime: One time for every entry, in seconds; None for those of the files, which bytecode compares.
    """

    def __init__(self, mtime: int | None = None) -> None:
        self._entries: dict[str, Entry] = {}
        self._mtime = mtime

    def __contains__(self, path: str) -> bool:
        return path in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self._entries.values())

    def paths(self, below: str) -> list[str]:
        """Every path below a directory, sorted."""
        return sorted(path for path in self._entries if path.startswith(f"{below}/"))

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Add a directory; those above it are made anyway."""
        self._add(path, Entry(mode, directory=True))

    def text(self, path: str, text: str, mode: int = 0o644) -> None:
        """Add a file with this text."""
        data = text.encode()
        self._add(path, Entry(mode, data=data, size=len(data)))

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link."""
        self._add(path, Entry(0o777, link=target))

    def file(self, path: str, source: Path) -> None:
        """Add a copy of a file; a link is followed.

        Raises:
            InstallError: It cannot be read.
        """
        try:
            about = source.stat()
        except OSError as exc:
            raise InstallError(f"{source} cannot be read ({exc.strerror}). Check the file.") from exc
        mode = 0o755 if about.st_mode & 0o111 else 0o644
        self._add(path, Entry(mode, source, size=about.st_size, mtime=int(about.st_mtime)))

    def copy(self, path: str, source: Path, skip: Callable[[Path], bool] = lambda _relative: False) -> None:
        """Add a directory with all in it: regular files, directories, links.

        A link that leaves the directory becomes what it leads to, or is left out when that is no file.

        Args:
            path: Where.
            source: The directory.
            skip: Asked with each path relative to `source` whether to leave it, and all below, out.

        Raises:
            InstallError: It cannot be read.
        """
        waiting = [Path()]
        self.directory(path)
        real = source.resolve()
        while waiting:
            folder = waiting.pop()
            try:
                found = sorted(os.scandir(source / folder), key=lambda e: e.name)
            except OSError as exc:
                raise InstallError(
                    f"{source / folder} cannot be read ({exc.strerror}). Check its rights."
                ) from exc
            for item in found:
                inner = folder / item.name
                if skip(inner):
                    continue
                place = f"{path}/{inner}" if path else str(inner)
                if item.is_symlink():
                    self._linked(place, Path(item.path), real)
                elif item.is_dir():
                    self.directory(place)
                    waiting.append(inner)
                elif item.is_file():
                    self.file(place, Path(item.path))

    def _linked(self, place: str, link: Path, top: Path) -> None:
        target = link.resolve()
        if target.is_relative_to(top) and target.exists() and not os.readlink(link).startswith("/"):
            self.link(place, os.readlink(link))
        elif target.is_file():
            self.file(place, target)

    def _add(self, path: str, entry: Entry) -> None:
        self._entries.setdefault(path.strip("/"), entry)

    def digest(self) -> str:
        """Twelve hex digits over paths, modes, sizes, times and texts; not bytecode, which comes and goes."""
        seen = hashlib.sha256()
        for path, entry in sorted(self._entries.items()):
            if path.endswith((".pyc", "__pycache__")):
                continue
            mtime = entry.mtime if self._mtime is None else self._mtime
            about = (path, entry.mode, entry.link, entry.directory, entry.size, mtime, entry.data.hex())
            seen.update(repr(about).encode())
        return seen.hexdigest()[:12]

    def stream(self) -> Iterator[bytes]:
        """The tar stream, in order of the paths, everything owned by root.

        Raises:
            InstallError: A file changed its size or cannot be read.
        """
        every = dict(self._entries)
        for path in self._entries:
            for parent in PurePosixPath(path).parents:
                if str(parent) != ".":
                    every.setdefault(str(parent), Entry(0o755, directory=True))
        for path, entry in sorted(every.items()):
            yield self._header(path, entry)
            if entry.size:
                yield from _content(path, entry)
                yield b"\0" * (-entry.size % _BLOCK)
        yield b"\0" * (2 * _BLOCK)

    def _header(self, path: str, entry: Entry) -> bytes:
        info = tarfile.TarInfo(path)
        info.mode = stat.S_IMODE(entry.mode)
        info.mtime = entry.mtime if self._mtime is None else self._mtime
        info.size = entry.size
        if entry.directory:
            info.type = tarfile.DIRTYPE
        elif entry.link:
            info.type, info.linkname = tarfile.SYMTYPE, entry.link
        return info.tobuf(tarfile.PAX_FORMAT)


def _content(path: str, entry: Entry) -> Iterator[bytes]:
    if entry.source is None:
        yield entry.data
        return
    left = entry.size
    try:
        with open(entry.source, "rb") as file:
            while left and (data := file.read(min(left, _CHUNK))):
                left -= len(data)
                yield data
    except OSError as exc:
        raise InstallError(f"{entry.source} cannot be read ({exc.strerror}). Try again.") from exc
    if left:
        raise InstallError(f"{entry.source} became shorter while /{path} was copied. Try again.")

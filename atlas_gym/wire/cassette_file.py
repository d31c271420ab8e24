"""The file of a cassette: one SQLite database, its format number, its errors, content by digest.

Owns how it is opened: one short connection for each piece of work, so that forks, threads and other processes
may use the same file. Does not know what is recorded.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from atlas_gym.errors import AtlasError, StorageError

FORMAT: Final = 1
"""Raise it when a cassette of the old code would be read wrongly by the new."""

_APPLICATION: Final = 0x41474343
"""Marks the database as ours, in its header."""

_BUSY_SECONDS: Final = 30.0
"""How long one process waits for another's write; each takes about a millisecond."""

_TABLES: Final = """
CREATE TABLE contents (digest TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE servers (digest TEXT PRIMARY KEY, name TEXT NOT NULL, about TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE takes (
    id INTEGER PRIMARY KEY AUTOINCREMENT, setup TEXT NOT NULL, task TEXT NOT NULL, label TEXT NOT NULL);
CREATE INDEX takes_of_setup ON takes (setup);
CREATE TABLE calls (
    take INTEGER NOT NULL, number INTEGER NOT NULL, key TEXT NOT NULL, occurrence INTEGER NOT NULL,
    server TEXT NOT NULL, name TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL,
    history TEXT NOT NULL, script TEXT NOT NULL, writes INTEGER NOT NULL, answer TEXT NOT NULL,
    infra INTEGER NOT NULL,
    PRIMARY KEY (take, number)) WITHOUT ROWID;
CREATE INDEX calls_by_key ON calls (key, take, occurrence);
CREATE INDEX calls_of_tool ON calls (name, tool);
CREATE TABLE starts (
    take INTEGER NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, walls TEXT NOT NULL, how TEXT NOT NULL,
    PRIMARY KEY (take, name)) WITHOUT ROWID;
CREATE TABLE ends (
    take INTEGER PRIMARY KEY, history TEXT NOT NULL, root TEXT NOT NULL, tree TEXT NOT NULL,
    verdicts TEXT NOT NULL);
"""

_NO_ROOM: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
_CLOSED: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH})
_BUSY: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})


class CassetteError(AtlasError):
    """A cassette that is none, is damaged or newer than this code, or that does not hold what is asked."""


class CassetteFile:
    """One file. Make one with `open`; there is nothing to close.

    Args:
        path: Where it lies.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path, *, create: bool) -> CassetteFile:
        """Look at a cassette, or make an empty one.

        Args:
            path: Where it is.
            create: Make it where it is missing (several processes may do so at once); else that is an error.

        Raises:
            CassetteError: Missing, no cassette, damaged, or of a newer format.
            StorageError: It cannot be written.
        """
        if path.is_dir():
            raise CassetteError(f"{path} is a directory, not a cassette. Give the path of a file.")
        if not path.exists() and not create:
            raise CassetteError(
                f"There is no cassette {path}. Check the path, or record one: cassette_mode='record'."
            )
        made = cls(path)
        if create:
            made._create()
        made._check()
        return made

    def _create(self) -> None:
        with self.working("making it", create=True) as db:
            db.execute("BEGIN IMMEDIATE")  # of several who make it, one does
            empty = not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if empty and not db.execute("PRAGMA application_id").fetchone()[0]:
                db.execute(f"PRAGMA application_id = {_APPLICATION}")
                db.execute(f"PRAGMA user_version = {FORMAT}")
                for statement in filter(str.strip, _TABLES.split(";")):
                    db.execute(statement)
            db.execute("COMMIT")

    def _check(self) -> None:
        with self.working("reading it") as db:
            owner = db.execute("PRAGMA application_id").fetchone()[0]
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if owner != _APPLICATION:
                raise CassetteError(f"{self.path} is no cassette of atlas-gym. Check the path.")
            if version > FORMAT:
                raise CassetteError(
                    f"{self.path} is a cassette of format {version}; this version of atlas-gym reads up to "
                    f"{FORMAT}. Install a newer atlas-gym, or record it again."
                )
            wrong = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if wrong != "ok":
                raise self._damaged(wrong)

    @contextmanager
    def working(
        self, what: str, *, durable: bool = False, create: bool = False
    ) -> Iterator[sqlite3.Connection]:
        """A connection for one piece of work; without an explicit BEGIN, each statement is one of its own.

        Args:
            what: For messages: "reading it", "recording a call".
            durable: Wait until the disk has it. Without that a write outlives this process, not the machine.
            create: Make the file where it is missing.

        Raises:
            CassetteError: The file is no cassette, or damaged.
            StorageError: The disk is full, the place is not writable, or another process holds the file.
        """
        try:
            with closing(
                sqlite3.connect(self._address(create), timeout=_BUSY_SECONDS, isolation_level=None, uri=True)
            ) as db:
                db.execute("PRAGMA trusted_schema = OFF")  # it may come from somebody else
                db.execute(f"PRAGMA synchronous = {'NORMAL' if durable else 'OFF'}")
                yield db
        except sqlite3.Error as exc:
            raise self._error(exc, what) from exc

    def _address(self, create: bool) -> str:
        mode = "rwc" if create else "rw" if _writable(self.path) else "ro"  # what is read only can be played
        return f"{self.path.absolute().as_uri()}?mode={mode}"

    def _error(self, exc: sqlite3.Error, what: str) -> AtlasError:
        code = (getattr(exc, "sqlite_errorcode", None) or 0) & 0xFF
        if code == sqlite3.SQLITE_NOTADB:
            return CassetteError(f"{self.path} is no cassette of atlas-gym. Check the path.")
        if code in _NO_ROOM | _CLOSED:
            return StorageError(
                f"Cassette {self.path}, {what}: {exc}. Free some space, or give a path that can be written."
            )
        if code in _BUSY:
            return StorageError(
                f"Cassette {self.path}, {what}: another process has held it for {_BUSY_SECONDS:.0f} s. "
                "Let that one end, or record into another file."
            )
        return self._damaged(str(exc))

    def _damaged(self, why: str) -> CassetteError:
        return CassetteError(
            f"Cassette {self.path} is damaged ({why}). Copy it again from where it came, or record it again."
        )

    def get(self, db: sqlite3.Connection, digest: str) -> bytes:
        """Content by its digest.

        Raises:
            CassetteError: It is missing or not what was stored.
        """
        row = db.execute("SELECT data FROM contents WHERE digest = ?", (digest,)).fetchone()
        try:
            data = zlib.decompress(row[0]) if row else None
        except (zlib.error, TypeError):
            data = None
        if data is None or hashlib.sha256(data).hexdigest() != digest:
            raise self._damaged(f"content {digest[:12]} is missing or changed")
        return data


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and os.access(path.absolute().parent, os.W_OK)


def put(db: sqlite3.Connection, data: bytes) -> str:
    """Keep content, once however often it comes.

    Returns:
        Its digest: SHA-256, hexadecimal.
    """
    digest = hashlib.sha256(data).hexdigest()
    if db.execute("SELECT 1 FROM contents WHERE digest = ?", (digest,)).fetchone() is None:
        packed: Any = zlib.compress(data)
        db.execute("INSERT OR IGNORE INTO contents VALUES (?, ?)", (digest, packed))
    return digest

"""SQLite files: making one from a setup, and reading one that an agent may have spoiled.

Reading trusts nothing: a private copy, no writes, no attached files, no extensions, a bound on steps,
rows and bytes. Does not know tasks or checks.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from atlas_gym.errors import StorageError, TaskError
from atlas_gym.task.evidence import Unreadable
from atlas_gym.task.setup import Database

MAX_ROWS: Final = 10_000
MAX_BYTES: Final = 64 * 1024 * 1024
_STEPS_BETWEEN_LOOKS: Final = 10_000
_MAX_LOOKS: Final = 5_000
"""5,000 x 10,000 virtual machine steps: about two seconds of work."""

_MACHINE: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
)
"""Errors that are the disk's, never the SQL's."""

_DENIED: Final = frozenset(
    {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA, sqlite3.SQLITE_ALTER_TABLE}
)


def build(item: Database, target: Path) -> None:
    """Make the database. The same item gives the same bytes with the same SQLite version.

    Raises:
        TaskError: The script or a table does not work.
        StorageError: The disk is full.
    """
    target.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(target)) as connection:
            if item.script:
                connection.executescript(item.script)
            for table in item.tables:
                connection.execute(f'CREATE TABLE "{table.name}" ({", ".join(table.columns)})')
                marks = ", ".join("?" * len(table.columns))
                connection.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', table.rows)
            connection.commit()
    except sqlite3.Error as exc:
        if getattr(exc, "sqlite_errorcode", 0) & 0xFF in _MACHINE:
            raise StorageError(
                f"The setup's database {item.path!r} cannot be written: {exc}. Free some space, or set "
                "ATLAS_RUN (episodes) to a directory you can write."
            ) from exc
        raise TaskError(
            f"The setup's database {item.path!r} cannot be made: {exc}. Correct its SQL."
        ) from exc


def rows(database: Path, query: str) -> list[tuple[Any, ...]]:
    """Run one reading query on a private copy of a database that nobody has open.

    Raises:
        Unreadable: In the agent's file or in what it holds; never for the machine's faults.
        OSError: The copy could not be made (a full disk).
    """
    with _reader(database) as connection:
        try:
            cursor = connection.execute(query)
            found = cursor.fetchmany(MAX_ROWS + 1)
        except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError, OverflowError) as exc:
            raise Unreadable(f"{database.name}: {exc}") from exc
        if len(found) > MAX_ROWS:
            raise Unreadable(f"{database.name}: more than {MAX_ROWS} rows")
        return [tuple(row) for row in found]


@contextmanager
def _reader(database: Path) -> Iterator[sqlite3.Connection]:
    if database.is_symlink() or not database.is_file():
        raise Unreadable(f"there is no database {database.name!r}")
    parts = [p for s in ("", "-wal", "-journal") if (p := database.with_name(database.name + s)).is_file()]
    if any(p.is_symlink() for p in parts) or sum(p.stat().st_size for p in parts) > MAX_BYTES:
        raise Unreadable(f"{database.name}: larger than {MAX_BYTES} bytes, or not plain files")
    with tempfile.TemporaryDirectory(prefix="atlas-check-") as folder:
        # A server that was stopped may have left a journal: opening the copy lets SQLite finish or undo it.
        for part in parts:
            shutil.copyfile(part, Path(folder, part.name))
        with closing(sqlite3.connect(Path(folder, database.name))) as connection:
            _restrict(connection)
            yield connection


def _restrict(connection: sqlite3.Connection) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 8_000_000)
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    looks = 0

    def look() -> int:
        nonlocal looks
        looks += 1
        return int(looks > _MAX_LOOKS)

    def authorise(action: int, *_: Any) -> int:
        return sqlite3.SQLITE_DENY if action in _DENIED else sqlite3.SQLITE_OK

    connection.set_progress_handler(look, _STEPS_BETWEEN_LOOKS)
    connection.set_authorizer(authorise)

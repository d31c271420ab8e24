"""SQLite files: making one from a setup, and reading one that an agent may have spoiled.

Reading trusts nothing: a private copy, no writes, no attached files, no extensions, no damaged index, a bound
on steps, time, rows and bytes. Does not know tasks or checks.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
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
_MAX_SECONDS: Final = 10.0
"""For what is slow in few steps: such as searching one long text in another, within a view."""
_MAX_VALUE: Final = 256 * 1024
"""Bytes of one value or row: a single function call on two such values is not interrupted."""
_MAX_FOUND: Final = 16 * 1024 * 1024
"""Bytes of all texts and blobs that a query may give."""
_SUPER: Final = bytes.fromhex("d9d505f920a163d7")
"""Ends a journal that names another file, which SQLite would open, and remove, wherever it lies."""

_MACHINE: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
)
"""Errors that are the disk's, never the SQL's."""

_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LENGTH: _MAX_VALUE,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 500,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

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
            connection.execute("PRAGMA synchronous = OFF")  # what a crash leaves half-made is never used
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
            found: list[tuple[Any, ...]] = []
            size = 0
            for row in connection.execute(query):
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if len(found) >= MAX_ROWS or size > _MAX_FOUND:
                    raise Unreadable(f"{database.name}: more than {MAX_ROWS} rows or {_MAX_FOUND} bytes")
                found.append(tuple(row))
            return found
        except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError, OverflowError) as exc:
            raise Unreadable(f"{database.name}: {exc}") from exc


@contextmanager
def _reader(database: Path) -> Iterator[sqlite3.Connection]:
    if database.is_symlink() or not database.is_file():
        raise Unreadable(f"there is no database {database.name!r}")
    parts = [p for s in ("", "-wal", "-journal") if (p := database.with_name(database.name + s)).is_file()]
    if any(p.is_symlink() for p in parts) or sum(p.stat().st_size for p in parts) > MAX_BYTES:
        raise Unreadable(f"{database.name}: larger than {MAX_BYTES} bytes, or not plain files")
    # Beside it, in what is a copy already: `gc` collects that, should this process be killed meanwhile.
    with tempfile.TemporaryDirectory(prefix="atlas-check-", dir=database.parent) as folder:
        # A server that was stopped may have left a journal: opening the copy lets SQLite finish or undo it.
        for part in parts:
            shutil.copyfile(part, Path(folder, part.name))
        _demand_alone(Path(folder, database.name + "-journal"))
        with closing(sqlite3.connect(Path(folder, database.name))) as connection:
            alarm = threading.Timer(_MAX_SECONDS, connection.interrupt)
            alarm.start()
            try:
                _restrict(connection, database.name)
                yield connection
            finally:
                alarm.cancel()
                alarm.join()


def _demand_alone(journal: Path) -> None:
    """Refuse a journal of a transaction over several databases: it names a file outside of the copy."""
    if journal.is_file():
        with journal.open("rb") as file:
            file.seek(max(0, journal.stat().st_size - len(_SUPER)))
            if file.read() == _SUPER:
                raise Unreadable(f"{journal.name} names another file")


def _restrict(connection: sqlite3.Connection, name: str) -> None:
    for limit, most in _LIMITS.items():
        connection.setlimit(limit, most)
    looks = 0

    def look() -> int:
        nonlocal looks
        looks += 1
        return int(looks > _MAX_LOOKS)

    def authorise(action: int, *_: Any) -> int:
        return sqlite3.SQLITE_DENY if action in _DENIED else sqlite3.SQLITE_OK

    connection.set_progress_handler(look, _STEPS_BETWEEN_LOOKS)
    try:
        for pragma in ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
            connection.execute(f"PRAGMA {pragma}")
        # An index that was tampered with answers otherwise than its table, and a query reads either.
        [verdict] = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except (sqlite3.Error, UnicodeDecodeError) as exc:
        raise Unreadable(f"{name}: {exc}") from exc
    if verdict != "ok":
        raise Unreadable(f"{name}: {str(verdict)[:200]}")
    connection.set_authorizer(authorise)

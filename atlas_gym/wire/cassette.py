"""A cassette: what servers answered in recorded episodes, and what those episodes left, in one file.

Owns what is stored and how it is found. One recorded episode is a take; of several takes that hold the same
call, one with the same messages goes first, then the reader's own, one of the same label, the newest. Holds
no clocks. Does not know sessions, checks or tasks beyond their names.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from atlas_gym.types import Failed, Outcome
from atlas_gym.wire.cassette_file import CassetteError, CassetteFile, put
from atlas_gym.wire.cassette_keys import Issued
from atlas_gym.wire.values import Blob

__all__ = ["Answer", "Cassette", "CassetteError", "End", "ServerRecord", "Start", "TaskRow"]

STORED: Final = ("ok", "tool_error", "invalid_call")
"""Outcomes that are kept. Timeouts and crashes never are: they say something of a machine."""


@dataclass(frozen=True)
class ServerRecord:
    """What must be known of a server in order to play without it."""

    name: str
    digest: str
    version: str
    """`package==version`."""
    server_version: str
    """As the server itself says."""
    protocol: str
    tools: tuple[dict[str, Any], ...]
    """Raw entries of `tools/list`, as agents see them."""
    notes: tuple[str, ...] = ()
    locked: bool = True
    """Whether the digest is that of a lock; False for a server of the user's mcp.json."""


@dataclass(frozen=True)
class Answer:
    """What came back from one call."""

    outcome: Outcome
    value: Any = None
    text: str = ""
    failed: Failed = ""
    blobs: tuple[Blob, ...] = ()
    infra: int = 0
    """Failures of servers that were mended during this call."""


@dataclass(frozen=True)
class Start:
    """How a server of a take was started."""

    version: str
    walls: str
    how: str


@dataclass(frozen=True)
class End:
    """What an episode left on disk."""

    root: str
    """Where its workspace was: servers write such paths into what they store."""
    tree: Mapping[str, bytes | None]
    """Path below the workspace -> content; None for a directory."""
    verdicts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Digest of a check -> the result it had."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(path, reason) of what is not in the tree."""


@dataclass(frozen=True)
class TaskRow:
    """What was recorded of one task."""

    task: str
    takes: int
    whole: int
    """Takes that were recorded to their end."""
    calls: int


class Cassette:
    """One cassette. Make one with `open`; any number of threads and processes may use the same file."""

    def __init__(self, file: CassetteFile) -> None:
        self._file = file

    @classmethod
    def open(cls, path: str | Path, *, create: bool = False) -> Cassette:
        """Open a cassette, and look whether it is whole.

        Args:
            path: The file.
            create: Make it where it is missing.

        Raises:
            CassetteError: Missing, no cassette, damaged, or written by a newer version.
            StorageError: It cannot be written.
        """
        return cls(CassetteFile.open(Path(path).expanduser(), create=create))

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    def digest(self) -> str:
        """Twelve hex digits over everything that it holds; equal for copies."""
        sha = hashlib.sha256()
        with self._file.working("reading it") as db:
            for query in (
                "SELECT digest FROM contents ORDER BY 1",
                "SELECT digest, about FROM servers ORDER BY 1",
                "SELECT id, setup, label FROM takes ORDER BY 1",
                "SELECT take, number, key, answer FROM calls ORDER BY 1, 2",
                "SELECT take, history, tree, verdicts FROM ends ORDER BY 1",
            ):
                for row in db.execute(query):
                    sha.update(json.dumps(row).encode())
        return sha.hexdigest()[:12]

    def add_server(self, record: ServerRecord) -> None:
        """Keep what is known of a server; one of the same digest is replaced.

        Raises:
            StorageError: The disk is full or the file not writable.
        """
        with self._file.working("recording a server") as db, _Transaction(db):
            about = put(db, _dump(asdict(record)))
            db.execute("INSERT OR REPLACE INTO servers VALUES (?, ?, ?)", (record.digest, record.name, about))

    def server(self, digest: str) -> ServerRecord | None:
        """What is known of the server of this digest."""
        return next((record for record in self.servers() if record.digest == digest), None)

    def servers(self) -> list[ServerRecord]:
        """All servers, by name."""
        with self._file.working("reading its servers") as db:
            rows = db.execute("SELECT about FROM servers ORDER BY name, digest").fetchall()
            return [_server(json.loads(self._file.get(db, about))) for (about,) in rows]

    def begin(self, setup: str, task: str, label: str) -> int:
        """Start a take.

        Args:
            setup: Digest of the set-up.
            task: The task's id, for people.
            label: A reader of the same label finds this take before others.
        """
        with self._file.working("beginning a take") as db:
            row = db.execute("INSERT INTO takes (setup, task, label) VALUES (?, ?, ?)", (setup, task, label))
            assert row.lastrowid is not None
            return row.lastrowid

    def add_call(
        self, take: int, issued: Issued, answer: Answer, starts: Mapping[str, Start] | None = None
    ) -> None:
        """Keep one answer.

        Args:
            take: Of `begin`.
            issued: The call.
            answer: What came back; an outcome that is not in `STORED` must not come here.
            starts: The servers that were started for it.
        """
        assert answer.outcome in STORED
        raw = {
            "outcome": answer.outcome,
            "value": answer.value,
            "text": answer.text,
            "failed": answer.failed,
        }
        with self._file.working("recording a call") as db, _Transaction(db):
            blobs = [[b.handle, b.mime, b.size, put(db, b.data.encode())] for b in answer.blobs]
            digest = put(db, _dump({**raw, "blobs": blobs}))
            call = issued.call
            row = (
                *(take, issued.number, issued.key, issued.occurrence, issued.server, call.server, call.tool),
                *(issued.arguments, issued.history, issued.script, int(issued.writes), digest, answer.infra),
            )
            db.execute(f"INSERT OR REPLACE INTO calls VALUES ({_marks(row)})", row)
            for name, start in (starts or {}).items():
                about = (take, name, start.version, start.walls, start.how)
                db.execute(f"INSERT OR REPLACE INTO starts VALUES ({_marks(about)})", about)

    def end(self, take: int, history: str, end: End) -> None:
        """Keep what a take left, once it is over; from here on it is whole."""
        with self._file.working("recording an end", durable=True) as db, _Transaction(db):
            tree = [
                [path, None if data is None else put(db, data)] for path, data in sorted(end.tree.items())
            ]
            verdicts = put(db, _dump(dict(end.verdicts)))
            listed = put(db, _dump({"tree": tree, "skipped": end.skipped}))
            row = (take, history, end.root, listed, verdicts)
            db.execute(f"INSERT OR REPLACE INTO ends VALUES ({_marks(row)})", row)

    def drop(self, take: int) -> None:
        """Forget a take."""
        with self._file.working("removing a take") as db, _Transaction(db):
            for table in ("calls", "starts", "ends"):
                db.execute(f"DELETE FROM {table} WHERE take = ?", (take,))
            db.execute("DELETE FROM takes WHERE id = ?", (take,))

    def find(self, issued: Issued, take: int | None, label: str) -> tuple[int, Answer] | None:
        """The answer to a call, and the take that it is from.

        A take in which the agent has written the same messages so far goes before all others. Where the same
        call was made less often than now, its last answer.

        Args:
            issued: The call.
            take: The reader's own, which goes first; None while it has none.
            label: Takes of the same label go before others, whole ones before broken ones.
        """
        with self._file.working("looking for a call") as db:
            row = db.execute(
                "SELECT c.take, c.answer, c.infra FROM calls c JOIN takes t ON t.id = c.take "
                "LEFT JOIN ends e ON e.take = c.take WHERE c.key = ? AND c.occurrence <= ? ORDER BY "
                "c.script = ? DESC, c.take IS ? DESC, t.label = ? DESC, e.take IS NOT NULL DESC, "
                "c.take DESC, c.occurrence DESC LIMIT 1",
                (issued.key, issued.occurrence, issued.script, take, label),
            ).fetchone()
            if row is None:
                return None
            found, digest, infra = row
            return found, self._answer(db, digest, infra)

    def _answer(self, db: sqlite3.Connection, digest: str, infra: int) -> Answer:
        raw = json.loads(self._file.get(db, digest))
        blobs = tuple(
            Blob(handle, mime, self._file.get(db, data).decode(), size)
            for handle, mime, size, data in raw.pop("blobs")
        )
        return Answer(**raw, blobs=blobs, infra=infra)

    def start_of(self, take: int, name: str) -> Start | None:
        """How a server of a take was started; None if it was not."""
        with self._file.working("reading a take") as db:
            row = db.execute(
                "SELECT version, walls, how FROM starts WHERE take = ? AND name = ?", (take, name)
            ).fetchone()
        return Start(*row) if row else None

    def find_end(self, setup: str, history: str, take: int | None, label: str) -> End | None:
        """What an episode with this set-up and these writes left; the order of takes is that of `find`."""
        with self._file.working("looking for an end") as db:
            row = db.execute(
                "SELECT e.root, e.tree, e.verdicts FROM ends e JOIN takes t ON t.id = e.take "
                "WHERE t.setup = ? AND e.history = ? "
                "ORDER BY e.take IS ? DESC, t.label = ? DESC, e.take DESC LIMIT 1",
                (setup, history, take, label),
            ).fetchone()
            if row is None:
                return None
            root, listed, verdicts = row
            raw = json.loads(self._file.get(db, listed))
            return End(
                root,
                {path: None if kept is None else self._file.get(db, kept) for path, kept in raw["tree"]},
                json.loads(self._file.get(db, verdicts)),
                tuple((path, why) for path, why in raw["skipped"]),
            )

    def contents(self) -> list[TaskRow]:
        """What was recorded, by task."""
        rows = self.ask(
            "SELECT t.task, count(*), count(e.take), "
            "sum((SELECT count(*) FROM calls c WHERE c.take = t.id)) "
            "FROM takes t LEFT JOIN ends e ON e.take = t.id GROUP BY t.task ORDER BY t.task"
        )
        return [TaskRow(*row) for row in rows]

    def ask(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Rows of a reading query, for reports and messages."""
        with self._file.working("reading it") as db:
            return db.execute(query, values).fetchall()


class _Transaction:
    """All of it or nothing, and nobody else writes meanwhile."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")


def _marks(row: Sequence[object]) -> str:
    return ", ".join("?" * len(row))


def _dump(value: Any) -> bytes:
    """In the order in which it is: what an agent reads of a result hangs on it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True).encode()


def _server(raw: dict[str, Any]) -> ServerRecord:
    return ServerRecord(**{**raw, "tools": tuple(raw["tools"]), "notes": tuple(raw["notes"])})

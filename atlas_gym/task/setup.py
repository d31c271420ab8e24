"""What a task finds when it starts, as data, and laying it out on disk before any server runs.

Owns the records (JSON-serialisable) and `lay_out`, which is deterministic: the same setup gives the
same bytes, hashes and times on every machine. Does not know servers, episodes or checks.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from atlas_gym.errors import TaskError
from atlas_gym.settings import storage

EPOCH: Final = 1_704_067_200
"""2024-01-01T00:00:00Z: the modification time of everything that a setup lays out."""

Scalar: TypeAlias = str | int | float | bool | None
"""One cell of a table or a sheet."""


def relative(path: str) -> str:
    """The path itself, if it is a clean relative POSIX path that stays inside its root.

    Raises:
        ValueError: It is empty, absolute, holds `..`, a backslash or a NUL.
    """
    pure = PurePosixPath(path)
    if not path or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path:
        raise ValueError(f"{path!r} is not a relative path inside the workspace; write it like 'notes/a.txt'")
    return pure.as_posix()


RelativePath: TypeAlias = Annotated[str, AfterValidator(relative)]


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise ValueError(f"not base64: {exc}") from exc
    return text


class Record(BaseModel):
    """Frozen, and strict about field names: a typo in a task file is an error, not a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Item(Record):
    """One thing on disk."""

    path: RelativePath
    """Relative to the shared workspace, or to the server's private state directory."""
    server: str = ""
    """"" for the shared workspace; else the server whose private state directory holds it."""


class TextFile(Item):
    """A UTF-8 text file."""

    text: str


class BinaryFile(Item):
    """Any bytes."""

    base64: Annotated[str, AfterValidator(_base64)]


class Table(Record):
    """A table of a database."""

    name: str
    columns: tuple[str, ...] = Field(min_length=1)
    """Column definitions as in CREATE TABLE: `id INTEGER PRIMARY KEY`."""
    rows: tuple[tuple[Scalar, ...], ...] = ()

    @model_validator(mode="after")
    def _widths(self) -> Table:
        wrong = next((r for r in self.rows if len(r) != len(self.columns)), None)
        if wrong is not None:
            raise ValueError(f"table {self.name}: row {wrong!r} needs {len(self.columns)} values")
        return self


class Database(Item):
    """A SQLite database: the script runs first, then the tables are made and filled in order."""

    script: str = ""
    tables: tuple[Table, ...] = ()


class Commit(Record):
    """One commit on one branch."""

    message: str
    files: dict[str, str | None] = Field(default_factory=dict)
    """Path -> new content; None deletes. Other files stay as in the parent."""
    branch: str = "main"
    start: str = ""
    """For a branch's first commit: the branch that it starts from ("" starts a new root)."""
    author: str = "Ada Moreau"
    email: str = "ada@example.com"


class Repository(Item):
    """A git repository with a work tree at `path`. Commit k is dated `EPOCH` + k hours."""

    commits: tuple[Commit, ...] = Field(min_length=1)
    checkout: str = "main"
    tags: dict[str, str] = Field(default_factory=dict)
    """Tag -> branch whose tip it names."""
    changes: dict[str, str] = Field(default_factory=dict)
    """Uncommitted content that is written over the work tree at the end."""


class Sheet(Record):
    """A worksheet, from cell A1. A string that starts with "=" is a formula."""

    name: str
    rows: tuple[tuple[Scalar, ...], ...] = ()


class Workbook(Item):
    """An Excel workbook."""

    sheets: tuple[Sheet, ...] = Field(min_length=1)


class Setup(Record):
    """Everything that a task lays out."""

    folders: tuple[RelativePath, ...] = ()
    """Empty folders of the workspace."""
    files: tuple[TextFile, ...] = ()
    binaries: tuple[BinaryFile, ...] = ()
    databases: tuple[Database, ...] = ()
    repositories: tuple[Repository, ...] = ()
    workbooks: tuple[Workbook, ...] = ()

    def items(self) -> Iterator[Item]:
        """Every item, in the order in which `lay_out` makes them."""
        yield from self.repositories
        yield from self.databases
        yield from self.workbooks
        yield from self.binaries
        yield from self.files

    @model_validator(mode="after")
    def _no_duplicates(self) -> Setup:
        seen: set[tuple[str, str]] = set()
        for item in self.items():
            if (item.server, item.path) in seen:
                raise ValueError(f"the setup lays out {item.path!r} twice")
            seen.add((item.server, item.path))
        return self


def lay_out(setup: Setup, files_root: Path, state_dir: Callable[[str], Path]) -> None:
    """Write the whole setup. Call it once, before the first server starts.

    Args:
        setup: What to write.
        files_root: The shared workspace (the agent's "/workspace"); made when absent.
        state_dir: The private state directory of a server.

    Raises:
        TaskError: A database script, a repository or a workbook that cannot be made.
        StorageError: The disk is full, or the place cannot be written.
    """
    from atlas_gym.task import database, repository, workbook

    with storage(f"Laying out the task's set-up in {files_root}"):
        files_root.mkdir(parents=True, exist_ok=True)
        touched = {files_root}
        for folder in setup.folders:
            (files_root / folder).mkdir(parents=True, exist_ok=True)
        for item in setup.items():
            root = state_dir(item.server) if item.server else files_root
            target = root / item.path
            touched.add(root / PurePosixPath(item.path).parts[0])
            target.parent.mkdir(parents=True, exist_ok=True)
            match item:
                case Repository():
                    repository.build(item, target)
                case Database():
                    database.build(item, target)
                case Workbook():
                    workbook.build(item, target)
                case BinaryFile():
                    target.write_bytes(base64.b64decode(item.base64))
                case TextFile():
                    target.write_bytes(item.text.encode("utf-8", "surrogatepass"))
                case _:
                    raise TaskError(f"The setup holds a {type(item).__name__}, which nobody can lay out.")
        for top in touched:
            _fix_times(top)


def _fix_times(top: Path) -> None:
    """Set every modification time below `top` to `EPOCH`: servers show them to the agent."""
    for directory, _, names in os.walk(top, topdown=False):
        for name in names:
            os.utime(os.path.join(directory, name), (EPOCH, EPOCH))
        os.utime(directory, (EPOCH, EPOCH))
    if top.is_file():
        os.utime(top, (EPOCH, EPOCH))

"""Laying out: the same setup gives the same bytes, and only inside its roots."""

from __future__ import annotations

import base64
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from atlas_gym.errors import StorageError, TaskError
from atlas_gym.task import database, repository, workbook
from atlas_gym.task.setup import (
    EPOCH,
    BinaryFile,
    Commit,
    Database,
    Repository,
    Setup,
    Sheet,
    Table,
    TextFile,
    Workbook,
    lay_out,
)

EVERYTHING = Setup(
    folders=("empty/inside",),
    files=(
        TextFile(path="notes/a.txt", text="h\u00e9llo\n"),
        TextFile(path="x.json", text="{}", server="pa"),
    ),
    binaries=(BinaryFile(path="raw.bin", base64=base64.b64encode(bytes(range(256))).decode()),),
    databases=(
        Database(
            path="data.db",
            script="CREATE TABLE s (a);\nINSERT INTO s VALUES (1);",
            tables=(
                Table(name="t", columns=("id INTEGER PRIMARY KEY", "x TEXT"), rows=((1, "a"), (2, None))),
            ),
        ),
        Database(path="own/state.db", server="pa", tables=(Table(name="t", columns=("a",)),)),
    ),
    repositories=(
        Repository(
            path="repo",
            commits=(
                Commit(message="one", files={"a.txt": "1\n", "d/b.txt": "b\n"}),
                Commit(message="two\n\nlonger", files={"a.txt": "2\n", "d/b.txt": None}),
                Commit(
                    message="side",
                    files={"c.txt": "c\n"},
                    branch="dev",
                    start="main",
                    author="Bo",
                    email="b@x.y",
                ),
            ),
            tags={"v1": "main"},
            changes={"a.txt": "3\n", "new/n.txt": "n\n"},
        ),
    ),
    workbooks=(Workbook(path="b.xlsx", sheets=(Sheet(name="S", rows=(("x", 1), (None, "=B1*2"))),)),),
)


def laid_out(setup: Setup, root: Path) -> dict[str, bytes]:
    lay_out(setup, root / "files", lambda server: root / "state" / server)
    return {p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.git
def test_two_layouts_are_equal_byte_for_byte(tmp_path: Path) -> None:
    one, two = laid_out(EVERYTHING, tmp_path / "one"), laid_out(EVERYTHING, tmp_path / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    assert {"files/repo/.git/HEAD", "files/data.db", "state/pa/own/state.db", "state/pa/x.json"} <= one.keys()


@pytest.mark.git
def test_everything_is_where_it_should_be(tmp_path: Path) -> None:
    files = laid_out(EVERYTHING, tmp_path)
    root = tmp_path / "files"
    assert (root / "empty/inside").is_dir()
    assert files["files/notes/a.txt"].decode() == "h\u00e9llo\n"
    assert files["files/raw.bin"] == bytes(range(256))
    assert files["files/repo/a.txt"] == b"3\n"
    assert "files/repo/d/b.txt" not in files
    with closing(sqlite3.connect(root / "data.db")) as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == [(1, "a"), (2, None)]
    assert workbook.cells(root / "b.xlsx", "S", formulas=True) == {"A1": "x", "B1": 1, "B2": "=B1*2"}
    assert (root / "notes/a.txt").stat().st_mtime == EPOCH


@pytest.mark.git
def test_the_repository_is_what_git_says(tmp_path: Path) -> None:
    laid_out(EVERYTHING, tmp_path)

    def git(*arguments: str) -> str:
        where = ["git", "-C", str(tmp_path / "files/repo"), "-c", "safe.directory=*"]
        return subprocess.run([*where, *arguments], check=True, capture_output=True, text=True).stdout

    assert git("log", "--format=%s|%an|%ad", "--date=iso-strict", "main") == (
        "two|Ada Moreau|2024-01-01T01:00:00+00:00\none|Ada Moreau|2024-01-01T00:00:00+00:00\n"
    )
    assert git("status", "--porcelain") == " M a.txt\n?? new/\n"
    assert git("fsck", "--strict") == ""
    assert git("rev-parse", "v1") == git("rev-parse", "main")
    with repository.history(tmp_path / "files/repo") as history:
        assert history.current() == "main"
        assert set(history.branches()) == {"main", "dev"}
        assert history.paths(history.branches()["dev"]) == ["a.txt", "c.txt"]


@pytest.mark.git
def test_the_users_own_git_configuration_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = laid_out(EVERYTHING, tmp_path / "plain")
    config = tmp_path / "home/.gitconfig"
    config.parent.mkdir()
    config.write_text("[user]\n\tname = Me\n[core]\n\tautocrlf = true\n[init]\n\tdefaultBranch = trunk\n")
    monkeypatch.setenv("HOME", str(config.parent))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert laid_out(EVERYTHING, tmp_path / "again") == plain


def test_setup_survives_json() -> None:
    assert Setup.model_validate_json(EVERYTHING.model_dump_json()) == EVERYTHING


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../up", "a/../../up", "a\\b", "a\0b"])
def test_paths_that_leave_the_workspace(path: str) -> None:
    with pytest.raises(ValidationError, match="relative path"):
        TextFile(path=path, text="")


def test_what_cannot_be_made_says_why(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"data\.db.*Correct its SQL"):
        laid_out(Setup(databases=(Database(path="data.db", script="CREATE nonsense;"),)), tmp_path)
    bad = Repository(path="r", commits=(Commit(message="m", branch="..", files={}),))
    with pytest.raises(TaskError, match="repository 'r' cannot be made"):
        laid_out(Setup(repositories=(bad,)), tmp_path)


def test_mistakes_in_the_data_are_errors() -> None:
    with pytest.raises(ValidationError, match="needs 2 values"):
        Table(name="t", columns=("a", "b"), rows=((1,),))
    with pytest.raises(ValidationError, match="twice"):
        Setup(files=(TextFile(path="a", text=""), TextFile(path="./a", text="")))
    with pytest.raises(ValidationError, match="not base64"):
        BinaryFile(path="a", base64="?")
    with pytest.raises(ValidationError, match="Extra inputs"):
        TextFile.model_validate({"path": "a", "text": "", "txt": ""})


def test_a_disk_that_takes_nothing_is_the_disk_s_fault(tmp_path: Path) -> None:
    item = Database(path="data.db", tables=(Table(name="t", columns=("a TEXT",), rows=(("x",),)),))
    with pytest.raises(StorageError, match="cannot be written"):
        database.build(item, tmp_path / "missing" / "data.db")
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Laying out"):
        lay_out(Setup(files=(TextFile(path="a.txt", text="x"),)), tmp_path / "file", tmp_path.joinpath)

"""Checks of what lies on disk, on good, bad and hostile evidence."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from atlas_gym.task.checks import state_checks
from atlas_gym.task.evidence import Evidence
from atlas_gym.task.kinds import (
    Check,
    FileCheck,
    GitCheck,
    GraphCheck,
    SqliteCheck,
    UnchangedCheck,
    WorkbookCheck,
)
from atlas_gym.task.model import Task
from atlas_gym.task.setup import (
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
from atlas_gym.types import CheckResult

pytestmark = pytest.mark.git
"""The evidence of every test here holds a repository."""

GRAPH = "\n".join(
    json.dumps(line)
    for line in (
        {"type": "entity", "name": "Ann", "entityType": "person", "observations": ["likes tea"]},
        {"type": "entity", "name": "Bob", "entityType": "person", "observations": []},
        {"type": "relation", "from": "Ann", "to": "Bob", "relationType": "knows"},
    )
)
SETUP = Setup(
    files=(
        TextFile(path="a.txt", text="one\n  two  \n\n"),
        TextFile(path="d/c.json", text='{"n": 1.5, "l": [1]}'),
        TextFile(path="memory.jsonl", text=GRAPH),
    ),
    databases=(
        Database(path="data.db", tables=(Table(name="t", columns=("id", "x"), rows=((1, 1.5), (2, None))),)),
    ),
    repositories=(
        Repository(
            path="repo",
            commits=(
                Commit(message="first", files={"f.txt": "1\n"}),
                Commit(message="second\n\nbecause", files={"f.txt": "2\n"}),
                Commit(message="other", files={"g.txt": "g\n"}, branch="dev", start="main"),
            ),
        ),
    ),
    workbooks=(Workbook(path="b.xlsx", sheets=(Sheet(name="S", rows=(("x", 2), ("y", "=B1"))),)),),
)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    lay_out(SETUP, tmp_path / "files", lambda server: tmp_path / "state" / server)
    return tmp_path / "files"


def result(check: Check, files: Path) -> CheckResult:
    task = Task(
        id="s/t",
        suite="s",
        difficulty="easy",
        prompt="p",
        servers=("x",),
        setup=SETUP,
        gold="answer('')",
        checks=(check, FileCheck(name="share", path="a.txt")),
    )
    return state_checks(task, Evidence("", files, lambda server: files.parent / "state" / server))[0]


PASSING: list[Check] = [
    FileCheck(name="c", path="a.txt", equals="one\n  two"),
    FileCheck(name="c", path="a.txt", contains=("ONE TWO",), lacks=("three",)),
    FileCheck(name="c", path="a.txt", lines=("two", "one"), only_lines=True),
    FileCheck(name="c", path="nothing", exists=False),
    FileCheck(name="c", path="d/c.json", expected={"n": 1.5, "l[0]": 1}, number=1.5),
    SqliteCheck(name="c", path="data.db", query="SELECT x, id FROM t", rows=((None, 2), (1.5, 1))),
    SqliteCheck(
        name="c", path="data.db", query="SELECT id FROM t ORDER BY id", rows=((1,), (2,)), ordered=True
    ),
    SqliteCheck(name="c", path="data.db", query="SELECT value FROM json_each('[7]')", rows=((7,),)),
    WorkbookCheck(
        name="c", path="b.xlsx", sheet="S", cells={"A1": "X", "B1": 2, "C1": None}, formulas=("B2",)
    ),
    GitCheck(name="c", path="repo", current="main", commits=2, tip="second", message=("because",)),
    GitCheck(name="c", path="repo", branch="dev", commits=3, files={"f.txt": "2", "g.txt": "g\n", "h": None}),
    GitCheck(name="c", path="repo", branch="dev", contains={"g.txt": ("G",)}),
    GitCheck(name="c", path="repo", branch="gone", exists=False),
    GraphCheck(
        name="c", path="memory.jsonl", entity="Ann", entity_type="person", observations=("Likes  tea",)
    ),
    GraphCheck(name="c", path="memory.jsonl", relations=(("Ann", "knows", "Bob"),)),
    GraphCheck(
        name="c", path="memory.jsonl", entity="Cid", exists=False, no_relations=(("Bob", "knows", "Ann"),)
    ),
    UnchangedCheck(name="c", of="file", path="a.txt"),
    UnchangedCheck(name="c", of="folder", path="d"),
    UnchangedCheck(name="c", of="query", path="data.db", query="SELECT * FROM t"),
    UnchangedCheck(name="c", of="sheet", path="b.xlsx", sheet="S"),
    UnchangedCheck(name="c", of="branch", path="repo", branch="main"),
    UnchangedCheck(name="c", of="graph", path="memory.jsonl"),
]

FAILING: list[tuple[Check, str]] = [
    (FileCheck(name="c", path="nothing"), "there is no file"),
    (FileCheck(name="c", path="d"), "there is no file"),
    (FileCheck(name="c", path="a.txt", exists=False), "still there"),
    (FileCheck(name="c", path="a.txt", equals="two"), "another content"),
    (FileCheck(name="c", path="a.txt", contains=("three",)), "does not contain"),
    (FileCheck(name="c", path="a.txt", lacks=("two",)), "contains"),
    (FileCheck(name="c", path="a.txt", lines=("three",)), "no line"),
    (FileCheck(name="c", path="a.txt", lines=("one",), only_lines=True), "other lines"),
    (FileCheck(name="c", path="a.txt", expected={"n": 1}), "not JSON"),
    (FileCheck(name="c", path="d/c.json", expected={"m": 1}), "missing"),
    (FileCheck(name="c", path="d/c.json", number=7), "number is not in it"),
    (SqliteCheck(name="c", path="nothing.db", query="SELECT 1", rows=()), "no database"),
    (SqliteCheck(name="c", path="a.txt", query="SELECT * FROM t", rows=()), "not a database"),
    (SqliteCheck(name="c", path="data.db", query="SELECT * FROM gone", rows=()), "no such table"),
    (SqliteCheck(name="c", path="data.db", query="SELECT id FROM t", rows=((1,),)), "2 rows, not 1"),
    (SqliteCheck(name="c", path="data.db", query="SELECT id FROM t", rows=((1,), (3,))), "other rows"),
    (
        SqliteCheck(name="c", path="data.db", query="DELETE FROM t RETURNING id", rows=((1,), (2,))),
        "readonly|query_only",
    ),
    (SqliteCheck(name="c", path="data.db", query="ATTACH ':memory:' AS other", rows=()), "authorized|denied"),
    (WorkbookCheck(name="c", path="a.txt", sheet="S", cells={}), "cannot be read"),
    (WorkbookCheck(name="c", path="b.xlsx", sheet="T", cells={}), "no sheet"),
    (WorkbookCheck(name="c", path="b.xlsx", sheet="S", cells={"B1": 3}), "not as expected"),
    (WorkbookCheck(name="c", path="b.xlsx", sheet="S", cells={}, formulas=("B1",)), "no formula"),
    (GitCheck(name="c", path="d"), "no git repository"),
    (GitCheck(name="c", path="repo", current="dev"), "checked out"),
    (GitCheck(name="c", path="repo", branch="gone"), "no branch"),
    (GitCheck(name="c", path="repo", branch="dev", exists=False), "is there"),
    (GitCheck(name="c", path="repo", commits=1), "2 commits"),
    (GitCheck(name="c", path="repo", tip="first"), "the tip is"),
    (GitCheck(name="c", path="repo", message=("why",)), "does not say"),
    (GitCheck(name="c", path="repo", files={"f.txt": "1"}), "f.txt at the tip"),
    (GitCheck(name="c", path="repo", files={"f.txt": None}), "f.txt at the tip"),
    (GitCheck(name="c", path="repo", contains={"f.txt": ("3",)}), "does not contain"),
    (GraphCheck(name="c", path="memory.jsonl", entity="Cid"), "no entity"),
    (GraphCheck(name="c", path="memory.jsonl", entity="Ann", exists=False), "still there"),
    (GraphCheck(name="c", path="memory.jsonl", entity="Ann", entity_type="cat"), "of type"),
    (GraphCheck(name="c", path="memory.jsonl", entity="Ann", observations=("tea",)), "no observation"),
    (GraphCheck(name="c", path="memory.jsonl", entity="Ann", lacks=("likes tea",)), "still has"),
    (GraphCheck(name="c", path="memory.jsonl", relations=(("Bob", "knows", "Ann"),)), "no relation"),
    (GraphCheck(name="c", path="memory.jsonl", no_relations=(("Ann", "knows", "Bob"),)), "is there"),
    (GraphCheck(name="c", path="a.txt", entity="Ann"), "cannot be read"),
]


@pytest.mark.parametrize("check", PASSING, ids=str)
def test_checks_that_hold(check: Check, files: Path) -> None:
    found = result(check, files)
    assert (found.passed, found.detail, found.error) == (True, "", "")


@pytest.mark.parametrize(("check", "why"), FAILING, ids=str)
def test_checks_that_fail_say_why(check: Check, why: str, files: Path) -> None:
    found = result(check, files)
    assert not found.passed
    assert not found.error
    assert any(part in found.detail for part in why.split("|")), found.detail


@pytest.mark.parametrize(
    "check", [c for c in PASSING if not (isinstance(c, FileCheck) and not c.exists)], ids=str
)
def test_an_emptied_workspace_fails_and_never_raises(check: Check, files: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    found = result(check, empty)
    assert not found.passed or isinstance(check, GitCheck | GraphCheck)
    assert not found.error


def test_unchanged_sees_every_change(files: Path) -> None:
    (files / "a.txt").write_text("one\n")
    (files / "d/extra").touch()
    with closing(sqlite3.connect(files / "data.db")) as connection, connection:
        connection.execute("UPDATE t SET x = 9 WHERE id = 1")
    (files / "memory.jsonl").write_text(GRAPH.replace("tea", "rum"))
    (files / "repo/.git/refs/heads/main").unlink()
    checks: list[Check] = [c for c in PASSING if isinstance(c, UnchangedCheck) and c.of != "sheet"]
    assert [result(c, files).detail for c in checks] == [f"{c.path} was changed" for c in checks]  # type: ignore[union-attr]


def test_what_may_change_may(files: Path) -> None:
    (files / "memory.jsonl").write_text(GRAPH.replace("tea", "rum"))
    (files / "d/extra").touch()
    assert result(
        UnchangedCheck(name="c", of="graph", path="memory.jsonl", except_for=("Ann",)), files
    ).passed
    assert result(UnchangedCheck(name="c", of="folder", path="d", except_for=("extra",)), files).passed


def test_links_are_not_followed(files: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "a.txt").write_text("one\n  two\n")
    (files / "a.txt").unlink()
    (files / "a.txt").symlink_to(secret / "a.txt")
    (files / "linked").symlink_to(secret)
    for path in ("a.txt", "linked/a.txt"):
        assert "link" in result(FileCheck(name="c", path=path, equals="one\n  two"), files).detail
    (files / "data.db").rename(secret / "data.db")
    (files / "data.db").symlink_to(secret / "data.db")
    assert not result(PASSING[5], files).passed


def test_a_journal_that_a_stopped_server_left_is_read(files: Path) -> None:
    connection = sqlite3.connect(files / "data.db")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("INSERT INTO t VALUES (3, 0)")
    connection.commit()
    copy = files.parent / "copy"
    copy.mkdir()
    for name in ("data.db", "data.db-wal"):
        (copy / name).write_bytes((files / name).read_bytes())
    connection.close()
    check = SqliteCheck(name="c", path="data.db", query="SELECT count(*) FROM t", rows=((3,),))
    assert result(check, copy).passed
    assert (copy / "data.db-wal").exists()


def test_an_endless_view_ends(files: Path) -> None:
    with closing(sqlite3.connect(files / "data.db")) as connection, connection:
        connection.execute("DROP TABLE t")
        endless = (
            "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, id AS x FROM n"
        )
        connection.execute(f"CREATE VIEW t AS {endless}")
    count = SqliteCheck(name="c", path="data.db", query="SELECT max(id) FROM t", rows=((1,),))
    assert "interrupted" in result(count, files).detail
    rows = SqliteCheck(name="c", path="data.db", query="SELECT id FROM t", rows=((1,),))
    assert "more than" in result(rows, files).detail


def test_a_workbook_that_unpacks_to_too_much(files: Path) -> None:
    with zipfile.ZipFile(files / "b.xlsx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/workbook.xml", bytes(80 * 1024 * 1024))
    assert (
        "unpacks to more" in result(WorkbookCheck(name="c", path="b.xlsx", sheet="S", cells={}), files).detail
    )


def test_a_hostile_repository_runs_nothing(files: Path) -> None:
    git_dir = files / "repo/.git"
    trap = files / "sprung"
    script = files / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {trap}\n")
    script.chmod(0o755)
    with (git_dir / "config").open("a") as config:
        config.write(f"[core]\n\tfsmonitor = {script}\n\tpager = {script}\n\tsshCommand = {script}\n")
        config.write(
            f'[filter "x"]\n\tclean = {script}\n\tsmudge = {script}\n[alias]\n\tcat-file = !{script}\n'
        )
        config.write("[include]\n\tpath = /dev/zero\n")
    (git_dir / "hooks").mkdir()
    for hook in ("post-checkout", "reference-transaction"):
        (git_dir / "hooks" / hook).write_text(script.read_text())
        (git_dir / "hooks" / hook).chmod(0o755)
    (git_dir / "objects/info").mkdir(exist_ok=True)
    (git_dir / "objects/info/alternates").write_text("/etc\n")
    (git_dir / "commondir").write_text("/etc\n")
    os.mkfifo(git_dir / "refs/heads/pipe")
    (git_dir / "refs/heads/link").symlink_to("/etc/passwd")
    assert result(
        GitCheck(name="c", path="repo", commits=2, tip="second", files={"f.txt": "2"}), files
    ).passed
    assert not trap.exists()


def test_a_git_directory_elsewhere_is_no_repository(files: Path) -> None:
    (files / "repo/.git").rename(files / "elsewhere")
    (files / "repo/.git").write_text(f"gitdir: {files / 'elsewhere'}\n")
    assert "no git repository" in result(GitCheck(name="c", path="repo"), files).detail


def test_a_machine_without_git_is_an_error_of_the_machine(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(files))
    found = result(GitCheck(name="c", path="repo"), files)
    assert not found.passed
    assert "Install it" in found.error


def test_an_agents_commit_is_seen(files: Path) -> None:
    (files / "repo/f.txt").write_text("3\n")
    identity = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    subprocess.run(
        ["git", "-c", "safe.directory=*", "commit", "-qam", "third"],
        check=True,
        cwd=files / "repo",
        env={**os.environ, **identity},
    )
    assert result(GitCheck(name="c", path="repo", commits=3, tip="third", files={"f.txt": "3"}), files).passed

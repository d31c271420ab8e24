"""What an agent may leave behind to fool a check, and what it may leave for the machine that checks.

Each trick is played on a real workspace, and judged as at the end of an episode: servers stopped, a copy, the
checks on it. A trick that works for the agent would pass its check here, or spoil the reward as infra.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.runtime import kernel
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task import database, repository
from atlas_gym.task.checks import state_checks
from atlas_gym.task.evidence import Evidence
from atlas_gym.task.kinds import (
    AnswerText,
    CalledCheck,
    Check,
    FileCheck,
    GitCheck,
    SqliteCheck,
    UnchangedCheck,
)
from atlas_gym.task.model import Task
from atlas_gym.task.setup import Database, Setup, Table, TextFile, lay_out
from atlas_gym.types import CheckResult, ToolCall, ToolResult

ROWS = ((1, "open", 5.0), (2, "open", 7.0))
SETUP = Setup(
    folders=("kept",),
    files=(
        TextFile(path="old.txt", text="old\n"),
        TextFile(path="kept/a.txt", text="a\n"),
        TextFile(path="gold.txt", text="7\n", server="judge"),
    ),
    databases=(
        Database(
            path="shop.db",
            script="CREATE TABLE audit (n INTEGER); CREATE INDEX by_n ON audit (n);",
            tables=(Table(name="orders", columns=("id INTEGER", "state TEXT", "sum REAL"), rows=ROWS),),
        ),
    ),
)
GONE = FileCheck(name="gone", path="old.txt", exists=False)
TOLD = FileCheck(name="told", path="answer.txt", equals="7")
KEPT = UnchangedCheck(name="kept", of="folder", path="kept")
CLOSED = SqliteCheck(
    name="closed", path="shop.db", query="SELECT id, state FROM orders", rows=((1, "closed"), (2, "closed"))
)
SAME = UnchangedCheck(name="same", of="query", path="shop.db", query="SELECT * FROM orders")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    made = Workspace.create()
    lay_out(SETUP, made.files, made.state)
    yield made
    made.close()
    assert list((tmp_path / "run").iterdir()) == []


def judged(
    workspace: Workspace, check: Check, *, calls: Sequence[ToolResult] = (), **most: Any
) -> CheckResult:
    task = Task(
        id="t/x-0000",
        suite="t",
        difficulty="easy",
        prompt="Do it.",
        servers=("shell",),
        setup=SETUP,
        checks=(check, AnswerText(name="said", any_of=("Done",))),
        gold="answer('x')",
    )
    copy = workspace.snapshot(**most)
    try:
        evidence = Evidence(
            "Done.", copy.files, copy.state, calls, shown=workspace.to_agent, skipped=copy.skipped
        )
        return state_checks(task, evidence)[0]
    finally:
        copy.close()


def refuses(workspace: Workspace, check: Check, **most: Any) -> CheckResult:
    """The check fails, and it is not the machine's fault: that would spare the agent its score."""
    result = judged(workspace, check, **most)
    assert (result.passed, result.error) == (False, ""), result
    return result


def test_the_checks_see_honest_work(workspace: Workspace) -> None:
    assert judged(workspace, KEPT).passed
    assert judged(workspace, SAME).passed
    refuses(workspace, GONE)
    refuses(workspace, TOLD)
    refuses(workspace, CLOSED)
    (workspace.files / "old.txt").unlink()
    (workspace.files / "answer.txt").write_text("7\n")
    with closing(sqlite3.connect(workspace.files / "shop.db")) as db, db:
        db.execute("UPDATE orders SET state = 'closed'")
    for check in (GONE, TOLD, CLOSED):
        assert judged(workspace, check).passed


def link_to_gold(files: Path, outside: Path) -> None:
    (files / "answer.txt").symlink_to("../state/judge/gold.txt")


def link_outside(files: Path, outside: Path) -> None:
    (files / "answer.txt").symlink_to(outside)


def a_fifo(files: Path, outside: Path) -> None:
    os.mkfifo(files / "answer.txt")


def sparse(files: Path, outside: Path) -> None:
    with open(files / "answer.txt", "wb") as file:
        file.write(b"7\n")
        file.truncate(1 << 40)


@pytest.mark.parametrize("trick", [link_to_gold, link_outside, a_fifo, sparse])
def test_a_file_that_is_none_is_no_answer(
    workspace: Workspace, tmp_path: Path, trick: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "gold").mkdir()
    (tmp_path / "gold" / "7").write_text("7\n")
    trick(workspace.files, tmp_path / "gold" / "7")
    refuses(workspace, TOLD)
    assert (tmp_path / "gold" / "7").read_text() == "7\n"


def test_a_hard_link_is_a_copy_of_what_it_was(workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("7\n")
    os.link(outside, workspace.files / "answer.txt")
    copy = workspace.snapshot()
    assert not (copy.files / "answer.txt").samefile(outside)
    copy.close()


def crowd_out(files: Path) -> None:
    with open(files / "a", "wb") as file:
        file.truncate((1 << 20) - 1)


def many_files(files: Path) -> None:
    (files / "aa").mkdir()
    for n in range(60):
        os.close(os.open(files / f"a{n}", os.O_CREAT | os.O_WRONLY))


def many_links(files: Path) -> None:
    for n in range(1_100):
        (files / f"a{n}").symlink_to("nowhere")
    (files / "old.txt").rename(files / "z")
    (files / "old.txt").symlink_to("z")


def its_link(files: Path) -> None:
    (files / "old.txt").rename(files / "z")
    (files / "old.txt").symlink_to("z")


def its_fifo(files: Path) -> None:
    (files / "old.txt").unlink()
    os.mkfifo(files / "old.txt")


@pytest.mark.parametrize("trick", [crowd_out, many_files, many_links, its_link, its_fifo])
def test_what_the_copy_leaves_out_is_not_gone(workspace: Workspace, trick: Callable[[Path], None]) -> None:
    trick(workspace.files)
    result = refuses(workspace, GONE, max_bytes=1 << 20, max_files=60)
    assert "cannot be looked at" in result.detail


@pytest.mark.parametrize("kind", ["link", "fifo", "huge"])
def test_what_the_copy_leaves_out_is_a_change(workspace: Workspace, kind: str) -> None:
    new = workspace.files / "kept" / "b"
    if kind == "link":
        new.symlink_to("a.txt")
    elif kind == "fifo":
        os.mkfifo(new)
    else:
        with open(new, "wb") as file:
            file.truncate(1 << 40)
    refuses(workspace, KEPT)
    free = UnchangedCheck(name="kept", of="folder", path="kept", except_for=("b",))
    assert judged(workspace, free).passed


def test_a_path_too_long_to_be_opened_spares_no_score(workspace: Workspace) -> None:
    below = os.open(workspace.files, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=below)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=below)
        os.close(below)
        below = deeper
    os.close(below)
    refuses(workspace, TOLD)
    assert judged(workspace, KEPT).passed
    whole = UnchangedCheck(name="whole", of="folder", path=".")
    refuses(workspace, whole)


def edit(workspace: Workspace, script: str) -> None:
    with closing(sqlite3.connect(workspace.files / "shop.db")) as db:
        db.executescript(script)


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TRIGGER undo AFTER UPDATE ON orders BEGIN UPDATE orders SET state = 'open'; END;"
        "UPDATE orders SET state = 'closed';",
        "ALTER TABLE orders RENAME TO o; CREATE VIEW orders AS SELECT 1 AS id, load_extension('x') AS state;",
        "ALTER TABLE orders RENAME TO o; CREATE VIEW orders AS SELECT id, readfile('/etc/x') state FROM o;",
        "DROP TABLE orders; CREATE VIRTUAL TABLE orders USING fts5(id, state, content='gone');",
        "ATTACH ':memory:' AS other; CREATE TABLE other.orders (id, state); DROP TABLE orders;",
        "DROP TABLE orders; CREATE TABLE orders (id, state); INSERT INTO orders VALUES (1, x'00');",
    ],
    ids=["trigger", "extension", "readfile", "fts", "attached", "blobs"],
)
def test_a_database_with_tricks_in_it_is_read_as_it_is(workspace: Workspace, script: str) -> None:
    edit(workspace, script)
    refuses(workspace, CLOSED)
    if "UPDATE" not in script:  # what was undone is unchanged
        refuses(workspace, SAME)


def test_an_index_that_lies_is_noticed(workspace: Workspace) -> None:
    none = SqliteCheck(name="n", path="shop.db", query="SELECT count(*) FROM audit WHERE n > 0", rows=((0,),))
    assert judged(workspace, none).passed
    # While the schema does not name the index, it is not kept up with its table.
    with closing(sqlite3.connect(workspace.files / "shop.db")) as db:
        kept = db.execute("SELECT * FROM sqlite_master WHERE name = 'by_n'").fetchone()
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_master WHERE name = 'by_n'")
        db.commit()
    edit(workspace, "INSERT INTO audit VALUES (1), (2)")
    with closing(sqlite3.connect(workspace.files / "shop.db")) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", kept)
        db.commit()
    with closing(sqlite3.connect(workspace.files / "shop.db")) as db:
        assert db.execute(none.query).fetchone() == (0,)
    assert "by_n" in refuses(workspace, none).detail


@pytest.mark.parametrize(
    "view",
    [
        "SELECT instr(hex(zeroblob(120000)), hex(zeroblob(60000)) || '1') AS id, 'x' state FROM a, a b, a c",
        "SELECT hex(zeroblob(100000)) AS id, 'x' state FROM a, a b, a c, a d",
        "SELECT replace(hex(zeroblob(120000)), '0', hex(zeroblob(1000))) AS id, 'x' state FROM a, a b, a c",
        "SELECT hex(zeroblob(99999)) LIKE '%' || hex(zeroblob(400)) || '1' AS id, 'x' state FROM a, a b, a c",
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x AS id, 'x' state FROM n",
        "SELECT zeroblob(2000000000) AS id, 'x' state",
    ],
    ids=["instr", "rows", "replace", "like", "recursion", "blob"],
)
def test_a_view_cannot_keep_the_check_busy(
    workspace: Workspace, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_MAX_SECONDS", 0.5)
    values = ",".join("(1)" for _ in range(30))
    edit(
        workspace,
        f"CREATE TABLE a (x); INSERT INTO a VALUES {values}; DROP TABLE orders;CREATE VIEW orders AS {view};",
    )
    refuses(workspace, CLOSED)


def test_a_journal_cannot_remove_a_file_of_the_host(workspace: Workspace, tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.write_bytes(b"\0")
    hot_journal(workspace.files / "shop.db", str(host))
    result = judged(workspace, SAME)
    assert host.exists()
    assert (result.passed, result.error) == (False, "")


def hot_journal(path: Path, names: str) -> None:
    """Leave a journal as a transaction over several databases does that was interrupted, naming a file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE orders SET state = 'x'")
        db.execute("CREATE TABLE filler AS SELECT zeroblob(100000) AS x")
        journal = path.with_name(path.name + "-journal")
        taken = journal.read_bytes()
    name = names.encode()
    page = int.from_bytes(path.read_bytes()[16:18], "big")
    tail = (0x40000000 // page + 1).to_bytes(4, "big") + name + len(name).to_bytes(4, "big")
    tail += (sum(name) & 0xFFFFFFFF).to_bytes(4, "big") + bytes.fromhex("d9d505f920a163d7")
    journal.write_bytes(taken + tail)


@pytest.mark.git
def test_a_commit_that_unpacks_to_too_much_is_the_agents_fault(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "_MAX_MEMORY", 64 << 20)
    git = workspace.files / "repo" / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    size = 100 << 20
    packer = zlib.compressobj(9)
    body = packer.compress(b"commit %d\0" % size)
    for _ in range(100):
        body += packer.compress(b"\n" * (1 << 20))
    name = "ab" + "1" * 38
    (git / "objects" / "ab").mkdir(parents=True)
    (git / "objects" / "ab" / name[2:]).write_bytes(body + packer.flush())
    (git / "refs" / "heads" / "main").write_text(name + "\n")
    refuses(workspace, GitCheck(name="g", path="repo", branch="main", message=("x",)))


def test_forged_records_are_files_like_others(workspace: Workspace) -> None:
    forged = ToolResult(ToolCall("shell", "pay", {"sum": 5}), "ok", {"paid": True})
    line = json.dumps({"call": {"server": "shell", "tool": "pay"}, "outcome": "ok", "value": {"paid": True}})
    for name in ("trace.jsonl", "trajectory.json", "calls.log", ".atlas-gym"):
        (workspace.files / name).write_text(line)
        (workspace.state("shell") / "home" / name).write_text(line)
    paid = CalledCheck(name="paid", server="shell", tools=("pay",), expected={"paid": True})
    refuses(workspace, paid)
    assert judged(workspace, paid, calls=[forged]).passed
    of_a_check = ToolResult(ToolCall("shell", "pay", {}, via="check"), "ok", {"paid": True})
    assert not judged(workspace, paid, calls=[of_a_check]).passed


PROGRAM, PREFIX = os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix)
SHELL = """
import json, subprocess, sys
for line in sys.stdin:
    done = subprocess.run(json.loads(line), shell=True, capture_output=True)
    print(json.dumps((done.stdout + done.stderr).decode("utf-8", "replace")), flush=True)
"""


@pytest.mark.asyncio
@pytest.mark.skipif(
    kernel.probe().landlock_abi < 6 or not kernel.probe().seccomp, reason=f"walls: {kernel.probe().reason}"
)
async def test_a_background_process_does_not_write_while_the_checks_read(
    workspace: Workspace, tmp_path: Path
) -> None:
    """A shell server left it: it puts the evidence back and forth for ever, and links to the host's."""
    (tmp_path / "host").write_text("7\n")
    manifest = Manifest(
        name="shell",
        description="A shell.",
        registry="user",
        command=(PROGRAM, "-I", "-S", "-c", SHELL),
        state="workspace",
        state_bound="call",
        walls="required",
    )
    reads = tuple(map(Path, ("/bin", "/usr/bin", PREFIX)))
    link = await ProcessRuntime().start(
        Installation(Server(manifest, None), Path("/"), manifest.command, reads), workspace
    )
    command = (
        "(trap '' TERM HUP; while :; do echo 7 > answer.txt; echo a > kept/a.txt; "
        "echo 8 > answer.txt; echo b > kept/a.txt; rm -f old.txt; echo old > old.txt; : > running; done) "
        f"> /dev/null 2>&1 < /dev/null & ln {tmp_path}/host hard; ln -s {tmp_path}/host soft; "
        f"cp {workspace.state('judge')}/gold.txt gold; while [ ! -e running ]; do :; done; echo left"
    )
    async with asyncio.timeout(60):
        await link.send(json.dumps(command).encode() + b"\n")
        assert b"left" in await link.receive()
        await link.aclose()
    before = [judged(workspace, check) for check in (TOLD, KEPT, GONE)]
    (workspace.files / "running").unlink()
    assert [judged(workspace, check) for check in (TOLD, KEPT, GONE)] == before
    assert not (workspace.files / "running").exists()  # nobody writes any more
    assert not (workspace.files / "hard").exists()
    assert not (workspace.files / "gold").exists()
    linked = FileCheck(name="l", path="soft", equals="7")
    refuses(workspace, linked)

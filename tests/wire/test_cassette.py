"""The cassette's file, and what is found in it."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.errors import StorageError
from atlas_gym.types import ToolCall
from atlas_gym.wire.cassette import Answer, Cassette, CassetteError, End, ServerRecord, Start
from atlas_gym.wire.cassette_file import FORMAT
from atlas_gym.wire.cassette_keys import Issued, Track
from atlas_gym.wire.cassette_near import missing_call, missing_end, missing_server
from atlas_gym.wire.cassette_tree import read_tree, write_tree
from atlas_gym.wire.values import Blob

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)
READS = ("get", "now")


def track(setup: str = "setup", digest: str = "digest") -> Track:
    return Track(setup, lambda name: f"{digest} of {name}", lambda _, tool: tool in READS)


def call(tool: str, /, **arguments: Any) -> ToolCall:
    return ToolCall("box", tool, arguments)


@pytest.fixture
def cassette(tmp_path: Path) -> Cassette:
    return Cassette.open(tmp_path / "one.cassette", create=True)


def record(cassette: Cassette, label: str, *steps: tuple[ToolCall, Any], setup: str = "setup") -> int:
    """A whole take: each call with its value."""
    calls = track(setup)
    take = cassette.begin(setup, "suite/task-1", label)
    for made, value in steps:
        cassette.add_call(take, calls.issue(made), Answer("ok", value))
    cassette.end(take, calls.history, End("/run/ep-1", {"files": None, "files/a.txt": label.encode()}))
    return take


def found(cassette: Cassette, issued: Issued, label: str = "", take: int | None = None) -> Any:
    hit = cassette.find(issued, take, label)
    return hit[1].value if hit else None


@given(JSON, st.text(st.characters(exclude_categories=["Cs"])))
def test_values_come_back_as_they_went(
    tmp_path_factory: pytest.TempPathFactory, value: Any, text: str
) -> None:
    path = tmp_path_factory.mktemp("c") / "x.cassette"
    cassette = Cassette.open(path, create=True)
    blob = Blob("blob:0123456789abcdef", "image/png", "aGk=", 2)
    answer = Answer("tool_error", value, text, "timeout", (blob,), 2)
    take = cassette.begin("setup", "suite/task-1", "")
    cassette.add_call(take, track().issue(call("get")), answer)
    hit = Cassette.open(path).find(track().issue(call("get")), None, "")
    assert hit == (take, answer)
    assert hit is not None
    assert repr(hit[1]) == repr(answer)  # and keys of objects in their order, 1.0 not 1


def test_the_nth_same_call_has_the_nth_answer_or_the_last(cassette: Cassette) -> None:
    record(cassette, "", (call("now"), 1), (call("now"), 2), (call("put"), 3), (call("now"), 4))
    calls = track()
    assert [found(cassette, calls.issue(call("now"))) for _ in range(3)] == [1, 2, 2]
    calls.issue(call("put"))
    assert [found(cassette, calls.issue(call("now"))) for _ in range(2)] == [4, 4]


def test_of_several_takes_ones_own_goes_first_then_the_label_then_whole_then_new(cassette: Cassette) -> None:
    first = record(cassette, "a", (call("put"), "a1"), (call("get"), "a2"))
    second = record(cassette, "a", (call("put"), "b1"))
    record(cassette, "b", (call("put"), "c1"))
    broken = cassette.begin("setup", "suite/task-1", "b")
    cassette.add_call(broken, track().issue(call("put")), Answer("ok", "d1"))
    put = track().issue(call("put"))
    assert found(cassette, put, "a") == "b1"
    assert found(cassette, put, "b") == "c1"
    assert found(cassette, put, "a", first) == "a1"
    assert found(cassette, put, "b", broken) == "d1"
    calls = track()
    calls.issue(call("put"))
    assert found(cassette, calls.issue(call("get")), "a", second) == "a2"
    cassette.drop(first)
    assert found(cassette, calls.issue(call("get")), "a", second) is None


def test_the_same_messages_go_before_everything_else(cassette: Cassette) -> None:
    def said(*messages: str) -> Track:
        calls = track()
        for message in messages:
            calls.hear(message)
        return calls

    takes = {}
    for text in ("first", "second"):
        takes[text] = cassette.begin("setup", "suite/task-1", text)
        cassette.add_call(takes[text], said(text).issue(call("put")), Answer("ok", text))
    first = said("first").issue(call("put"))
    assert first.key == track().issue(call("put")).key
    assert found(cassette, first, "second", takes["second"]) == "first"
    assert found(cassette, said("third").issue(call("put")), "first") == "first"
    assert found(cassette, said("first", "second").issue(call("put")), "") == "second"


def test_ends_and_starts_are_kept(cassette: Cassette) -> None:
    take = record(cassette, "a", (call("put"), 1))
    calls = track()
    assert cassette.find_end("setup", calls.history, None, "a") is None
    issued = calls.issue(call("put"))
    end = cassette.find_end("setup", calls.history, None, "a")
    assert end == End("/run/ep-1", {"files": None, "files/a.txt": b"a"})
    assert cassette.find_end("other", calls.history, None, "a") is None
    assert cassette.start_of(take, "box") is None
    cassette.add_call(take, issued, Answer("ok"), {"box": Start("box==1", "landlock", "fork")})
    assert cassette.start_of(take, "box") == Start("box==1", "landlock", "fork")


def test_a_copy_is_the_same_cassette_wherever_it_lies(cassette: Cassette, tmp_path: Path) -> None:
    record(cassette, "a", (call("put"), 1))
    assert [p.name for p in tmp_path.iterdir()] == ["one.cassette"]  # nothing beside it
    copy = tmp_path / "else where" / "two ü%41.cassette"
    copy.parent.mkdir()
    shutil.copy(cassette.path, copy)
    copied = Cassette.open(copy)
    assert copied.digest() == cassette.digest()
    assert found(copied, track().issue(call("put"))) == 1
    record(copied, "a", (call("put"), 2))
    assert copied.digest() != cassette.digest()


def test_servers_are_kept_once(cassette: Cassette) -> None:
    tool = {"name": "put", "inputSchema": {"type": "object", "properties": {"b": {}, "a": {}}}}
    server = ServerRecord("box", "digest", "box==1", "1.0", "2025-06-18", (tool,), ("odd",))
    cassette.add_server(server)
    cassette.add_server(server)
    assert cassette.servers() == [server]
    assert list(cassette.servers()[0].tools[0]["inputSchema"]["properties"]) == ["b", "a"]
    assert cassette.server("digest") == server
    assert cassette.server("other") is None
    assert "it knows box" in missing_server(cassette, "crate")
    assert "another version" in missing_server(cassette, "box")


def test_what_is_no_cassette_is_said(tmp_path: Path) -> None:
    with pytest.raises(CassetteError, match=r"There is no cassette .*record one"):
        Cassette.open(tmp_path / "missing")
    with pytest.raises(CassetteError, match="is a directory"):
        Cassette.open(tmp_path)
    text = tmp_path / "text"
    text.write_text("not a database, whatever it says " * 50)
    database = tmp_path / "database"
    with sqlite3.connect(database) as db:
        db.execute("CREATE TABLE mine (a)")
    db.close()
    for path in (text, database):
        before = path.read_bytes()
        for create in (False, True):
            with pytest.raises(CassetteError, match=r"no cassette of atlas-gym\. Check the path"):
                Cassette.open(path, create=create)
        assert path.read_bytes() == before
    with pytest.raises(StorageError, match="path that can be written"):
        Cassette.open(tmp_path / "no" / "such" / "folder" / "x", create=True)


def test_a_newer_format_is_said(cassette: Cassette) -> None:
    with sqlite3.connect(cassette.path) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    db.close()
    with pytest.raises(CassetteError, match=rf"format {FORMAT + 1}.*Install a newer atlas-gym"):
        Cassette.open(cassette.path)


def test_damage_is_said(cassette: Cassette) -> None:
    record(cassette, "a", *((call("put", n=n), str(n) * 3000) for n in range(40)))
    whole = cassette.path.read_bytes()
    cassette.path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CassetteError, match=r"damaged.*record it again"):
        Cassette.open(cassette.path)
    cassette.path.write_bytes(whole)
    with sqlite3.connect(cassette.path) as db:
        db.execute("UPDATE contents SET data = ?", (b"x",))
    db.close()
    with pytest.raises(CassetteError, match=r"missing or changed.*record it again"):
        Cassette.open(cassette.path).find(track().issue(call("put", n=0)), None, "")


WRITER = """
import sys
from atlas_gym.types import ToolCall
from atlas_gym.wire.cassette import Answer, Cassette, End
from atlas_gym.wire.cassette_keys import Track

path, label = sys.argv[1:]
cassette = Cassette.open(path, create=True)
for round in range(10):
    calls = Track("setup", lambda name: name, lambda server, tool: False)
    take = cassette.begin("setup", "suite/task-1", f"{label}{round}")
    for n in range(10):
        answer = Answer("ok", f"{label}{round}.{n}")
        cassette.add_call(take, calls.issue(ToolCall("box", "put", {"n": n})), answer)
    cassette.end(take, calls.history, End("/run", {"files/same": b"x" * 9000}))
"""


def test_processes_record_into_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "shared.cassette"
    names = ("a", "b", "c")
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in names]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    cassette = Cassette.open(path)
    assert cassette.ask("SELECT count(*) FROM takes")[0][0] == 30
    assert cassette.ask("SELECT count(*) FROM calls")[0][0] == 300
    for label in [f"{name}{number}" for name in names for number in range(10)]:
        calls = Track("setup", lambda name: name, lambda server, tool: False)
        issued = [calls.issue(ToolCall("box", "put", {"n": n})) for n in range(10)]
        assert [found(cassette, i, label) for i in issued] == [f"{label}.{n}" for n in range(10)]
    assert path.stat().st_size < 400_000  # what is equal is stored once


KILLED = """
import itertools, sys
from atlas_gym.types import ToolCall
from atlas_gym.wire.cassette import Answer, Cassette
from atlas_gym.wire.cassette_keys import Track

cassette = Cassette.open(sys.argv[1], create=True)
calls = Track("setup", lambda name: name, lambda server, tool: False)
take = cassette.begin("setup", "suite/task-1", sys.argv[2])
for n in itertools.count():
    cassette.add_call(take, calls.issue(ToolCall("box", "put", {"n": n})), Answer("ok", str(n) * 2000))
    print(n, flush=True)
"""


def test_a_killed_recorder_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "killed.cassette"
    for number in range(5):
        command = [sys.executable, "-c", KILLED, str(path), f"label {number}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            said = [int(next(writer.stdout)) for _ in range(20 + number)]
            writer.kill()
        cassette = Cassette.open(path)
        assert path.read_bytes()[:15] == b"SQLite format 3"
        calls = Track("setup", lambda name: name, lambda server, tool: False)
        for n in said:
            assert (
                found(cassette, calls.issue(ToolCall("box", "put", {"n": n})), f"label {number}")
                == str(n) * 2000
            )
    assert cassette.ask("SELECT count(*) FROM takes") == [(5,)]


def test_a_miss_says_the_nearest(cassette: Cassette) -> None:
    record(cassette, "", (call("put", name="flour"), 1), (call("get", name="flour", n=3), 2))
    record(cassette, "", (call("drop"), 1), setup="other")

    def miss(calls: Track, made: ToolCall, setup: str = "setup") -> str:
        text = missing_call(cassette, calls.issue(made), setup, calls.written)
        assert "cassette_mode='record'" in text
        assert "cassette_mode='replay-or-live'" in text
        return text

    assert "recorded: box.put; here: none" in miss(track(), call("get", name="flour", n=3))
    after = track()
    after.issue(call("put", name="flour"))
    text = miss(after, call("get", name="flour", n=4))
    assert 'box.get({"n":4,"name":"flour"})' in text
    assert 'other arguments: {"n":3,"name":"flour"}' in text
    assert "and after other writing calls" in miss(track(), call("get", name="flour", n=4))
    assert "another version of server 'box'" in miss(track(digest="new"), call("get", name="flour", n=3))
    assert "only with other set-ups (tasks suite/task-1)" in miss(track(), call("drop"))
    assert "holds only calls of drop, get, put" in miss(track(), call("lift"))
    assert "no call of server 'crate'" in miss(track(), ToolCall("crate", "put", {}))
    assert "recorded: box.put; here: none" in missing_end(cassette, track())
    assert "no episode with this set-up" in missing_end(cassette, track("third"))


def test_trees_come_back_and_stay_inside(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for part in ("files/a/b", "files/empty", "state/box/home"):
        (one / part).mkdir(parents=True)
    (one / "files" / "a" / "b" / "c ü.bin").write_bytes(b"\x00\xff")
    (one / "state" / "box" / "home" / "x").write_bytes(b"")
    tree = read_tree(one)
    write_tree(two, tree)
    assert read_tree(two) == tree
    assert tree["files/empty"] is None
    assert tree["files/a/b/c ü.bin"] == b"\x00\xff"
    for path in ("../x", "files/../../x", "/etc/x", "x", "files/a\0"):
        with pytest.raises(CassetteError, match="no path of an episode"):
            write_tree(tmp_path / "three", {path: b""})

"""Workspaces: the agent's names of paths, copies of hostile trees, removal."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from atlas_gym.errors import StorageError
from atlas_gym.runtime.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    made = Workspace.create("task one/ü")
    yield made
    made.close()
    assert list((tmp_path / "run").iterdir()) == []


def test_create_makes_private_directories(workspace: Workspace) -> None:
    assert workspace.files.is_dir()
    assert workspace.root.stat().st_mode & 0o777 == 0o700
    assert workspace.root.name.startswith("ep-task-one")
    state = workspace.state("mcp-server-git")
    assert state == workspace.state("mcp-server-git")
    assert sorted(p.name for p in state.iterdir()) == ["home", "tmp"]


@pytest.mark.parametrize("name", ["@scope/server", "..", ".", "a/b", "a b", "x" * 300, "\ud800"])
def test_state_of_odd_names_stays_inside(workspace: Workspace, name: str) -> None:
    state = workspace.state(name)
    assert state.parent == workspace.root / "state"
    assert state.resolve() == state
    assert workspace.state(name + "'") != state


@pytest.mark.parametrize(
    ("text", "mapped"),
    [
        ("/workspace", True),
        ("/workspace/", True),
        ("/workspace/a b/ü.txt", True),
        ("ls /workspace && cat '/workspace/x'", True),
        ("file:///workspace/a", True),
        ("PATH=/usr/bin:/workspace/bin", True),
        ("It is in /workspace.", True),
        ("(/workspace)", True),
        ("/workspace2", False),
        ("/workspace-old/x", False),
        ("/workspace.bak", False),
        ("/workspaces", False),
        ("http://x/workspace", False),
        ("https://example.org/workspace/a", False),
        ("./workspace/a", False),
        ("../workspace", False),
        ("~/workspace", False),
        ("$HOME/workspace", False),
        ("${X}/workspace", False),
        ("//workspace", False),
        ("workspace/a", False),
        ("/home/agent/workspace", False),
    ],
)
def test_only_paths_of_their_own_are_mapped(workspace: Workspace, text: str, mapped: bool) -> None:
    host = workspace.to_host(text)
    assert (str(workspace.files) in host) is mapped
    assert mapped or host == text
    assert workspace.to_agent(host) == text


def test_json_values_are_mapped_whole(workspace: Workspace) -> None:
    value = {"/workspace/k": ["/workspace/a", 1, None, True, {"n": ("/workspace",)}], "x": 1.5}
    host = workspace.to_host(value)
    files = str(workspace.files)
    assert host == {f"{files}/k": [f"{files}/a", 1, None, True, {"n": [files]}], "x": 1.5}
    assert workspace.to_agent(host) == {
        "/workspace/k": ["/workspace/a", 1, None, True, {"n": ["/workspace"]}],
        "x": 1.5,
    }
    assert list(host) == [f"{files}/k", "x"]


def test_homes_belong_to_servers(workspace: Workspace) -> None:
    state = workspace.state("git")
    assert workspace.to_host("/home/agent/.x and /tmp/git/y", "git") == f"{state}/home/.x and {state}/tmp/y"
    assert workspace.to_host("/home/agent/.x") == "/home/agent/.x"
    assert workspace.to_host("/tmp/other", "git") == "/tmp/other"
    assert workspace.to_agent(f"{state}/home/.x, {state}/tmp/y") == "/home/agent/.x, /tmp/git/y"


def test_no_path_of_the_host_is_left(workspace: Workspace) -> None:
    root = workspace.root
    text = f"{root} {root}/owner.json {root}/state/git/db {root}/files2 {root}/state/git/home2/x"
    seen = workspace.to_agent(text)
    assert str(root) not in seen
    assert seen.split()[:3] == ["/episode", "/episode/owner.json", "/episode/state/git/db"]


def test_very_deep_values_are_mapped(workspace: Workspace) -> None:
    value: object = "/workspace"
    for _ in range(100_000):
        value = [value]
    mapped = workspace.to_host(value)
    for _ in range(100_000):
        mapped = mapped[0]
    assert mapped == str(workspace.files)


_JSON = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=20)
    | st.lists(st.sampled_from(["/workspace", "/", "x", ".", " ", "'", "2", "-", ":", "~", "\n", "é"])).map(
        "".join
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@hypothesis_settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=_JSON)
def test_round_trip(workspace: Workspace, value: object) -> None:
    host = workspace.to_host(value)
    assert workspace.to_agent(host) == value
    assert workspace.to_host(workspace.to_agent(host)) == host


def test_snapshot_copies_only_plain_files(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("hidden")
    files = workspace.files
    (files / "sub").mkdir()
    (files / "sub" / "a.txt").write_text("a")
    os.link(files / "sub" / "a.txt", files / "hard.txt")
    (files / "link").symlink_to(secret / "key")
    (files / "dirlink").symlink_to(secret)
    os.mkfifo(files / "fifo")
    with socket.socket(socket.AF_UNIX) as bound:
        monkeypatch.chdir(files)  # the path of a socket must be short
        bound.bind("sock")
    (workspace.state("git") / "home" / ".gitconfig").write_text("[x]")
    copy = workspace.snapshot()
    try:
        found = sorted(str(p.relative_to(copy.files)) for p in copy.files.rglob("*"))
        assert found == ["hard.txt", "sub", "sub/a.txt"]
        assert dict(copy.skipped) == {
            "files/dirlink": "a symbolic link",
            "files/fifo": "not a regular file",
            "files/link": "a symbolic link",
            "files/sock": "not a regular file",
        }
        assert (copy.state("git") / "home" / ".gitconfig").read_text() == "[x]"
        assert copy.root != workspace.root
    finally:
        copy.close()
    assert (secret / "key").read_text() == "hidden"


def test_snapshot_is_bounded(workspace: Workspace) -> None:
    files = workspace.files
    with open(files / "sparse", "wb") as file:
        file.truncate(1 << 40)
    (files / "a").write_bytes(b"x" * 600)
    (files / "b").write_bytes(b"x" * 600)
    (files / "c").write_bytes(b"x" * 300)
    copy = workspace.snapshot(max_bytes=1000)
    assert sorted(p.name for p in copy.files.iterdir()) == ["a", "c"]
    assert [path for path, _ in copy.skipped] == ["files/b", "files/sparse"]
    copy.close()
    copy = workspace.snapshot(max_files=2)
    assert sorted(p.name for p in copy.files.iterdir()) == ["a", "b"]
    copy.close()


def test_deep_trees_are_cut_and_removed(workspace: Workspace) -> None:
    fd = os.open(workspace.files, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)
    copy = workspace.snapshot(max_depth=5)
    assert copy.skipped[-1][1] == "too deep"
    copy.close()


def test_close_survives_hostile_trees(workspace: Workspace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("x")
    files = workspace.files
    (files / "locked" / "in").mkdir(parents=True)
    (files / "locked" / "in" / "f").write_text("")
    (files / ".moved-1").mkdir()
    (files / "a" / ".moved-2" / "x").mkdir(parents=True)
    (files / "to-outside").symlink_to(outside)
    (files / "locked" / "in" / "out").symlink_to(outside)
    (files / "locked" / "in").chmod(0)
    (files / "locked").chmod(0)
    workspace.close()
    workspace.close()
    assert (outside / "keep").exists()
    assert not workspace.root.exists()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_leaves_its_parents_episode_alone(workspace: Workspace) -> None:
    pid = os.fork()
    if pid == 0:
        workspace.close()
        os._exit(0)
    os.waitpid(pid, 0)
    assert workspace.files.is_dir()


def test_the_name_of_the_tree_is_not_shown(workspace: Workspace) -> None:
    name = workspace.root.name
    assert workspace.to_agent(f"X={name}\n{workspace.root}/files/a") == "X=episode\n/workspace/a"


def test_unwritable_place_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "file" / "run"))
    with pytest.raises(StorageError, match="ATLAS_RUN"):
        Workspace.create()

"""Collection removes what dead owners left, and touches nothing else."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from atlas_gym.runtime import gc
from atlas_gym.runtime.owner import Owner
from atlas_gym.runtime.workspace import OWNER_FILE, Workspace


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    return tmp_path / "run"


def disown(workspace: Workspace, **changes: object) -> None:
    owner = dataclasses.replace(Owner.current(), **changes)  # type: ignore[arg-type]
    (workspace.root / OWNER_FILE).write_text(owner.to_json())


@pytest.fixture
def sleeper(run_dir: Path) -> Iterator[tuple[Workspace, subprocess.Popen[bytes]]]:
    workspace = Workspace.create()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "import time; print(1, flush=True); time.sleep(1000)"],
        env={"ATLAS_GYM_EPISODE": workspace.root.name},
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()  # until then it may still have our environment
        yield workspace, process
        process.kill()


def test_nothing_there(run_dir: Path) -> None:
    assert gc.collect() == gc.Removed()


def test_dead_owner(sleeper: tuple[Workspace, subprocess.Popen[bytes]]) -> None:
    workspace, process = sleeper
    live = Workspace.create()
    disown(workspace, start=1)
    assert gc.collect(dry_run=True) == gc.Removed((workspace.root.name,), (process.pid,), alive=1)
    assert workspace.root.exists()
    removed = gc.collect()
    assert removed == gc.Removed((workspace.root.name,), (process.pid,), alive=1)
    assert process.wait() == -9
    assert not workspace.root.exists()
    assert live.files.exists()
    assert str(removed) == "Removed 1 episodes and 1 processes; 1 in use."
    live.close()


def test_live_owner_keeps_all(sleeper: tuple[Workspace, subprocess.Popen[bytes]]) -> None:
    workspace, process = sleeper
    assert gc.collect() == gc.Removed(alive=1)
    handle = os.pidfd_open(process.pid)
    assert not select.select([handle], [], [], 0)[0]
    os.close(handle)
    workspace.close()


@pytest.mark.parametrize("changes", [{"namespace": "pid:[1]"}, {"node": "elsewhere"}])
def test_others_are_left_alone(run_dir: Path, changes: dict[str, str]) -> None:
    workspace = Workspace.create()
    disown(workspace, start=1, **changes)
    removed = gc.collect()
    assert [name for name, _ in removed.kept] == [workspace.root.name]
    assert workspace.root.exists()


def test_earlier_boot_is_dead(run_dir: Path) -> None:
    workspace = Workspace.create()
    disown(workspace, boot="another")
    assert gc.collect().episodes == (workspace.root.name,)


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"pid": "x"}), "\udcff"])
def test_broken_record_is_kept_and_said(run_dir: Path, text: str) -> None:
    workspace = Workspace.create()
    (workspace.root / OWNER_FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    (run_dir / "something-else").mkdir()
    removed = gc.collect()
    assert "no readable owner.json" in str(removed)
    assert workspace.root.exists()
    assert (run_dir / "something-else").exists()


def test_interrupted_removal_is_finished(run_dir: Path) -> None:
    (run_dir / "ep-old").mkdir(parents=True)
    (run_dir / "ep-new").mkdir()
    os.utime(run_dir / "ep-old", (0, 0))
    gc.collect()
    assert [p.name for p in run_dir.iterdir()] == ["ep-new"]


def test_warmed_parents_are_told_apart(run_dir: Path) -> None:
    live, dead = Workspace.create(kind="host"), Workspace.create("old", kind="host")
    disown(dead, start=1)
    assert gc.collect(dry_run=True) == gc.Removed(hosts=(dead.root.name,))
    removed = gc.collect()
    assert removed == gc.Removed(hosts=(dead.root.name,))
    assert str(removed) == "Removed 0 episodes, 1 warmed parents and 0 processes; 0 in use."
    assert [path.name for path in run_dir.iterdir()] == [live.root.name]
    live.close()

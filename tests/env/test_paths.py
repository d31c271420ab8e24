"""Paths that an agent writes into files: servers store the host's, checks and agents see their own."""

from __future__ import annotations

from typing import Any

import pytest

from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.rollout.gold import call_text
from atlas_gym.task.checks import state_checks
from atlas_gym.task.evidence import Evidence
from atlas_gym.task.kinds import FileCheck, UnchangedCheck
from atlas_gym.task.model import Task
from atlas_gym.task.setup import Setup, TextFile

TEXT = "see /workspace/a.txt and /workspace/b\n"


def test_a_file_that_mentions_a_path_reads_back_as_written() -> None:
    env = AtlasEnv(suite="toy", runtime="memory", exposure="eager", execution="json")
    env.reset(options={"task_id": "toy/shopping_list-0000"})
    env.step(call_text("notes:write_note", path="/workspace/notes.txt", text=TEXT))
    observation, *_ = env.step(call_text("notes:read_note", path="/workspace/notes.txt"))
    assert TEXT in observation["result"]
    env.close()


@pytest.mark.parametrize("translate", [True, False])
def test_checks_see_paths_as_the_agent_writes_them(tmp_path: Any, translate: bool) -> None:
    host = str(tmp_path / "episode")
    (tmp_path / "kept.txt").write_text(TEXT.replace("/workspace", host))
    task = Task(
        id="t/one-0000",
        suite="t",
        difficulty="easy",
        prompt="p",
        servers=("notes",),
        setup=Setup(files=(TextFile(path="kept.txt", text=TEXT),)),
        checks=(
            FileCheck(name="text", path="kept.txt", equals=TEXT),
            UnchangedCheck(name="same", of="file", path="kept.txt", gate=True),
        ),
    )
    shown = (lambda v: v.replace(host, "/workspace")) if translate else (lambda v: v)
    evidence = Evidence("", tmp_path, lambda name: tmp_path, shown=shown)
    assert [check.passed for check in state_checks(task, evidence)] == [translate, translate]

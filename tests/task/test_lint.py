"""Faults that are found before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from atlas_gym.task.kinds import AnswerNumber, AnswerText, CalledCheck, Check, FileCheck, ToolCheck
from atlas_gym.task.lint import Finding, lint, offline_floors
from atlas_gym.task.model import Task
from atlas_gym.task.setup import Setup, TextFile

TOOLS = {"git": {"git_log"}, "fs": {"read_file"}}
GOLD = (
    'a, b = MCPServer("git"), MCPServer("fs")\na.git_log()\nb.read_file(path="/workspace/x")\nanswer("7")\n'
)


def task(*checks: Check, gold: str = GOLD, **more: Any) -> Task:
    fields: dict[str, Any] = {"id": "s/t", "suite": "s", "difficulty": "easy", "prompt": "How many?"}
    checks = checks or (AnswerNumber(name="n", value=7),)
    return Task(**{**fields, "servers": ("git", "fs"), "gold": gold, "checks": checks, **more})


def test_a_good_task_has_no_findings() -> None:
    assert lint([task()], tools=TOOLS) == []


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (task(gold="a = MCPServer('git'"), "does not parse"),
        (task(gold=GOLD.replace("answer", "print")), "never calls answer"),
        (task(gold=GOLD.replace("git_log()", "git_lag()")), "'git_log'"),
        (task(gold=GOLD.replace('"fs"', '"fz"')), "no server 'fz'"),
        (task(gold=GOLD.replace("a.git_log()", "pass")), "never uses 'git'"),
        (task(ToolCheck(name="t", server="got", tool="git_log", expected={"": 1})), "no server 'got'"),
        (task(CalledCheck(name="t", server="git", tools=("git_lag",))), "did you mean 'git_log'"),
        (task(prompt="Is it 7?"), "'echo' earns 1.00"),
        (task(AnswerText(name="n", any_of=("impossible", "cannot"))), "'impossible' earns 1.00"),
        (
            task(FileCheck(name="n", path="a"), setup=Setup(files=(TextFile(path="a", text=""),))),
            "'empty' earns",
        ),
    ],
)
def test_faults(bad: Task, why: str) -> None:
    found = lint([bad], tools=TOOLS)
    assert any(why in str(finding) for finding in found), found


def test_a_gate_that_never_holds_is_named() -> None:
    gate = FileCheck(name="g", path="never", gate=True)
    assert "'g' is broken before" in str(lint([task(gate, AnswerNumber(name="n", value=7))])[0])


def test_ids_stand_once() -> None:
    assert lint([task(), task()], floors=False) == [Finding("s/t", "the id stands twice")]


def test_checks_that_need_servers_count_as_failed_and_their_gates_as_kept() -> None:
    share = ToolCheck(name="a", server="git", tool="git_log", expected={"": 1})
    gate = ToolCheck(name="b", server="git", tool="git_log", expected={"": 1}, gate=True)
    assert set(offline_floors(task(share, gate)).values()) == {0.0}
    echo = task(gate, AnswerNumber(name="n", value=7), prompt="7")
    assert offline_floors(echo) == {"empty": 0.0, "echo": 1.0, "impossible": 0.0}

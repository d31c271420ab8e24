"""Suite `core`: what it holds, that it repeats, and that nothing in it is for free."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from atlas_gym import settings
from atlas_gym.task.lint import lint
from atlas_gym.task.model import Task
from atlas_gym.task.setup import lay_out
from atlas_gym.task.suite import Suite, load_suite

CORE = load_suite("core")
ONE_EACH = list({task.template: task for task in CORE}.values())


def stateful(task: Task) -> bool:
    """Whether most of the reward is for what was done, not for what was said."""
    shares = [check for check in task.checks if not check.gate]
    done = sum(check.weight for check in shares if not check.kind.startswith(("answer", "called")))
    return done > sum(check.weight for check in shares) / 2


def tools() -> dict[str, list[str]]:
    locks = {name: settings.shipped("servers") / name / "lock.json" for name in CORE.servers}
    return {
        name: [tool["name"] for tool in json.loads(path.read_text())["tools"]] for name, path in locks.items()
    }


def test_the_suite_is_as_wide_as_it_says() -> None:
    assert len(CORE) >= 36
    assert len(ONE_EACH) >= 18
    assert {name for task in CORE for name in task.servers} == set(CORE.servers)
    assert len(CORE.servers) == 12
    sizes = Counter(len(task.servers) for task in CORE)
    assert min(sizes[1], sizes[2], sizes[3]) >= 3
    levels = Counter(task.difficulty for task in CORE)
    assert min(levels["easy"], levels["medium"], levels["hard"]) >= 6
    assert sum(map(stateful, CORE)) * 2 >= len(CORE)
    assert sum(task.impossible for task in CORE) >= 2
    assert {task.split for task in CORE} == {"train", "test"}
    assert all(2 <= len(task.distractors) <= 4 for task in CORE)


def test_templates_are_never_shared_between_splits() -> None:
    split: dict[str, str] = {}
    for task in [*CORE, *load_suite("core", task_seed=1)]:
        assert split.setdefault(task.template, task.split) == task.split


def test_prompts_are_phrased_in_more_than_one_way() -> None:
    starts: dict[str, set[str]] = {}
    for seed in range(12):
        for task in load_suite("core", task_seed=seed):
            starts.setdefault(task.template, set()).add(" ".join(task.prompt.split()[:2]))
    assert [name for name, found in starts.items() if len(found) < 2] == []


@pytest.mark.git
def test_no_task_has_a_fault_or_is_for_free() -> None:
    assert [str(finding) for finding in lint(CORE, tools=tools())] == []


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_every_seed_draws_whole_and_the_same_tasks(seed: int) -> None:
    suite = load_suite("core", task_seed=seed)
    assert suite.digest == load_suite("core", task_seed=seed).digest
    assert len(suite) == len(CORE)
    assert [str(finding) for finding in lint(suite, tools=tools(), floors=False)] == []
    lines = [task.model_dump_json() for task in suite]
    read = Suite(suite.name, suite.version, suite.servers, tuple(map(Task.model_validate_json, lines)), seed)
    assert read.digest == suite.digest


def test_no_draw_hangs_on_the_order_of_sets() -> None:
    code = "from atlas_gym.task.suite import load_suite; print(load_suite('core').digest)"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
        )
        assert done.stdout.strip() == CORE.digest


def test_far_seeds_draw_too() -> None:
    ids = {task.id for seed in range(40) for task in load_suite("core", task_seed=seed)}
    assert len(ids) == 40 * len(CORE)


@pytest.mark.git
@pytest.mark.parametrize("task", ONE_EACH, ids=lambda task: task.template)
def test_setups_repeat_byte_for_byte(task: Task, tmp_path: Path) -> None:
    def files(root: Path) -> dict[str, bytes]:
        lay_out(task.setup, root / "files", lambda server: root / "state" / server)
        return {
            p.relative_to(root).as_posix(): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()
        }

    assert files(tmp_path / "one") == files(tmp_path / "two")


def test_nothing_hangs_on_today() -> None:
    for task in CORE:
        assert "today" not in task.prompt.lower(), task.id
        assert "current_date" not in task.gold, task.id

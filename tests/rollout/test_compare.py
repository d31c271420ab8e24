"""The variants side by side: which tasks are chosen, and the files that are written."""

from __future__ import annotations

import json
from pathlib import Path

from atlas_gym.context.budget import Budget
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.rollout import compare
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.provenance import machine, provenance, versions
from atlas_gym.rollout.variants import chosen
from atlas_gym.task.suite import load_suite


def test_a_choice_covers_servers_and_difficulties_and_repeats() -> None:
    tasks = load_suite("core").tasks
    for seed in range(5):
        picked = compare.choose(tasks, 8, seed)
        assert picked == compare.choose(tuple(reversed(tasks)), 8, seed)
        assert {len(t.servers) for t in picked} >= {1, 2, 3}
        assert {t.difficulty for t in picked} == {"easy", "medium", "hard"}
        assert len({t.template for t in picked}) == 8
    assert compare.choose(tasks, 8, 0) != compare.choose(tasks, 8, 1)
    assert len(compare.choose(tasks, 10_000, 0)) == len(tasks)


def test_table_and_record_say_where_they_come_from(tmp_path: Path) -> None:
    world = World.shared(WorldConfig(suite="toy", runtime="memory"))
    tasks = world.suite.tasks[:2]
    told: list[str] = []
    budget, fit = Budget().lifted(), Budget()
    rows = [
        compare.play_variant(
            world, v, tasks, gold, budget=budget, fit=fit, done=lambda t: told.append(t.task_id)
        )
        for v in chosen(["eager/json", "tools/code"])
    ]
    assert len(told) == 4
    result = compare.record(
        rows, world=world, budget=budget, fit=fit, seed=7, tasks=tasks, left_out={"x": "not here"}
    )
    compare.write(tmp_path / "deep", rows, result, "Toy")
    kept = json.loads((tmp_path / "deep" / "table.json").read_text())
    assert kept == result
    assert kept["seed"] == 7
    assert kept["budget"]["context_tokens"] > kept["fit_budget"]["context_tokens"] == 31_000
    assert [row["variant"] for row in kept["rows"]] == ["eager/json", "tools/code"]
    assert [row["solved"] for row in kept["rows"]] == [2, 2]
    assert kept["sandboxes"]
    assert kept["machine"]["cores"] >= 1
    text = (tmp_path / "deep" / "table.md").read_text()
    assert "| tools/code | ITL + PTC | 2/2 |" in text


def test_provenance_names_machine_versions_and_commit() -> None:
    found = provenance(3)
    assert found["seed"] == 3
    assert found["machine"] == machine()
    assert found["versions"]["gymnasium"] == versions(["gymnasium", "no-such-package"])["gymnasium"]
    assert isinstance(found["commit"], str)

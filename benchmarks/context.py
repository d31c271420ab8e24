"""Tokens at reset and at the end per variant (the paper's table 1 has the column), gold policy.

Run: python -m benchmarks.context [--tasks 12] [--seed 0] [--show-all]
Writes benchmarks/results/context.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from atlas_gym.context.budget import Budget
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.rollout import compare
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.variants import VARIANTS
from atlas_gym.task.model import Task
from benchmarks import record


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="core")
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--show-all", action="store_true", help="show every server of the toolspace in every episode"
    )
    given = parser.parse_args(arguments)
    world = World.shared(WorldConfig(suite=given.suite))
    missing = {name: why for name in world.catalog.names if (why := world.unavailable(name))}
    for name, why in missing.items():
        print(f"unavailable: {name}: {why}")
    able = [t for t in world.suite.tasks if not set(t.visible) & set(missing)]
    tasks = compare.choose(able, given.tasks, given.seed)
    if given.show_all:
        tasks = tuple(_with_all(task, [n for n in world.toolspace if n not in missing]) for task in tasks)
    for name in sorted({name for task in tasks for name in task.visible}):
        world.toolset([name])
    budget, fit = Budget().lifted(), Budget()
    rows = []
    for variant in VARIANTS:
        rows.append(
            compare.play_variant(world, variant, tasks, gold, budget=budget, fit=fit, seed=given.seed)
        )
        print(variant.name, *compare.cells(rows[-1]), sep="  ")
    print("\n" + compare.markdown(rows))
    result = compare.record(
        rows, world=world, budget=budget, fit=fit, seed=given.seed, tasks=tasks, left_out=missing
    )
    record.write("context_all_servers" if given.show_all else "context", result, seed=given.seed)


def _with_all(task: Task, names: Sequence[str]) -> Task:
    return task.model_copy(update={"distractors": tuple(n for n in names if n not in task.servers)})


if __name__ == "__main__":
    main()

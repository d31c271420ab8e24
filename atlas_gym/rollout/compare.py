"""The same tasks in several variants, side by side: what each costs.

Owns the choice of tasks, the rows and the result files (Markdown, JSON). Does not know who plays.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atlas_gym.context.budget import Budget
from atlas_gym.env.world import World
from atlas_gym.rollout.metrics import INTERVAL, Summary, summarise
from atlas_gym.rollout.play import Job, play_all
from atlas_gym.rollout.policy import PolicyFactory
from atlas_gym.rollout.provenance import provenance
from atlas_gym.rollout.variants import Variant
from atlas_gym.settings import storage
from atlas_gym.task.model import Task
from atlas_gym.types import Trajectory


@dataclass(frozen=True)
class Row:
    """One variant: what its episodes came to."""

    variant: Variant
    summary: Summary
    wall_seconds: float
    """From the first episode's start to the last one's end, set-up and checks included."""
    trajectories: tuple[Trajectory, ...]


def choose(tasks: Sequence[Task], count: int, seed: int) -> tuple[Task, ...]:
    """A seeded choice that covers numbers of servers, difficulties, servers and templates early.

    Args:
        tasks: What can be chosen.
        count: How many; all of them when there are fewer.
        seed: Decides between tasks that cover as much.
    """
    left = sorted(tasks, key=lambda t: t.id)
    random.Random(seed).shuffle(left)
    picked: list[Task] = []
    seen: dict[tuple[str, Any], int] = {}
    while left and len(picked) < count:
        best = min(left, key=lambda task: _repetition(task, seen))
        left.remove(best)
        picked.append(best)
        for trait in _traits(best):
            seen[trait] = seen.get(trait, 0) + 1
    return tuple(sorted(picked, key=lambda t: t.id))


def _traits(task: Task) -> list[tuple[str, Any]]:
    return [
        ("servers", len(task.servers)),
        ("difficulty", task.difficulty),
        ("template", task.template),
        *(("server", name) for name in task.servers),
    ]


def _repetition(task: Task, seen: dict[tuple[str, Any], int]) -> tuple[float, float]:
    """How much of this task was seen already: number of servers and difficulty weigh most."""
    count, difficulty, template, *servers = (seen.get(trait, 0) for trait in _traits(task))
    return count + difficulty + 3 * template, sum(servers) / len(servers)


def play_variant(
    world: World,
    variant: Variant,
    tasks: Sequence[Task],
    make_policy: PolicyFactory,
    *,
    budget: Budget,
    fit: Budget,
    sandbox: str = "auto",
    seed: int = 0,
    at_once: int = 2,
    done: Callable[[Trajectory], None] | None = None,
) -> Row:
    """Play every task once in one variant.

    Args:
        world: What the episodes share.
        variant: How tools are shown and called.
        tasks: What is played, in this order.
        make_policy: Who plays.
        budget: What the episodes may use.
        fit: What `Summary.fits` is measured against.
        sandbox: Where code runs.
        seed: Written to the traces.
        at_once: Episodes that run at the same time.
        done: Told each episode as it ends, from the loop's thread.
    """
    jobs = [
        Job(
            lambda task=task: variant.episode(world, task, budget=budget, sandbox=sandbox, seed=seed),  # type: ignore[misc]
            make_policy,
            f"{variant.name} {task.id}",
        )
        for task in tasks
    ]
    began = time.monotonic()
    played = play_all(jobs, at_once=at_once, done=(lambda _, t: done(t)) if done else None)
    seconds = time.monotonic() - began
    return Row(variant, summarise(played, budget=fit), seconds, tuple(played))


def markdown(rows: Sequence[Row]) -> str:
    """The table of variants, as Markdown."""
    lines = [
        "| variant | paper | solved | turns | tool calls | tokens at reset | tokens at end | fit | wall s |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        lines.append("| " + " | ".join([row.variant.name, row.variant.paper, *cells(row)]) + " |")
    return "\n".join(lines) + "\n"


def cells(row: Row) -> list[str]:
    """A row's numbers as people read them; the same on the screen and in the file."""
    s = row.summary
    return [
        f"{s.solved}/{s.valid}" + (f" ({s.episodes - s.valid} invalid)" if s.valid < s.episodes else ""),
        f"{s.turns:.1f}",
        f"{s.tool_calls:.1f}",
        f"{s.context_at_reset:,.0f}",
        f"{s.context_at_end:,.0f}",
        f"{s.fits}/{s.episodes}",
        f"{row.wall_seconds:.1f}",
    ]


def record(
    rows: Sequence[Row],
    *,
    world: World,
    budget: Budget,
    fit: Budget,
    seed: int,
    tasks: Sequence[Task],
    left_out: dict[str, str],
) -> dict[str, Any]:
    """Everything that the table rests on, as JSON values.

    Args:
        rows: The variants.
        world: What their episodes shared.
        budget: What the episodes could use.
        fit: What `fits` is measured against.
        seed: Of the choice of tasks.
        tasks: What was played.
        left_out: Task id or server name -> why it was not.
    """
    played = [t for row in rows for t in row.trajectories]
    in_code = [t for t in played if t.settings["execution"] == "code"]
    return {
        **provenance(seed),
        "suite": {"name": world.suite.name, "version": world.suite.version, "digest": world.suite.digest},
        "tokenizer": world.tokenizer.name,
        "servers": dict(sorted({k: v for t in played for k, v in t.versions.items()}.items())),
        "sandboxes": sorted({str(t.settings["sandbox"]) for t in in_code}),
        "walls": sorted({str(w) for t in played for w in t.settings["walls"].values()}),
        "policies": sorted({t.policy for t in played}),
        "budget": budget.to_dict(),
        "fit_budget": fit.to_dict(),
        "tasks": [t.id for t in tasks],
        "left_out": left_out,
        "interval": INTERVAL,
        "rows": [
            {
                "variant": row.variant.name,
                "paper": row.variant.paper,
                **row.summary.to_json(),
                "wall_seconds": round(row.wall_seconds, 3),
            }
            for row in rows
        ],
    }


def write(folder: Path, rows: Sequence[Row], result: dict[str, Any], title: str) -> None:
    """Write `table.md` and `table.json` into a folder.

    Raises:
        StorageError: The folder cannot be written.
    """
    made_by = (
        f"Made by `{result['command']}`: commit {result['commit'] or 'unknown'}, suite "
        f"{result['suite']['name']} {result['suite']['version']}, {len(result['tasks'])} tasks, seed "
        f"{result['seed']}, {result['machine']['cpu']} ({result['machine']['cores']} cores). "
        f"Everything else is in table.json.\n"
    )
    with storage(f"Writing the table to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "table.md").write_text(f"# {title}\n\n{markdown(rows)}\n{made_by}", encoding="utf-8")
        (folder / "table.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")

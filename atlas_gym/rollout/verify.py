"""Proofs that a suite's tasks can be solved and cannot be had for nothing.

Owns what is proved (gold = 1.0 in every variant with a lifted budget; floors at most `FLOOR`), the
progress file that lets a stopped proof go on, and the report. Does not know how a task is made.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atlas_gym.context.budget import Budget
from atlas_gym.env.world import World
from atlas_gym.errors import AtlasError
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.metrics import context_at_end, fits, tool_calls
from atlas_gym.rollout.play import play
from atlas_gym.rollout.policy import PolicyFactory, echo_prompt, empty_answer, says_impossible
from atlas_gym.rollout.provenance import versions
from atlas_gym.rollout.random_policy import random_calls
from atlas_gym.rollout.variants import VARIANTS, Variant, variant
from atlas_gym.runtime.install import digest
from atlas_gym.settings import storage
from atlas_gym.task.model import Task
from atlas_gym.types import Trajectory
from atlas_gym.wire.loop import portal

FLOOR: Final = 0.2
"""What an agent without understanding may earn at most."""

FLOOR_VARIANT: Final = variant("tools/json")
"""Floors are played in one variant: none of them reads what the variants change."""

FLOORS: Final[Mapping[str, PolicyFactory]] = {
    "empty": empty_answer,
    "echo": echo_prompt,
    "impossible": says_impossible,
    "random": random_calls(seed=0),
}


@dataclass(frozen=True)
class Proof:
    """One episode of the proof, and whether it came out as it must."""

    key: str
    task_id: str
    policy: str
    variant: str
    passed: bool
    reward: float
    valid: bool
    stop: str
    turns: int
    tool_calls: int
    context_at_reset: int
    context_at_end: int
    fits: bool
    """Whether it would have fitted the default budget."""
    detail: str
    """Why it did not pass; "" when it did."""
    seconds: float


@dataclass(frozen=True)
class Report:
    """All proofs of a run, in the order of tasks."""

    proofs: tuple[Proof, ...]
    reused: int
    """Proofs that were read from the progress file."""

    @property
    def failures(self) -> tuple[Proof, ...]:
        """What did not come out as it must."""
        return tuple(p for p in self.proofs if not p.passed)

    def fitting(self) -> dict[str, tuple[int, int]]:
        """Variant -> (gold episodes that fit the default budget, all of them)."""
        found: dict[str, tuple[int, int]] = {}
        for proof in self.proofs:
            if proof.policy == "gold":
                fit, all_ = found.get(proof.variant, (0, 0))
                found[proof.variant] = (fit + proof.fits, all_ + 1)
        return found

    def floors(self) -> dict[str, float]:
        """Floor policy -> the highest reward that it earned on a task."""
        found: dict[str, float] = {}
        for proof in self.proofs:
            if proof.policy != "gold":
                found[proof.policy] = max(found.get(proof.policy, 0.0), proof.reward)
        return found


@dataclass(frozen=True)
class _Trial:
    task: Task
    policy: str
    make_policy: PolicyFactory
    variant: Variant
    key: str


def verify(
    world: World,
    tasks: Sequence[Task],
    *,
    variants: Sequence[Variant] = VARIANTS,
    floors: Iterable[str] = tuple(FLOORS),
    progress: Path | None = None,
    at_once: int = 2,
    sandbox: str = "auto",
    started: Callable[[int, int], None] | None = None,
    done: Callable[[Proof], None] | None = None,
) -> Report:
    """Prove tasks; what the progress file proves already is not played again.

    Args:
        world: Suite, servers, tokenizer.
        tasks: What is proved.
        variants: Where gold is played.
        floors: Names of `FLOORS`.
        progress: A JSONL file of proofs, keyed by everything they hang on; None to keep none.
        at_once: Episodes that run at the same time.
        sandbox: Where code runs.
        started: Told (proofs to play, proofs reused) before the first.
        done: Told each proof as it ends, from the loop's thread: keep it short.
    """
    known = read_progress(progress) if progress else {}
    trials = _trials(world, tasks, variants, tuple(floors), sandbox)
    todo = [t for t in trials if t.key not in known]
    if started is not None:
        started(len(todo), len(trials) - len(todo))

    async def run() -> None:
        gate = asyncio.Semaphore(at_once)

        async def one(trial: _Trial) -> None:
            async with gate:
                proof = await _prove(world, trial, sandbox)
            known[trial.key] = proof
            if progress is not None and proof.passed:  # a failure is tried again the next time
                _append(progress, proof)
            if done is not None:
                done(proof)

        try:
            async with asyncio.TaskGroup() as group:
                for trial in todo:
                    group.create_task(one(trial))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None  # the others were cancelled for it

    if todo:
        portal().run(run())
    return Report(tuple(known[t.key] for t in trials), len(trials) - len(todo))


def _trials(
    world: World,
    tasks: Sequence[Task],
    variants: Sequence[Variant],
    floors: Sequence[str],
    sandbox: str,
) -> list[_Trial]:
    trials = []
    for task in tasks:
        base = _digest(world, task, sandbox)
        for v in variants:
            trials.append(_Trial(task, "gold", gold, v, f"{base}-gold-{v.name}"))
        for name in floors:
            trials.append(
                _Trial(task, name, FLOORS[name], FLOOR_VARIANT, f"{base}-{name}-{FLOOR_VARIANT.name}")
            )
    return trials


def _digest(world: World, task: Task, sandbox: str) -> str:
    """Over everything that a proof hangs on: task, servers' locks, our version, sandbox."""
    parts = [task.model_dump_json(), json.dumps(versions(), sort_keys=True), sandbox, world.config.runtime]
    if world.config.runtime == "process":
        parts += [digest(world.catalog.get(name)) for name in task.visible]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24]


async def _prove(world: World, trial: _Trial, sandbox: str) -> Proof:
    began = time.monotonic()
    try:
        episode = trial.variant.episode(world, trial.task, budget=Budget().lifted(), sandbox=sandbox)
        played = await play(episode, trial.make_policy)
    except AtlasError as exc:
        return Proof(
            key=trial.key,
            task_id=trial.task.id,
            policy=trial.policy,
            variant=trial.variant.name,
            passed=False,
            reward=0.0,
            valid=False,
            stop="",
            turns=0,
            tool_calls=0,
            context_at_reset=0,
            context_at_end=0,
            fits=False,
            detail=f"{type(exc).__name__}: {exc}",
            seconds=time.monotonic() - began,
        )
    detail = _complaint(trial, played)
    return Proof(
        key=trial.key,
        task_id=trial.task.id,
        policy=trial.policy,
        variant=trial.variant.name,
        passed=not detail,
        reward=played.reward,
        valid=played.reward_valid,
        stop=played.stop,
        turns=len(played.turns),
        tool_calls=tool_calls(played),
        context_at_reset=played.context_at_reset,
        context_at_end=context_at_end(played),
        fits=fits(played, Budget()),
        detail=detail,
        seconds=time.monotonic() - began,
    )


def _complaint(trial: _Trial, played: Trajectory) -> str:
    if not played.reward_valid:
        return f"the reward is invalid ({played.invalid_reason}): {played.error}"
    if trial.policy != "gold":
        return f"earned {played.reward:.2f}, more than {FLOOR}" if played.reward > FLOOR else ""
    if played.reward >= 1.0:
        return ""
    lost = "; ".join(f"{c.name}: {c.detail}" for c in played.checks if not c.passed)
    said = (played.answer or "")[:200]
    return f"gold earned {played.reward:.2f} (stop {played.stop!r}, answer {said!r}); failed checks: {lost}"


def read_progress(path: Path) -> dict[str, Proof]:
    """The proofs of a progress file by key; a file that is absent or has odd lines gives what it can."""
    found: dict[str, Proof] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        try:
            proof = Proof(**json.loads(line))
        except (ValueError, TypeError):
            continue  # half a line of a killed run, or another version's: it is proved again
        found[proof.key] = proof
    return found


def _append(path: Path, proof: Proof) -> None:
    with storage(f"Writing the progress file {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(proof)) + "\n")

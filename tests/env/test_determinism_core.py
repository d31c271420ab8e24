"""On real servers: the same seed and the same actions, twice, give the same episode.

Actions are those that gold took the first time, given again word for word. From the first call of a tool
that its manifest declares nondeterministic an episode may differ; the test lists those calls. A few
tasks by default, every task under `slow`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.rollout.compare import choose
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.play import play
from atlas_gym.rollout.variants import Variant, variant
from atlas_gym.task.model import Task
from atlas_gym.types import Trajectory
from atlas_gym.wire.loop import portal

pytestmark = pytest.mark.servers
PLAYED = [variant("tools/json"), variant("tools/code")]
NAMES = [v.name for v in PLAYED]


def declared(env: AtlasEnv, played: Trajectory) -> tuple[int, set[str]]:
    """The turn that first calls a nondeterministic tool (or one past the last), and all such tools."""
    first, names = len(played.turns) + 1, set()
    for turn in played.turns:
        for result in turn.results:
            manifest = env.world.catalog.get(result.call.server).manifest
            if result.call.tool in manifest.nondeterministic:
                first = min(first, turn.index)
                names.add(f"{result.call.server}:{result.call.tool}")
    return first, names


def replay(env: AtlasEnv, task: Task, texts: Sequence[str]) -> list[tuple[Any, ...]]:
    """Everything that an agent or trainer gets, at reset and after each step."""
    observation, info = env.reset(seed=5, options={"task_id": task.id})
    found: list[tuple[Any, ...]] = [(plain(observation), 0.0, False, False, info)]
    for text in texts:
        observation, *rest = env.step(text)
        found.append((plain(observation), *rest))
    return found


def plain(observation: dict[str, Any]) -> dict[str, Any]:
    return {key: value if isinstance(value, str) else int(value) for key, value in observation.items()}


def check(played_in: Variant, tasks: Sequence[Task]) -> dict[str, set[str]]:
    """Compare two plays of each task; returns the declared tools that each task called."""
    env = AtlasEnv(exposure=played_in.exposure, execution=played_in.execution)
    loose: dict[str, set[str]] = {}
    try:
        for task in tasks:
            first = portal().run(play(env.draw(5, {"task_id": task.id}), gold))
            upto, names = declared(env, first)
            texts = [turn.text for turn in first.turns]
            one, two = replay(env, task, texts), replay(env, task, texts)
            for number, (a, b) in enumerate(zip(one[:upto], two[:upto], strict=True)):
                assert a == b, f"{task.id} {played_in.name}, step {number}"
            if names:
                loose[task.id] = names
            else:
                assert len(one) == len(two) == len(texts) + 1
    finally:
        env.close()
    return loose


def playable(env: AtlasEnv) -> list[Task]:
    return [t for t in env.tasks() if not any(env.world.unavailable(name) for name in t.visible)]


@pytest.mark.parametrize("played_in", PLAYED, ids=NAMES)
def test_the_same_actions_give_the_same_episode(played_in: Variant) -> None:
    check(played_in, choose(playable(AtlasEnv()), 3, seed=2))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("played_in", PLAYED, ids=NAMES)
def test_the_same_actions_give_the_same_episode_in_every_task(
    played_in: Variant, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = playable(AtlasEnv())
    loose = check(played_in, tasks)
    with capsys.disabled():
        tools = sorted({name for names in loose.values() for name in names})
        print(  # noqa: T201 - the issue asks for the list in the output
            f"\n{played_in.name}: {len(tasks) - len(loose)} of {len(tasks)} tasks repeat whole; the others "
            f"call tools that are declared nondeterministic: {', '.join(tools) or 'none'}"
        )
    assert len(loose) < len(tasks) / 2

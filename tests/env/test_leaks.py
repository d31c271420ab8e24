"""After many episodes no process, socket, descriptor, thread or directory more than before.

Under `slow`: 500 episodes on real servers. By default: a few on real servers, more on in-process ones.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from atlas_gym import settings
from atlas_gym.env.episode import Episode
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.play import Job, play_all
from atlas_gym.rollout.policy import PolicyFactory, says_impossible
from atlas_gym.rollout.variants import VARIANTS, Variant
from atlas_gym.task.model import Task
from atlas_gym.wire.loop import portal

Descendants: TypeAlias = Callable[[], set[int]]


def held(descendants: Descendants) -> dict[str, int]:
    """What this process holds of the machine."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except OSError:
            continue
    run = settings.run_dir()
    temp = Path(tempfile.gettempdir())
    return {
        "processes": len(descendants()),
        "descriptors": len(links),
        "sockets": sum(link.startswith("socket:") for link in links),
        # The loop's own pool grows to its bound as it is used, and stays.
        "threads": sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate()),
        "episodes": len([p for p in run.iterdir() if p.name != "stats"]) if run.is_dir() else 0,
        "temporary": sum(1 for entry in temp.iterdir() if entry.name.startswith(("atlas", "tmp"))),
    }


@pytest.fixture(autouse=True)
def own_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))


def play(world: World, tasks: Sequence[Task], count: int, policies: Sequence[PolicyFactory]) -> None:
    def episode(number: int) -> Callable[[], Episode]:
        variant: Variant = VARIANTS[number % len(VARIANTS)]
        return lambda: variant.episode(world, tasks[number % len(tasks)])

    jobs = [Job(episode(n), policies[n % len(policies)]) for n in range(count)]
    for played in play_all(jobs, at_once=3):
        assert played.stop == "answer", (played.task_id, played.stop, played.error)
    portal().run(world.housing.aclose())  # as the last environment's `close` does


def check(
    world: World,
    tasks: Sequence[Task],
    count: int,
    policies: Sequence[PolicyFactory],
    descendants: Descendants,
) -> None:
    play(world, tasks, len(VARIANTS), policies)  # what is made once per process is made here
    before = held(descendants)
    play(world, tasks, count, policies)
    after = held(descendants)
    grown = {key: (before[key], after[key]) for key in before if after[key] > before[key]}
    assert not grown
    assert after["episodes"] == 0


def real() -> tuple[World, list[Task]]:
    """The tasks of one server, which are the quickest."""
    world = World.shared(WorldConfig())
    able = [t for t in world.suite.tasks if not any(world.unavailable(name) for name in t.visible)]
    return world, [t for t in able if len(t.servers) == 1]


def test_in_process_episodes_leave_nothing(descendants: Descendants) -> None:
    world = World.shared(WorldConfig(suite="toy", runtime="memory"))
    check(world, world.suite.tasks, 64, (gold, says_impossible), descendants)


@pytest.mark.servers
def test_episodes_on_real_servers_leave_nothing(descendants: Descendants) -> None:
    world, tasks = real()
    check(world, tasks[:3], 16, (gold,), descendants)


@pytest.mark.servers
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_500_episodes_on_real_servers_leave_nothing(descendants: Descendants) -> None:
    world, tasks = real()
    check(world, tasks, 500, (gold,), descendants)

"""On real servers: an episode recorded live, played again from the cassette, is the same byte for byte.

The replay runs in another process that has another home, an empty cache and nothing on PATH: no server, no
Node, no git. A few tasks by default, every task under `slow`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.policy import see
from atlas_gym.rollout.variants import variant
from atlas_gym.task.model import Task
from atlas_gym.wire.loop import portal

ROOT = Path(__file__).resolve().parents[2]
SEED = 5
VARIANTS = ["tools/json", "tools/code"]
SOME = ("core/commit_the_docs-0000", "core/place_order-0000", "core/incident_owner-0000")
"""Checks that need git; ids and times that are new in every run; three servers, one with state in memory."""


def make(name: str, cassette: Path, mode: str) -> AtlasEnv:
    played = variant(name)
    return AtlasEnv(
        exposure=played.exposure,
        execution=played.execution,
        budget={"context_tokens": 10_000_000, "turns": 500, "tool_calls": 5_000},
        cassette=str(cassette),
        cassette_mode=mode,
    )


def plain(observation: dict[str, Any]) -> dict[str, Any]:
    return {key: value if isinstance(value, str) else int(value) for key, value in observation.items()}


def play(env: AtlasEnv, task_id: str, texts: Sequence[str] | None) -> dict[str, Any]:
    """Everything that an agent or trainer gets of one episode: by gold, or word for word as before."""
    observation, info = env.reset(seed=SEED, options={"task_id": task_id})
    steps: list[Any] = [[plain(observation), 0.0, False, False, info]]
    policy = gold(env.episode) if texts is None else None
    said = iter(texts or ())
    try:
        while not env.episode.done:
            text = portal().run(policy.act(see(env.episode))) if policy else next(said)
            observation, *rest = env.step(text)
            steps.append([plain(observation), *rest])
    finally:
        close = getattr(policy, "close", None)
        if close is not None:
            close()
    return {"steps": steps, "trajectory": without_clocks(env.trajectory.to_json())}


def without_clocks(raw: dict[str, Any]) -> dict[str, Any]:
    """A trajectory less its wall times, and less what it says of the cassette."""
    del raw["settings"]["cassette"]
    for turn in raw["turns"]:
        del turn["seconds"]
        for result in turn["results"]:
            del result["seconds"]
    return raw


def elsewhere(tmp_path: Path, name: str, cassette: Path, texts: dict[str, list[str]] | list[str]) -> Any:
    """Play on what could be another machine: nothing installed, other directories, the file copied there."""
    place = tmp_path / "elsewhere"
    for folder in ("home", "cache", "run", "bin", "tmp"):
        (place / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(cassette, place / "copied.cassette")
    os.chmod(place / "copied.cassette", 0o400)
    environment = {
        "PATH": str(place / "bin"),
        "HOME": str(place / "home"),
        "TMPDIR": str(place / "tmp"),
        "ATLAS_CACHE": str(place / "cache"),
        "ATLAS_RUN": str(place / "run"),
        "PYTHONPATH": str(ROOT),
        "DOCKER_HOST": "unix:///nonexistent",
    }
    (place / "texts.json").write_text(json.dumps(texts))
    command = [sys.executable, str(Path(__file__)), name, str(place)]
    done = subprocess.run(command, env=environment, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert list((place / "cache").iterdir()) == []
    assert list((place / "run").iterdir()) == []
    (place / "copied.cassette").unlink()
    return json.loads((place / "played.json").read_text())


def replayed(name: str, place: Path) -> None:
    """The other machine's half: play every task of `texts.json`, by gold where it gives no texts."""
    env = make(name, place / "copied.cassette", "replay")
    texts = json.loads((place / "texts.json").read_text())
    said = texts if isinstance(texts, dict) else dict.fromkeys(texts)
    played = {task_id: play(env, task_id, lines) for task_id, lines in said.items()}
    env.close()
    (place / "played.json").write_text(json.dumps(played))


def check(tmp_path: Path, name: str, tasks: Sequence[Task]) -> dict[str, Any]:
    cassette = tmp_path / "core.cassette"
    env = make(name, cassette, "record")
    live = {task.id: play(env, task.id, None) for task in tasks}
    env.close()
    for task_id, played in live.items():
        assert played["trajectory"]["reward"] == 1.0, (task_id, played["trajectory"]["error"])
    texts = {
        task_id: [turn["text"] for turn in played["trajectory"]["turns"]] for task_id, played in live.items()
    }
    again = elsewhere(tmp_path, name, cassette, texts)
    for task_id, played in live.items():
        assert json.dumps(again[task_id]) == json.dumps(played), task_id
    return live


def playable() -> list[Task]:
    env = AtlasEnv()
    return [t for t in env.tasks() if not any(env.world.unavailable(name) for name in t.visible)]


@pytest.mark.servers
@pytest.mark.git
@pytest.mark.parametrize("name", VARIANTS)
def test_a_replay_equals_the_live_episode(name: str, tmp_path: Path) -> None:
    live = check(tmp_path, name, [task for task in playable() if task.id in SOME])
    assert live
    # And gold itself, which goes on with the ids that it was given.
    again = elsewhere(tmp_path, name, tmp_path / "core.cassette", list(live))
    assert json.dumps(again) == json.dumps(live)


@pytest.mark.servers
@pytest.mark.git
@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_replay_equals_the_live_episode_in_every_task(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = check(tmp_path, name, playable())
    size = (tmp_path / "core.cassette").stat().st_size
    with capsys.disabled():
        print(f"\n{name}: {len(live)} tasks recorded and replayed byte for byte; {size / 1e6:.1f} MB")  # noqa: T201


if __name__ == "__main__":
    replayed(sys.argv[1], Path(sys.argv[2]))

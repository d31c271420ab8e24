"""Vectorised environments: Gymnasium's own, in every start method, and the native one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import atlas_gym
from atlas_gym.env.vector import AtlasVectorEnv
from atlas_gym.errors import ConfigError

KWARGS: dict[str, Any] = {"suite": "toy", "runtime": "memory"}
SAID = "```python\nprint('größe 漢字 🙂')\n```"
END = "<answer>ende 🙂</answer>"


def checked(envs: Any) -> None:
    """Two members of one group, text that is not ASCII, an end and what comes after it."""
    observations, infos = envs.reset(seed=[7, 7])
    assert observations["prompt"][0] == observations["prompt"][1]
    assert infos["task_id"][0] == infos["task_id"][1]
    observations, rewards, *_ = envs.step([SAID, SAID])
    assert [text.strip() for text in observations["result"]] == ["größe 漢字 🙂"] * 2
    assert rewards.tolist() == [0.0, 0.0]
    observations, _, terminated, truncated, infos = envs.step([END, SAID])
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, False]
    assert infos["stop"][0] == "answer"
    observations, *_ = envs.step([SAID, SAID])
    assert int(observations["turn"][0]) == 0  # NEXT_STEP: a new episode, its action ignored
    assert int(observations["turn"][1]) == 3
    envs.close()


@pytest.mark.parametrize("mode", ["sync", "vector_entry_point"])
def test_make_vec_in_one_process(mode: str) -> None:
    checked(gym.make_vec("Atlas-MCP-v0", num_envs=2, vectorization_mode=mode, **KWARGS))


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_make_vec_async(context: str) -> None:
    envs = gym.make_vec(
        "Atlas-MCP-v0", num_envs=2, vectorization_mode="async", vector_kwargs={"context": context}, **KWARGS
    )
    checked(envs)


def test_fork_after_use_in_the_parent() -> None:
    env = gym.make("Atlas-MCP-v0", **KWARGS)
    env.reset(seed=0)
    checked(gym.make_vec("Atlas-MCP-v0", num_envs=2, vectorization_mode="async", **KWARGS))
    env.step(END)
    env.close()


def test_same_step_autoreset_keeps_the_finished_episode() -> None:
    envs = AtlasVectorEnv(2, autoreset_mode="SameStep", **KWARGS)
    envs.reset(seed=[1, 2])
    observations, _, terminated, _, infos = envs.step([END, SAID])
    assert terminated.tolist() == [True, False]
    assert int(observations["turn"][0]) == 0
    assert infos["final_info"]["stop"][0] == "answer"
    assert infos["final_obs"][0]["turn"] == 1
    assert infos["stop"].tolist() == ["", ""]
    assert envs.finished_trajectories[0].answer == "ende 🙂"
    assert set(envs.finished_trajectories) == {0}
    envs.step([SAID, SAID])
    assert envs.finished_trajectories == {}
    envs.close()


def test_disabled_autoreset_waits_for_a_masked_reset() -> None:
    envs = AtlasVectorEnv(2, autoreset_mode=AutoresetMode.DISABLED, **KWARGS)
    envs.reset(seed=[1, 2])
    envs.step([END, SAID])
    observations, rewards, terminated, *_ = envs.step([SAID, SAID])
    assert terminated.tolist() == [True, False]
    assert rewards[0] == 0.0
    options = {"reset_mask": np.array([True, False])}
    observations, infos = envs.reset(seed=[5, 5], options=options)
    assert "reset_mask" in options
    assert observations["turn"].tolist() == [0, 2]
    assert infos["_task_id"].tolist() == [True, False]
    envs.close()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e: e.step([END]), "1 actions for 2"),
        (lambda e: e.reset(seed=[1]), "1 seeds for 2"),
        (lambda e: e.reset(options={"reset_mask": [True, False]}), "bool array"),
        (lambda e: e.reset(options={"reset_mask": np.zeros(2, dtype=np.bool_)}), "choose something"),
    ],
)
def test_wrong_batches_are_said(call: Any, message: str) -> None:
    envs = AtlasVectorEnv(2, **KWARGS)
    envs.reset(seed=0)
    with pytest.raises(ConfigError, match=message):
        call(envs)
    envs.close()


def test_step_before_reset_is_said() -> None:
    envs = AtlasVectorEnv(1, **KWARGS)
    with pytest.raises(ConfigError, match="reset"):
        envs.step([END])
    with pytest.raises(ConfigError, match="at least 1"):
        AtlasVectorEnv(0, **KWARGS)


def test_a_group_of_sixteen_runs_at_once() -> None:
    envs = AtlasVectorEnv(16, exposure="eager", **KWARGS)
    envs.reset(seed=[3] * 16, options={"task_id": "toy/take_some-0000"})
    task = envs.envs[0].episode.task
    text = f"```python\n{task.gold}\n```"
    _, rewards, terminated, *_ = envs.step([text] * 16)
    assert terminated.all()
    assert rewards.tolist() == [1.0] * 16
    assert len(envs.finished_trajectories) == 16
    envs.close()


def test_the_public_names_lead_here() -> None:
    assert atlas_gym.AtlasVectorEnv is AtlasVectorEnv

"""Workspaces that are prepared for episodes to come: taken once, equal to fresh ones, and put away."""

from __future__ import annotations

from typing import Any, cast

import gymnasium as gym
import pytest

import atlas_gym
from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.wire.loop import portal

TASK = "toy/take_some-0000"
CALL = '{"name": "kitchen:take", "arguments": {"item": "rice", "grams": 300}}'


def make(**arguments: Any) -> AtlasEnv:
    how = {"suite": "toy", "runtime": "memory", "execution": "json", "exposure": "eager", **arguments}
    return cast(AtlasEnv, gym.make("Atlas-MCP-v0", **how).unwrapped)


def play(env: AtlasEnv) -> tuple[Any, ...]:
    first = env.reset(options={"task_id": TASK})
    return first[0]["prompt"], env.step(CALL)[0]["result"], *env.step("<answer>Done.</answer>")[1:]


def settle(env: AtlasEnv) -> None:
    portal().run(env.world.housing.stock.settled())


def test_a_repeated_task_finds_a_spare_that_plays_as_a_fresh_one() -> None:
    plain, spared = make(), make(spares=1)
    stats = spared.world.housing.stock.stats
    try:
        fresh = play(plain)
        assert fresh[2] == 1.0
        assert play(spared) == fresh
        assert stats.hits == 0
        for hits in (1, 2):
            settle(spared)
            assert play(spared) == fresh
            assert stats.hits == hits
    finally:
        plain.close()
        spared.close()
    assert stats.ready == {}


def test_what_is_announced_is_prepared_once_per_copy() -> None:
    env = make()
    env.prewarm(task_ids=[TASK], copies=2)
    stock = env.world.housing.stock
    before = stock.stats.hits
    try:
        settle(env)
        assert sum(stock.stats.ready.values()) == 2
        for _ in range(3):
            assert play(env)[2] == 1.0
        assert stock.stats.hits == before + 2
        settle(env)
        assert not stock.wanted
    finally:
        env.close()


def test_a_seed_is_prepared_for_the_task_that_its_reset_draws() -> None:
    env = make()
    try:
        for seed in (3, 7):
            env.prewarm([seed])
            settle(env)
            hits = env.world.housing.stock.stats.hits
            _, info = env.reset(seed=seed)
            assert env.world.housing.stock.stats.hits == hits + 1, info["task_id"]
    finally:
        env.close()


def test_closing_without_ever_playing_puts_away_what_was_prepared() -> None:
    env = make()
    env.prewarm(task_ids=[TASK])
    settle(env)
    env.close()
    assert env.world.housing.stock.stats.ready == {}


def test_an_unknown_task_is_said() -> None:
    with pytest.raises(atlas_gym.AtlasError, match="take_some"):
        make().prewarm(task_ids=["toy/take_sum-0000"])

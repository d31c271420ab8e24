"""Playing many episodes: order, bounds, early stops, policies that raise."""

from __future__ import annotations

from contextlib import aclosing

import pytest

from atlas_gym.env.episode import Episode
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.play import Job, play, play_all, play_each
from atlas_gym.rollout.policy import Policy, PolicyInput, empty_answer, says_impossible
from atlas_gym.rollout.variants import variant
from atlas_gym.wire.loop import portal


def world() -> World:
    return World.shared(WorldConfig(suite="toy", runtime="memory"))


def episode(number: int = 0) -> Episode:
    return variant("tools/json").episode(world(), world().suite.tasks[number])


class Raises:
    name = "raises"

    async def act(self, seen: PolicyInput) -> str:
        raise ValueError("this policy is broken")


def raising(episode: Episode) -> Policy:
    return Raises()


def test_results_come_in_the_order_of_the_jobs() -> None:
    told: list[int] = []
    jobs = [Job(lambda i=i: episode(i), gold) for i in range(6)]  # type: ignore[misc]
    played = play_all(jobs, at_once=3, done=lambda i, _: told.append(i))
    assert [t.task_id for t in played] == [t.id for t in world().suite.tasks[:6]]
    assert sorted(told) == list(range(6))
    assert all(t.reward == 1.0 and t.policy == "gold" for t in played)


def test_what_a_policy_raises_reaches_the_caller_with_the_episode_closed() -> None:
    one = episode()
    with pytest.raises(ValueError, match="this policy is broken"):
        portal().run(play(one, raising))
    assert one.trajectory().turns == ()
    with pytest.raises(ValueError, match="this policy is broken"):
        play_all([Job(episode, empty_answer), Job(episode, raising), Job(episode, gold)])


def test_a_watcher_sees_the_opening_and_every_turn() -> None:
    seen: list[int] = []
    played = portal().run(play(episode(), gold, watch=lambda e: seen.append(len(e.turns))))
    assert seen == list(range(len(played.turns) + 1))


def test_a_consumer_that_stops_early_cancels_the_rest() -> None:
    made: list[Episode] = []

    def make() -> Episode:
        made.append(episode())
        return made[-1]

    async def first() -> int:
        jobs = (Job(make, says_impossible) for _ in range(50))
        async with aclosing(play_each(jobs, at_once=2)) as ended:
            async for index, _ in ended:
                return index
        return -1

    assert portal().run(first()) in (0, 1)
    assert len(made) <= 4

"""Plays episodes with policies: one, or many with a bound on how many run at once.

Owns the loop between environment and policy and its order of results. Does not know what a policy is
made of, and judges nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from atlas_gym.env.episode import Episode
from atlas_gym.rollout.policy import Policy, PolicyFactory, see
from atlas_gym.types import Trajectory
from atlas_gym.wire.loop import portal


@dataclass(frozen=True)
class Job:
    """One episode to be played, and who plays it."""

    make_episode: Callable[[], Episode]
    make_policy: PolicyFactory
    name: str = ""


async def play(
    episode: Episode, make_policy: PolicyFactory, *, watch: Callable[[Episode], None] | None = None
) -> Trajectory:
    """Open, play to the end, close.

    A policy that raises is not an episode's end: the error goes to the caller, with the episode closed.

    Args:
        episode: A closed episode.
        make_policy: Who plays it.
        watch: Shown the episode after it is opened and after every turn, in the loop's thread.
    """
    policy: Policy | None = None
    try:
        await episode.open()
        policy = make_policy(episode)
        if watch is not None:
            watch(episode)
        while not episode.done:
            await episode.step(await policy.act(see(episode)))
            if watch is not None:
                watch(episode)
        return episode.trajectory(policy=policy.name)
    finally:
        close = getattr(policy, "close", None)
        if close is not None:
            close()
        await episode.close()


async def play_each(jobs: Iterable[Job], *, at_once: int = 2) -> AsyncGenerator[tuple[int, Trajectory], None]:
    """Play jobs, at most `at_once` at a time; yields (index, trajectory) as each one ends.

    A slow episode blocks no other. When the consumer stops early, what runs is cancelled and closed.
    """
    waiting = iter(enumerate(jobs))
    running: dict[asyncio.Task[Trajectory], int] = {}

    def start_next() -> bool:
        pair = next(waiting, None)
        if pair is None:
            return False
        index, job = pair
        running[asyncio.ensure_future(play(job.make_episode(), job.make_policy))] = index
        return True

    try:
        while len(running) < at_once and start_next():
            pass
        while running:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                index = running.pop(task)
                start_next()
                yield index, task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def play_all(
    jobs: Sequence[Job],
    *,
    at_once: int = 2,
    done: Callable[[int, Trajectory], None] | None = None,
) -> list[Trajectory]:
    """Play jobs from synchronous code and give the trajectories in the order of the jobs.

    Args:
        jobs: What to play.
        at_once: Episodes that run at the same time.
        done: Called with (index, trajectory) as each one ends, from the loop's thread: keep it short.
    """

    async def run() -> list[Trajectory]:
        found: dict[int, Trajectory] = {}
        async with aclosing(play_each(jobs, at_once=at_once)) as ended:
            async for index, trajectory in ended:
                found[index] = trajectory
                if done is not None:
                    done(index, trajectory)
        return [found[i] for i in range(len(jobs))]

    return portal().run(run())

"""The native vector environment: N episodes stepped concurrently on one loop, sharing one world.

Owns batching and autoreset. Does not know how a turn is played. Where Gymnasium's AsyncVectorEnv has a
process per environment, this one has a coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeAlias, TypeVar

import gymnasium as gym
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from atlas_gym.env import arguments
from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.env.episode import Episode
from atlas_gym.errors import ConfigError
from atlas_gym.types import Trajectory
from atlas_gym.wire.loop import portal

Bools: TypeAlias = npt.NDArray[np.bool_]
Floats: TypeAlias = npt.NDArray[np.float64]
T = TypeVar("T")
Step: TypeAlias = tuple[dict[str, Any], float, bool, bool, dict[str, Any]]


def _mode(mode: str | AutoresetMode) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    return AutoresetMode(arguments.one_of("autoreset mode", mode, [known.value for known in AutoresetMode]))


async def _together(parts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all at the same time; when one fails, nothing of the others goes on behind the caller's back."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in parts]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


class AtlasVectorEnv(gym.vector.VectorEnv[dict[str, Any], Sequence[str], Any]):
    """N `AtlasEnv`s behind Gymnasium's vector interface.

    Args:
        num_envs: How many episodes run at the same time.
        autoreset_mode: "NextStep" (Gymnasium's default), "SameStep" or "Disabled".
        **kwargs: Arguments of `AtlasEnv`.
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        **kwargs: Any,
    ) -> None:
        self.envs: list[AtlasEnv] = []  # first of all: a failed constructor is closed by its destructor
        self.num_envs = arguments.whole("num_envs", num_envs, least=1)
        self.envs = [AtlasEnv(**kwargs) for _ in range(self.num_envs)]
        self.autoreset_mode = _mode(autoreset_mode)
        self.metadata = {**AtlasEnv.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = self.envs[0].render_mode
        self.single_observation_space = self.envs[0].observation_space
        self.single_action_space = self.envs[0].action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._over = np.zeros(num_envs, dtype=np.bool_)
        self._observations: list[dict[str, Any]] = []
        self._finished: dict[int, Trajectory] = {}

    @property
    def finished_trajectories(self) -> dict[int, Trajectory]:
        """Index of the environment -> the episode that ended in the last step; kept until the next one.

        A judge reads them here even after an autoreset has started the next episode.
        """
        return dict(self._finished)

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """Every running episode so far."""
        return tuple(env.trajectory for env in self.envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Reset all environments, or those of `options["reset_mask"]` (bools of shape `(num_envs,)`).

        Args:
            seed: One for each environment (`[7] * n` is a GRPO group), or one that is counted up.
            options: Passed to every environment, less the mask; it is not changed.
        """
        seeds = self._seeds(seed)
        rest = dict(arguments.mapping("options", options, "{'task_id': 'core/...'}"))
        mask = self._mask(rest.pop("reset_mask", None))
        chosen = [i for i in range(self.num_envs) if mask[i]]
        episodes = [self.envs[i].draw(seeds[i], rest) for i in chosen]
        results = portal().run(self._open(chosen, episodes))
        infos: dict[str, Any] = {}
        if not self._observations:
            self._observations = [{} for _ in range(self.num_envs)]
        for i, (observation, info) in zip(chosen, results, strict=True):
            self._observations[i] = observation
            self._over[i] = False
            self._finished.pop(i, None)
            infos = self._add_info(infos, info, i)
        return self._batch(), infos

    def step(self, actions: Sequence[str]) -> tuple[dict[str, Any], Floats, Bools, Bools, dict[str, Any]]:
        """Play one message in every environment, all at the same time.

        Args:
            actions: `num_envs` texts. An environment that is over ignores its own: it is reset
                (NEXT_STEP) or stays as it is (DISABLED).
        """
        if isinstance(actions, str):
            raise ConfigError("step takes a list of messages, one for each environment, not one text.")
        texts = [arguments.message(text) for text in actions]
        if len(texts) != self.num_envs:
            raise ConfigError(f"{len(texts)} actions for {self.num_envs} environments; give one for each.")
        if not self._observations:
            raise ConfigError("There are no episodes yet. Call envs.reset() first.")
        fresh = {}
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            fresh = {i: self.envs[i].draw(None, None) for i in np.flatnonzero(self._over).tolist()}
        self._finished = {}
        steps = portal().run(self._play(texts, fresh))
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        terminated = np.zeros(self.num_envs, dtype=np.bool_)
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        infos: dict[str, Any] = {}
        ended: list[int] = []
        for i, (observation, reward, ended_well, cut, info) in enumerate(steps):
            rewards[i], terminated[i], truncated[i] = reward, ended_well, cut
            self._observations[i] = observation
            if (ended_well or cut) and not self._over[i]:
                ended.append(i)
                self._finished[i] = self.envs[i].trajectory
            if i not in ended or self.autoreset_mode is not AutoresetMode.SAME_STEP:
                infos = self._add_info(infos, info, i)
        self._over = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended:
            infos = self._reset_same_step(ended, steps, infos)
        return self._batch(), rewards, terminated, truncated, infos

    def _reset_same_step(
        self, ended: list[int], steps: Sequence[Step], infos: dict[str, Any]
    ) -> dict[str, Any]:
        episodes = [self.envs[i].draw(None, None) for i in ended]
        for i, (observation, info) in zip(ended, portal().run(self._open(ended, episodes)), strict=True):
            infos = self._add_info(infos, {"final_obs": steps[i][0], "final_info": steps[i][4]}, i)
            infos = self._add_info(infos, info, i)
            self._observations[i] = observation
            self._over[i] = False
        return infos

    async def _open(
        self, chosen: Iterable[int], episodes: Iterable[Episode]
    ) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        pairs = zip(chosen, episodes, strict=True)
        return await _together(self.envs[i].areset(episode) for i, episode in pairs)

    async def _play(self, texts: Sequence[str], fresh: dict[int, Episode]) -> list[Step]:
        async def one(i: int) -> Step:
            if i in fresh:
                observation, info = await self.envs[i].areset(fresh[i])
                return observation, 0.0, False, False, info
            return await self.envs[i].astep(texts[i])

        return await _together(one(i) for i in range(self.num_envs))

    def _batch(self) -> dict[str, Any]:
        empty: Any = create_empty_array(self.single_observation_space, n=self.num_envs, fn=np.zeros)
        batched = concatenate(self.single_observation_space, self._observations, empty)
        assert isinstance(batched, dict)
        return batched

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + i for i in range(self.num_envs)]
        seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ConfigError(f"{len(seeds)} seeds for {self.num_envs} environments; give one for each.")
        return seeds

    def _mask(self, mask: object) -> Bools:
        if mask is None:
            return np.ones(self.num_envs, dtype=np.bool_)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ConfigError(
                f"options['reset_mask'] must be a bool array of shape ({self.num_envs},), got {mask!r}."
            )
        if not mask.any() or (not self._observations and not mask.all()):
            raise ConfigError("options['reset_mask'] must choose something, and everything the first time.")
        return mask

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

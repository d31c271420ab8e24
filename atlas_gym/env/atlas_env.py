"""`Atlas-MCP-v0`: a thin Gymnasium shell around `Episode`.

Owns spaces, seeding, `info` and the choice of task. Does not know how a turn is played.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from atlas_gym.context.budget import Budget
from atlas_gym.env.episode import Episode, EpisodeSettings, StepResult
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.errors import ConfigError, unknown
from atlas_gym.spaces import Unicode
from atlas_gym.task.model import Task
from atlas_gym.toolspace.prompts import EXECUTIONS, EXPOSURES
from atlas_gym.types import LABELS, Trajectory
from atlas_gym.wire.loop import portal

TEXT_LENGTH: Final = 400_000
"""Characters that a prompt or result observation can hold (eager on a large toolspace is long)."""
ACTION_LENGTH: Final = 100_000
OPTIONS: Final = ("task_id",)
SPLITS: Final = ("train", "test", "unseen")


class AtlasEnv(gym.Env[dict[str, Any], str]):
    """Real MCP servers, isolated per episode, under an exact context budget (design.md, section 7).

    Args:
        suite: A shipped suite ("core") or the path of a suite's folder.
        split: "train", "test" or "unseen"; None plays all of the suite.
        exposure: How tools become known: "eager", "servers", "tools" or "search".
        execution: How tools are called: "json" or "code".
        budget: Fields of `Budget` to change, as a mapping.
        task_seed: Shifts the seeds of the suite's templates: the same tasks with other content.
        toolspace: The named set of servers that extra distractors are drawn from.
        servers: Servers to show in every episode beside the task's own, such as those of your mcp.json.
        distractors: How many servers to add from the toolspace, beside the task's own distractors.
        runtime: Where servers live: "process" or "memory".
        sandbox: Where code runs: "auto", "sealed", "monty" or "local" (trusted code only).
        tokenizer: Whose tokens are counted; None is the Qwen3 vocabulary, offline.
        template: The chat template: "qwen3", "chatml", Jinja text or a path.
        mcp_json: Path of your own `mcp.json`; its servers are known beside the shipped ones.
        strict: Refuse tools whose schema was not loaded.
        prose_answer: Prose without any call is the answer.
        render_mode: None or "ansi" (the last turn as text).

    Raises:
        ConfigError: An argument is wrong; the message names the closest right one. Nothing starts and
            nothing is read from disk before the first `reset`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - Gymnasium declares it as an instance variable
        "render_fps": 1,
        "render_modes": ["ansi"],
    }

    def __init__(
        self,
        *,
        suite: str = "core",
        split: str | None = None,
        exposure: str = "tools",
        execution: str = "code",
        budget: Mapping[str, Any] | None = None,
        task_seed: int = 0,
        toolspace: str = "core",
        servers: Sequence[str] = (),
        distractors: int = 0,
        runtime: str = "process",
        sandbox: str = "auto",
        tokenizer: str | None = None,
        template: str = "qwen3",
        mcp_json: str | None = None,
        strict: bool = True,
        prose_answer: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if exposure not in EXPOSURES:
            raise unknown("exposure", exposure, EXPOSURES)
        if execution not in EXECUTIONS:
            raise unknown("execution", execution, EXECUTIONS)
        if split is not None and split not in SPLITS:
            raise unknown("split", split, SPLITS)
        if render_mode not in (None, "ansi"):
            raise unknown("render mode", str(render_mode), ["ansi"])
        if distractors < 0:
            raise ConfigError(f"distractors={distractors} is negative; give 0 or more servers to add.")
        self.render_mode = render_mode
        self._split = split
        self._servers = tuple(servers)
        self._distractors = distractors
        self._config = WorldConfig(
            suite=suite,
            task_seed=task_seed,
            toolspace=toolspace,
            runtime=runtime,
            tokenizer=tokenizer,
            template=template,
            mcp_json=mcp_json,
        )
        self._settings = EpisodeSettings(
            exposure=exposure,
            execution=execution,
            budget=Budget.from_mapping(budget or {}),
            sandbox=sandbox,
            strict=strict,
            prose_answer=prose_answer,
        )
        count = spaces.Box(0, np.iinfo(np.int64).max, shape=(), dtype=np.int64)
        self.observation_space = spaces.Dict(
            {
                "prompt": Unicode(TEXT_LENGTH),
                "result": Unicode(TEXT_LENGTH),
                "context_used": count,
                "context_left": count,
                "turn": count,
            }
        )
        self.action_space = Unicode(ACTION_LENGTH)
        self._episode: Episode | None = None
        self._last = StepResult("", 0.0, False, False)

    @property
    def world(self) -> World:
        """What all episodes of this configuration share in this process; made at first use."""
        return World.shared(self._config)

    @property
    def episode(self) -> Episode:
        """The episode that is being played.

        Raises:
            ConfigError: `reset` was not called yet.
        """
        if self._episode is None:
            raise ConfigError("There is no episode yet. Call env.reset() first.")
        return self._episode

    @property
    def trajectory(self) -> Trajectory:
        """The episode so far, as a frozen record; whole once the episode is over."""
        return self.episode.trajectory()

    def tasks(self) -> tuple[Task, ...]:
        """The tasks that `reset` draws from, in the order that seeds index."""
        suite = self.world.suite
        return tuple(suite.tasks if self._split is None else suite.split(self._split))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start an episode: the seed picks task and extra distractors.

        Args:
            seed: The same seed gives the same episode; a group of rollouts shares one.
            options: `{"task_id": "core/..."}` names the task instead.

        Raises:
            ConfigError: Unknown task or option, or a server of the task cannot run on this machine.
        """
        episode = self._draw(seed, options)
        return portal().run(self.areset(episode))

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Play one message. Never raises for what the agent, a tool or a server did.

        Args:
            action: Text; a `SampledText` carries the sampled token ids, which are then used as they are.
        """
        return portal().run(self.astep(action))

    def draw(self, seed: int | None, options: Mapping[str, Any] | None) -> Episode:
        """Seed this environment and make (not open) the episode that the seed and options name."""
        return self._draw(seed, dict(options) if options is not None else None)

    def _draw(self, seed: int | None, options: dict[str, Any] | None) -> Episode:
        super().reset(seed=seed, options=options)
        given = options or {}
        for key in given:
            if key not in OPTIONS:
                raise unknown("reset option", key, OPTIONS)
        tasks = self.tasks()
        if not tasks:
            raise ConfigError(f"Suite {self._config.suite!r} has no task in split {self._split!r}.")
        index = int(self.np_random.integers(len(tasks)))
        task = self.world.suite.get(given["task_id"]) if "task_id" in given else tasks[index]
        visible = dict.fromkeys([*task.visible, *(self.world.catalog.get(n).name for n in self._servers)])
        pool = [name for name in self.world.toolspace if name not in visible]
        if self._distractors:
            if self._distractors > len(pool):
                raise ConfigError(
                    f"distractors={self._distractors}, but toolspace {self._config.toolspace!r} has only "
                    f"{len(pool)} servers that task {task.id!r} does not show already."
                )
            extra = self.np_random.choice(len(pool), self._distractors, replace=False)
            visible |= dict.fromkeys(pool[int(i)] for i in extra)
        return Episode(self.world, task, tuple(sorted(visible)), self._settings, seed)

    async def areset(self, episode: Episode) -> tuple[dict[str, Any], dict[str, Any]]:
        """The asynchronous half of `reset`, on the loop of `portal()`."""
        if self._episode is not None:
            await self._episode.close()
        self._episode = episode
        self._last = StepResult("", 0.0, False, False)
        await episode.open()
        return self._observation(), self.info()

    async def astep(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """The asynchronous half of `step`; after the end it repeats the last observation, reward 0."""
        episode = self.episode
        if episode.done:
            self._last = StepResult(self._last.observation, 0.0, self._last.terminated, self._last.truncated)
        else:
            self._last = await episode.step(action)
        last = self._last
        return self._observation(), last.reward, last.terminated, last.truncated, self.info()

    def _observation(self) -> dict[str, Any]:
        episode = self.episode
        return {
            "prompt": episode.prompt[:TEXT_LENGTH],
            "result": self._last.observation[:TEXT_LENGTH],
            "context_used": np.array(episode.context_used, dtype=np.int64),
            "context_left": np.array(episode.context_left, dtype=np.int64),
            "turn": np.array(len(episode.turns), dtype=np.int64),
        }

    def info(self) -> dict[str, Any]:
        """Flat facts of the episode; the same keys and types on every reset and step, and no clocks."""
        episode = self.episode
        ledger = episode.ledger()
        return {
            "task_id": episode.task.id,
            "stop": str(episode.stop),
            "error": episode.error,
            "invalid_reason": str(episode.invalid_reason),
            "reward_valid": int(not episode.invalid_reason),
            "tool_calls": episode.tool_calls,
            "invalid_actions": episode.invalid_actions,
            "infra_errors": episode.infra_errors,
            "isolated": int(self.world.isolated(episode.servers)),
            **{f"tokens/{label}": ledger[label] for label in LABELS},
        }

    def render(self) -> str | None:
        """The last turn as text, when `render_mode="ansi"`."""
        if self.render_mode is None:
            return None
        turns = self.episode.turns
        if not turns:
            return self.episode.prompt
        return f"[agent]\n{turns[-1].text}\n[environment]\n{turns[-1].observation}"

    def close(self) -> None:
        """End the episode's servers, sandbox and workspace. Idempotent."""
        episode, self._episode = self._episode, None
        if episode is not None:
            portal().run(episode.close())
        super().close()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # a constructor that failed half-way
            if self._episode is not None and not sys.is_finalizing():
                portal().submit(self._episode.close())

"""`Atlas-MCP-v0`: a thin Gymnasium shell around `Episode`.

Owns spaces, seeding, `info` and the choice of task. Does not know how a turn is played.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding

from atlas_gym.context.budget import Budget
from atlas_gym.env import arguments
from atlas_gym.env.episode import Episode, EpisodeSettings, StepResult
from atlas_gym.env.housing import RUNTIMES, Housing
from atlas_gym.env.tape import MODES as CASSETTE_MODES
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.errors import ConfigError
from atlas_gym.sandbox import KINDS as SANDBOXES
from atlas_gym.sandbox import choose
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

_inherited: list[Episode] = []
"""Episodes of a fork's parent, kept for ever: collecting one here could end what the parent still uses."""


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
        runtime: Where servers live: "process", "container" (a Docker engine's) or "memory".
        prefork: Fork Python servers from a parent that has imported them; False starts each one anew.
        spares: Workspaces with started servers to keep ready for each task that was played, in the
            background, eight in all at most; for tasks that are played again. See also `prewarm`.
        sandbox: Where code runs: "auto", "sealed", "container", "monty" or "local" (trusted code).
        tokenizer: Whose tokens are counted; None is the Qwen3 vocabulary, offline.
        template: The chat template: "qwen3", "chatml", Jinja text or a path.
        mcp_json: Path of your own `mcp.json`; its servers are known beside the shipped ones.
        cassette: Path of a recording (one file, see `atlas-gym cassette show`); None for none.
        cassette_mode: "record" plays live and records; "replay" plays the recording, with no server
            installed or started, and a call that it does not hold ends the episode as infra;
            "replay-or-live" goes on live then, and records what is new.
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
        prefork: bool = True,
        spares: int = 0,
        sandbox: str = "auto",
        tokenizer: str | None = None,
        template: str = "qwen3",
        mcp_json: str | None = None,
        cassette: str | None = None,
        cassette_mode: str = "replay",
        strict: bool = True,
        prose_answer: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None:
            arguments.one_of("render mode", render_mode, self.metadata["render_modes"])
        if mcp_json is not None and runtime == "memory":
            raise ConfigError("mcp_json needs runtime='process': no server of it can run in this process.")
        if cassette is None and cassette_mode != "replay":
            raise ConfigError(f"cassette_mode={cassette_mode!r} needs a cassette: give the path of a file.")
        self.render_mode = render_mode
        self._split = None if split is None else arguments.one_of("split", split, SPLITS)
        self._servers = arguments.texts("servers", servers, "my-server")
        self._distractors = arguments.whole("distractors", distractors)
        self._config = WorldConfig(
            suite=arguments.text("suite", suite, "core"),
            task_seed=arguments.whole("task_seed", task_seed),
            toolspace=arguments.text("toolspace", toolspace, "core"),
            runtime=arguments.one_of("runtime", runtime, RUNTIMES),
            prefork=arguments.flag("prefork", prefork),
            spares=arguments.whole("spares", spares),
            tokenizer=None if tokenizer is None else arguments.text("tokenizer", tokenizer, "qwen3"),
            template=arguments.text("template", template, "qwen3"),
            mcp_json=None if mcp_json is None else arguments.text("mcp_json", mcp_json, "mcp.json"),
            cassette=None if cassette is None else arguments.text("cassette", cassette, "episodes.cassette"),
            cassette_mode=arguments.one_of("cassette_mode", cassette_mode, CASSETTE_MODES),
        )
        self._settings = EpisodeSettings(
            exposure=arguments.one_of("exposure", exposure, EXPOSURES),
            execution=arguments.one_of("execution", execution, EXECUTIONS),
            budget=Budget.from_mapping(arguments.mapping("budget", budget, "{'turns': 30}")),
            sandbox=arguments.one_of("sandbox", sandbox, ("auto", *SANDBOXES)),
            strict=arguments.flag("strict", strict),
            prose_answer=arguments.flag("prose_answer", prose_answer),
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
        self._owner = 0
        self._stays: Housing | None = None
        self._token = object()
        self._busy = False
        self._last = StepResult("", 0.0, False, False)

    @property
    def world(self) -> World:
        """What all episodes of this configuration share in this process; made at first use."""
        return World.shared(self._config)

    @property
    def episode(self) -> Episode:
        """The episode that is being played.

        Raises:
            ConfigError: `reset` was not called yet, or only before a fork.
        """
        if self._episode is None:
            raise ConfigError("There is no episode. Call env.reset() first.")
        if self._owner != os.getpid():
            raise ConfigError(
                "This episode belongs to the process that this one was forked from. Call env.reset() here."
            )
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
            CassetteError: The cassette is missing, damaged or none at all.
            SandboxError: Code cannot be run here the way that `sandbox` says.
        """
        episode = self.draw(seed, options)
        return portal().run(self.areset(episode))

    def prewarm(self, seeds: Sequence[int] = (), *, task_ids: Sequence[str] = (), copies: int = 1) -> None:
        """Prepare in the background what the next episodes need: workspaces with started servers.

        Returns at once. Call it while the episodes before are still played. At most eight are kept at a
        time; what was wanted longest ago is given up. What is never played is put away when the last
        environment of the same configuration is closed. A replay prepares nothing.

        Args:
            seeds: Of the `reset`s to come.
            task_ids: Tasks that will be named in `options`.
            copies: Episodes of each, such as the size of a GRPO group.

        Raises:
            ConfigError: A task is unknown.
        """
        copies = arguments.whole("copies", copies)
        tasks = self.tasks()
        chosen = [tasks[int(seeding.np_random(seed)[0].integers(len(tasks)))] for seed in seeds]
        chosen += [self.world.suite.get(name) for name in arguments.texts("task_ids", task_ids, "core/...")]
        counts = Counter(task.id for task in chosen)
        if self.world.replays_only:
            return

        async def want() -> None:
            if self._owner != os.getpid():
                self._dropped()
            stays = self.world.housing
            self._owner, self._stays = os.getpid(), stays
            stays.hold(self._token)
            for task_id, count in counts.items():
                task = self.world.suite.get(task_id)
                stays.want(task.id, task.setup, task.servers, count * copies)

        portal().run(want())

    def step(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Play one message. Never raises for what the agent, a tool or a server did.

        Args:
            action: Text; a `SampledText` carries the sampled token ids, which are then used as they are.

        Raises:
            ConfigError: The action is no text at all, or `reset` was not called yet.
        """
        return portal().run(self.astep(arguments.message(action)))

    def draw(self, seed: int | None, options: Mapping[str, Any] | None) -> Episode:
        """Seed this environment and make (not open) the episode that the seed and options name."""
        super().reset(seed=seed)
        given = arguments.mapping("options", options, "{'task_id': 'core/...'}")
        for key in given:
            arguments.one_of("reset option", key, OPTIONS)
        tasks = self.tasks()
        if not tasks:
            raise ConfigError(f"Suite {self._config.suite!r} has no task in split {self._split!r}.")
        index = int(self.np_random.integers(len(tasks)))
        task = tasks[index]
        if "task_id" in given:
            task = self.world.suite.get(arguments.text("task_id", given["task_id"], task.id))
        if self._settings.execution == "code":
            choose(
                self._settings.sandbox
            )  # here it is an error; in the first cell it would end every episode
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
        """The asynchronous half of `reset`, on the loop of `portal()`; nothing is left of one that fails."""
        with self._alone():
            before = self._dropped()
            self._owner, self._stays = os.getpid(), self.world.housing
            self._stays.hold(self._token)
            if before is not None:
                await before.close()
            try:
                await episode.open()
            except BaseException:  # Ctrl-C too: nothing of a half-open episode may stay
                await episode.close()
                raise
            self._episode = episode
            self._last = StepResult("", 0.0, False, False)
        return self._observation(), self.info()

    async def astep(self, action: str) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """The asynchronous half of `step`; after the end it repeats the last observation, reward 0."""
        episode = self.episode
        with self._alone():
            if episode.done:
                last = self._last
                self._last = StepResult(last.observation, 0.0, last.terminated, last.truncated)
            else:
                try:
                    self._last = await episode.step(action)
                except BaseException:  # half a turn (Ctrl-C): nothing can go on from here
                    self._episode = None
                    await episode.close()
                    raise
        last = self._last
        return self._observation(), last.reward, last.terminated, last.truncated, self.info()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One reset or step at a time; entered on the loop only, so that asking and setting is one."""
        if self._busy:
            raise ConfigError(
                "This environment is in the middle of a step or reset, called from another thread or task. "
                "Wait for it, or make an environment for each."
            )
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _dropped(self) -> Episode | None:
        """The episode, which is no longer this environment's; None where a fork's parent still plays it."""
        episode, self._episode = self._episode, None
        if episode is not None and self._owner != os.getpid():
            _inherited.append(episode)
            return None
        return episode

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
        leaving = self._leave()
        if leaving is not None:
            portal().run(leaving)
        super().close()

    def _leave(self) -> Coroutine[Any, Any, None] | None:
        """What there is to end; None for an environment that was never reset, or not in this process."""
        here = self._owner == os.getpid()
        episode, stays, self._stays = self._dropped(), self._stays, None
        return _end(episode, stays, self._token) if stays is not None and here else None

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # a constructor that failed half-way
            leaving = self._leave()
            if leaving is not None and sys.is_finalizing():
                leaving.close()
            elif leaving is not None:
                portal().submit(leaving)


async def _end(episode: Episode | None, stays: Housing, token: object) -> None:
    try:
        if episode is not None:
            await episode.close()
    finally:
        await stays.release(token)

"""What people do wrong: arguments, reset options, messages that are none, threads, forks, interrupts."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atlas_gym import settings
from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.env.vector import AtlasVectorEnv
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.errors import AtlasError, ConfigError
from atlas_gym.rollout.variants import variant
from atlas_gym.wire.loop import portal

TOY: dict[str, Any] = {"suite": "toy", "runtime": "memory"}
TAKE = {"task_id": "toy/take_some-0000"}


def workspaces() -> set[str]:
    folder = settings.run_dir()
    return {path.name for path in folder.iterdir()} - {"stats"} if folder.is_dir() else set()


@pytest.mark.parametrize(
    ("kwargs", "said"),
    [
        ({"suite": 3}, "suite=3 is not a text"),
        ({"suite": ""}, "suite='' is not a text"),
        ({"split": 3}, "Unknown split 3"),
        ({"exposure": None}, "Unknown exposure None"),
        ({"exposure": ["tools"]}, r"Unknown exposure \['tools'\]"),
        ({"execution": "Code"}, "Did you mean 'code'"),
        ({"runtime": "proces"}, "Did you mean 'process'"),
        ({"sandbox": "seald"}, "Did you mean 'sealed'"),
        ({"sandbox": "seald", "execution": "json"}, "Did you mean 'sealed'"),
        ({"budget": 5}, "budget=5 is not a mapping"),
        ({"budget": [("turns", 3)]}, "is not a mapping"),
        ({"task_seed": -1}, "whole number of at least 0"),
        ({"task_seed": "1"}, "whole number of at least 0"),
        ({"task_seed": True}, "whole number of at least 0"),
        ({"toolspace": 3}, "toolspace=3 is not a text"),
        ({"servers": "kitchen"}, r"not a list of texts; write servers="),
        ({"servers": None}, "not a list of texts"),
        ({"servers": [1]}, "not a list of texts"),
        ({"distractors": "1"}, "whole number"),
        ({"distractors": 1.5}, "whole number"),
        ({"distractors": True}, "whole number"),
        ({"tokenizer": 5}, "tokenizer=5 is not a text"),
        ({"template": None}, "template=None is not a text"),
        ({"mcp_json": "mine.json"}, "runtime='process'"),
        ({"mcp_json": 3, "runtime": "process"}, "mcp_json=3 is not a text"),
        ({"strict": "no"}, "neither True nor False"),
        ({"prose_answer": 1}, "neither True nor False"),
        ({"render_mode": "human"}, "Known: ansi"),
    ],
)
def test_wrong_arguments_are_said_before_anything_starts(kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        AtlasEnv(**{**TOY, **kwargs})


def test_paths_and_numbers_of_numpy_are_as_good(tmp_path: Path) -> None:
    env = AtlasEnv(suite=settings.shipped("tasks") / "toy", runtime="memory", distractors=np.int64(1))  # type: ignore[arg-type]
    _, info = env.reset(seed=0)
    assert info["task_id"].startswith("toy/")
    env.close()


@pytest.mark.parametrize(
    "options",
    [{"task": "x"}, {1: 2}, {"task_id": None}, {"task_id": 3}, {"task_id": ["toy/x"]}, [1], "task_id"],
)
def test_wrong_reset_options_leave_nothing(options: Any) -> None:
    env, before = AtlasEnv(**TOY), workspaces()
    with pytest.raises(ConfigError):
        env.reset(options=options)
    assert workspaces() == before
    with pytest.raises(ConfigError, match=r"Call env\.reset"):
        env.step("x")


@pytest.mark.parametrize("action", [None, 5, b"x", ["x"]])
def test_a_message_that_is_no_text_is_the_caller_s_mistake(action: Any) -> None:
    env = AtlasEnv(**TOY)
    env.reset(seed=0)
    with pytest.raises(ConfigError, match="as a text"):
        env.step(action)
    assert env.step("<answer>x</answer>")[2], "the episode goes on as if nothing had been said"
    env.close()


def test_wrong_arguments_of_the_vector_env() -> None:
    for count in (0, -1, "2", 1.5):
        with pytest.raises(ConfigError, match="num_envs"):
            AtlasVectorEnv(count, **TOY)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="NextStep"):
        AtlasVectorEnv(1, autoreset_mode="nextstep", **TOY)
    envs = AtlasVectorEnv(2, **TOY)
    envs.reset(seed=0)
    with pytest.raises(ConfigError, match="not one text"):
        envs.step("ab")
    with pytest.raises(ConfigError, match="as a text"):
        envs.step(["a", 5])  # type: ignore[list-item]
    envs.close()


def test_closed_twice_and_reset_again() -> None:
    env = AtlasEnv(**TOY)
    env.close()
    env.reset(seed=0)
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(ConfigError, match=r"Call env\.reset"):
        env.step("x")
    env.reset(seed=0)
    env.close()


def test_two_threads_in_one_environment_are_told_and_harm_nothing() -> None:
    env = AtlasEnv(**TOY, execution="code")
    env.reset(options=TAKE)

    async def both() -> tuple[Any, ...]:
        steps = (env.astep("```python\nprint(7)\n```"), env.astep("```python\nprint(8)\n```"))
        return tuple(await asyncio.gather(*steps, return_exceptions=True))

    first, second = portal().run(both())
    assert first[0]["result"] == "7\n"
    assert isinstance(second, ConfigError)
    assert "an environment for each" in str(second)
    assert env.step("```python\nprint(9)\n```")[0]["result"] == "9\n"
    env.close()


def test_two_environments_in_two_threads() -> None:
    found: dict[int, float] = {}

    def work(number: int) -> None:
        env = AtlasEnv(**TOY, execution="code")
        env.reset(options=TAKE)
        env.step("```python\nprint(get_tools_info(['kitchen.take']))\n```")
        env.step("```python\nMCPServer('kitchen').take(item='rice', grams=300)\n```")
        found[number] = env.step("<answer>Done.</answer>")[1]
        env.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: 1.0, 1: 1.0}


def test_an_interrupted_step_ends_its_episode_and_leaves_nothing() -> None:
    before = workspaces()
    env = AtlasEnv(**TOY, execution="code")
    env.reset(options=TAKE)
    with pytest.raises(TimeoutError):  # the way of Ctrl-C, which cancels what runs as well
        portal().run(env.astep("```python\nwhile True: pass\n```"), timeout=0.05)
    assert workspaces() == before
    with pytest.raises(ConfigError, match=r"Call env\.reset"):
        env.step("x")
    env.reset(options=TAKE)
    env.close()


class SlowWorld(World):
    """Lays out no workspace before it is told to."""

    def __init__(self, config: WorldConfig) -> None:
        super().__init__(config)
        self.begun, self.go = threading.Event(), threading.Event()

    def sweep(self) -> None:
        self.begun.set()
        assert self.go.wait(60)


def test_an_interrupted_reset_leaves_no_workspace() -> None:
    before = workspaces()
    world = SlowWorld(WorldConfig(suite="toy", runtime="memory"))
    episode = variant("tools/json").episode(world, world.suite.get(TAKE["task_id"]))

    async def interrupted() -> None:
        opening = asyncio.ensure_future(episode.open())
        await asyncio.to_thread(world.begun.wait, 60)
        opening.cancel()
        await asyncio.sleep(0)
        world.go.set()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await episode.close()

    portal().run(interrupted())
    assert workspaces() == before


def test_a_vector_reset_that_fails_leaves_no_episode_open() -> None:
    before = workspaces()
    envs = AtlasVectorEnv(3, **TOY)
    envs.envs[1]._busy = True  # as if another thread were in the middle of it
    with pytest.raises(AtlasError, match="in the middle"):
        envs.reset(seed=0)
    envs.envs[1]._busy = False
    envs.close()
    assert workspaces() == before


# Python 3.12 and later warn of every fork beside a thread; that it works here is what the test shows.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_s_child_cannot_touch_the_parent_s_episode() -> None:
    env = AtlasEnv(**TOY, execution="code")
    env.reset(options=TAKE)
    env.step("```python\nx = 7\n```")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            env.step("```python\nx\n```")
        except ConfigError as exc:
            said = str(exc)
        env.close()
        env.reset(options=TAKE)
        said += env.step("```python\nprint('of its own')\n```")[0]["result"]
        env.close()
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    assert "forked" in said
    assert "of its own" in said
    assert env.step("```python\nx\n```")[0]["result"].strip() == "7"
    env.close()

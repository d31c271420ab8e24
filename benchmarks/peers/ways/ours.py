"""This package: `Sessions.call`, with respawned and with preforked servers, and a JSON step of `AtlasEnv`.

Each opens an episode's own workspace, lays out the task and starts the server behind its walls; the peers
get a workspace that was laid out for them before, and no walls.
"""

from __future__ import annotations

from typing import Any

from atlas_gym.context.budget import Budget
from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.rollout.gold import call_text
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task.setup import lay_out
from atlas_gym.types import ToolCall
from atlas_gym.wire.sessions import Sessions


class Respawn:
    """`Sessions` over the process runtime."""

    options: dict[str, Any] = {"prefork": False}  # noqa: RUF012 - overridden, never changed

    def __init__(self) -> None:
        self._world = World.shared(WorldConfig())
        self._runtime = ProcessRuntime(**self.options)
        self._server = ""
        self._workspace: Workspace | None = None
        self._sessions: Sessions | None = None

    async def open(self, start: dict[str, Any]) -> None:
        """Lay out a workspace; the server starts at the first call."""
        task = next(t for t in self._world.suite.tasks if t.id == start["task"])
        self._server = start["server"]
        self._workspace = Workspace.create("bench")
        lay_out(task.setup, self._workspace.files, self._workspace.state)
        installations = {self._server: self._world.installation(self._server)}
        self._sessions = Sessions(self._runtime, installations, self._workspace)

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """One call."""
        assert self._sessions is not None
        result = await self._sessions.call(ToolCall(self._server, tool, arguments))
        if result.outcome != "ok":
            raise RuntimeError(f"the tool failed: {result.outcome} {result.text}")
        return result.text

    async def close(self) -> None:
        """End the server and remove the workspace."""
        assert self._sessions is not None
        assert self._workspace is not None
        await self._sessions.close()
        self._workspace.close()

    async def end(self) -> None:
        """End what outlives episodes."""
        await self._runtime.aclose()


class Prefork(Respawn):
    """The same, with servers forked from a warmed parent."""

    options: dict[str, Any] = {"prefork": True}  # noqa: RUF012 - overridden, never changed


class Step:
    """`AtlasEnv.step` with a JSON call: parsing, budget, token counting and rendering included."""

    def __init__(self) -> None:
        self._env = AtlasEnv(
            exposure="eager", execution="json", strict=False, budget=Budget().lifted().to_dict()
        )
        self._server = ""

    def open(self, start: dict[str, Any]) -> None:
        """Reset; the server starts at the first call."""
        self._server = start["server"]
        self._env.reset(seed=0, options={"task_id": start["task"]})

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """One step."""
        text = call_text("call_tool", server=self._server, tool=tool, arguments=arguments)
        observation, _, terminated, truncated, info = self._env.step(text)
        if terminated or truncated or info["tokens/errors"]:
            raise RuntimeError(f"the step failed: {info['error']}")
        return str(observation["result"])

    def close(self) -> None:
        """End the episode."""
        self._env.close()


WAYS: dict[str, type[Respawn] | type[Step]] = {
    "ours-prefork": Prefork,
    "ours-respawn": Respawn,
    "ours-step": Step,
}

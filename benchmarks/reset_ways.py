"""The ways of getting a clean server that `benchmarks.reset` compares, each as: open, call once, put away."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from atlas_gym.context.budget import Budget
from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.rollout.gold import call_text
from atlas_gym.runtime import engine, image
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link, Runtime
from atlas_gym.runtime.pool import Pool
from atlas_gym.runtime.prefork import refusal
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task.model import Task
from atlas_gym.task.setup import lay_out
from atlas_gym.types import ToolCall
from atlas_gym.wire.session import Session
from atlas_gym.wire.sessions import Sessions
from atlas_gym.wire.stock import Key, Stock

SECONDS: Final = 60.0
SPARES: Final = 2
"""Kept ready at a time."""


@dataclass(frozen=True)
class Case:
    """A server, what it finds and its first call."""

    installation: Installation
    task: Task
    tool: str
    arguments: dict[str, Any]

    @property
    def server(self) -> str:
        """Its name."""
        return self.installation.server.name


class Laps:
    """Seconds of each part of one reset, and this process's own CPU in it."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._last = time.perf_counter(), time.process_time()

    def lap(self, name: str) -> None:
        """What was done since the last lap, or since the beginning, was this."""
        now = time.perf_counter(), time.process_time()
        self.wall[name] = self.wall.get(name, 0.0) + now[0] - self._last[0]
        self.cpu[name] = self.cpu.get(name, 0.0) + now[1] - self._last[1]
        self._last = now


class Way(Protocol):
    """One way. All coroutines run on one loop; `open` and `put_away` in one task."""

    @property
    def how(self) -> str:
        """How the last server was started, and why not otherwise."""

    @property
    def in_containers(self) -> bool:
        """Whether a container engine has a part in it."""

    async def open(self, laps: Laps) -> None:
        """From nothing to the first answer."""

    async def put_away(self) -> None:
        """End the server and what belonged to it."""

    async def ready(self) -> None:
        """Wait until the next reset finds what this way promises (spares)."""

    async def aclose(self) -> None:
        """End what outlives episodes."""


class _Watched:
    """A runtime that says when it has started a server, and how."""

    def __init__(self, inner: Runtime) -> None:
        self.inner = inner
        self.name = inner.name
        self.how = ""
        self.laps: Laps | None = None

    async def start(self, installation: Installation, workspace: Workspace) -> Link:
        link = await self.inner.start(installation, workspace)
        self.how = link.how
        if self.laps is not None:
            self.laps.lap("start")
        return link

    async def aclose(self) -> None:
        await self.inner.aclose()


class Ours:
    """A workspace, its setup, and `Sessions` over a runtime."""

    def __init__(self, case: Case, runtime: Runtime) -> None:
        self._case = case
        self._runtime = _Watched(runtime)
        self._stack = AsyncExitStack()

    @property
    def how(self) -> str:
        """How the last server was started, and why it was not forked."""
        hosts = getattr(self._runtime.inner, "hosts", None)
        reason = hosts.why_not(self._case.server) if hosts is not None else ""
        return f"{self._runtime.how}: {reason}" if reason else self._runtime.how

    @property
    def in_containers(self) -> bool:
        """Whether a container engine has a part in it."""
        return self._runtime.name == "container"

    async def open(self, laps: Laps) -> None:
        """From nothing to the first answer."""
        case = self._case
        workspace = Workspace.create("bench")
        self._stack.callback(workspace.close)
        laps.lap("workspace")
        lay_out(case.task.setup, workspace.files, workspace.state)
        laps.lap("lay out")
        self._runtime.laps = laps
        sessions = Sessions(self._runtime, {case.server: case.installation}, workspace)
        self._stack.push_async_callback(sessions.close)
        await sessions.start(case.server)
        laps.lap("handshake")
        result = await sessions.call(ToolCall(case.server, case.tool, case.arguments))
        if result.outcome != "ok":
            raise RuntimeError(f"{case.server}.{case.tool}: {result.outcome} {result.text[:500]}")
        laps.lap("call")

    async def put_away(self) -> None:
        """End the server and remove the workspace."""
        await self._stack.aclose()

    async def ready(self) -> None:
        """Nothing is kept ready."""

    async def aclose(self) -> None:
        """End warmed parents and containers."""
        await self._runtime.aclose()


class Spares:
    """Servers that were started, and shook hands, in workspaces laid out for the same task, before the reset.

    Each one that is taken is replaced in the background, while the episode goes on.
    """

    def __init__(self, case: Case, runtime: Runtime) -> None:
        self._case = case
        self._pool = Pool(runtime)
        self._key = Key(setup=case.task.id)
        manifest = case.installation.server.manifest
        self._stock = Stock(
            self._prepare, lambda _: manifest, bound=SPARES, taken=self._pool.adopt, stats=self._pool.spares
        )
        self._stack = AsyncExitStack()
        self.how = ""
        self.in_containers = runtime.name == "container"

    async def _prepare(self, server: str, workspace: Workspace) -> Session:
        link = await self._pool.background.start(self._case.installation, workspace)
        return await Session.open(link, name=server, seconds=SECONDS)

    def _make(self) -> Workspace:
        workspace = Workspace.create("bench-spare")
        lay_out(self._case.task.setup, workspace.files, workspace.state)
        return workspace

    async def ready(self) -> None:
        """Wait until the spares are there."""
        chosen = self._stock.want(self._key, [self._case.server], SPARES, self._make, refill=True)
        if not chosen:
            raise RuntimeError(f"{self._case.server} may not be a spare")
        await self._stock.settled()

    async def open(self, laps: Laps) -> None:
        """Take one, and call."""
        case = self._case
        spare = self._stock.take(self._key, [case.server])
        if spare is None:
            raise RuntimeError("no spare is ready")
        self._stack.callback(spare.workspace.close)
        installations = {case.server: case.installation}
        sessions = Sessions(self._pool, installations, spare.workspace, ready=spare.sessions)
        self._stack.push_async_callback(sessions.close)
        laps.lap("take")
        result = await sessions.call(ToolCall(case.server, case.tool, case.arguments))
        if result.outcome != "ok":
            raise RuntimeError(f"{case.server}.{case.tool}: {result.outcome} {result.text[:500]}")
        laps.lap("call")
        self.how = sessions.how[case.server]

    async def put_away(self) -> None:
        """End the server and remove the workspace."""
        await self._stack.aclose()

    async def aclose(self) -> None:
        """End spares, warmed parents and containers."""
        await self._stock.close()
        await self._pool.aclose()


class Sdk:
    """The SDK's client over a command; laying out the workspace is timed, as for all."""

    how = "sdk"

    def __init__(self, case: Case, command: Callable[[Case, Workspace], StdioServerParameters]) -> None:
        self._case = case
        self._command = command
        self._stack = AsyncExitStack()
        self._nowhere = open(os.devnull, "w")  # noqa: SIM115 - closed in `aclose`
        self.in_containers = command is docker_run

    async def open(self, laps: Laps) -> None:
        """From nothing to the first answer."""
        case = self._case
        workspace = Workspace.create("bench")
        self._stack.callback(workspace.close)
        laps.lap("workspace")
        lay_out(case.task.setup, workspace.files, workspace.state)
        laps.lap("lay out")
        arguments = case.arguments if self.in_containers else workspace.to_host(case.arguments, case.server)
        transport = stdio_client(self._command(case, workspace), errlog=self._nowhere)
        client = await self._stack.enter_async_context(Client(transport, mode="legacy"))
        laps.lap("start and handshake")
        result = await client.call_tool(case.tool, arguments)
        if result.is_error:
            raise RuntimeError(f"{case.server}.{case.tool}: {result.content}")
        laps.lap("call")

    async def put_away(self) -> None:
        """End the server and remove the workspace."""
        await self._stack.aclose()

    async def ready(self) -> None:
        """Nothing is kept ready."""

    async def aclose(self) -> None:
        """Nothing outlives an episode but the sink of standard error."""
        self._nowhere.close()


def local(case: Case, workspace: Workspace) -> StdioServerParameters:
    """The server's own command, without walls."""
    manifest = case.installation.server.manifest
    state = workspace.state(case.server)
    places = {"workspace": workspace.files, "state": state, "home": state / "home"}
    places["env"] = case.installation.directory
    command, *args = (manifest.expand(part, places) for part in case.installation.command)
    env = {name: manifest.expand(value, places) for name, value in manifest.env.items()}
    env["PATH"] = ":".join([*map(str, case.installation.path), "/usr/bin", "/bin"])
    env["HOME"] = str(state / "home")
    return StdioServerParameters(command=command, args=args, env=env, cwd=workspace.files)


_tags: dict[str, str] = {}


def _tag(installation: Installation) -> str:
    name = installation.server.name
    if name not in _tags:  # it asks the engine some things: once, as our runtime does
        _tags[name] = image.ensure(installation)
    return _tags[name]


def docker_run(case: Case, workspace: Workspace) -> StdioServerParameters:
    """`docker run -i` of our image of the server, without network."""
    manifest = case.installation.server.manifest
    places = {"workspace": "/workspace", "state": "/tmp", "home": "/tmp", "env": image.ROOT}
    options = ["run", "-i", "--rm", "--network", "none", "--user", f"{os.getuid()}:{os.getgid()}"]
    options += ["--volume", f"{workspace.files}:/workspace", "--workdir", "/workspace", "--env", "HOME=/tmp"]
    for name, value in manifest.env.items():
        options += ["--env", f"{name}={manifest.expand(value, places)}"]
    inside = (manifest.expand(part, places) for part in image.command(case.installation.server))
    program = shutil.which("docker") or "docker"
    return StdioServerParameters(
        command=program, args=[*options, _tag(case.installation), *inside], cwd=workspace.files
    )


class Gym:
    """`env.reset` and the first `env.step`. A reset ends the episode before it: nothing is put away apart."""

    def __init__(self, case: Case, **options: Any) -> None:
        self._case = case
        lifted = Budget().lifted().to_dict()
        self._env = AtlasEnv(exposure="tools", execution="json", strict=False, budget=lifted, **options)
        self.in_containers = options["runtime"] == "container"
        self.how = "gym"

    async def ready(self) -> None:
        """What the environment keeps ready it prepares by itself, while the meter waits for quiet."""

    async def open(self, laps: Laps) -> None:
        """Reset, and one step."""
        case = self._case
        await asyncio.to_thread(self._env.reset, seed=0, options={"task_id": case.task.id})
        laps.lap("reset")
        text = call_text("call_tool", server=case.server, tool=case.tool, arguments=case.arguments)
        observation, _, terminated, truncated, info = await asyncio.to_thread(self._env.step, text)
        if terminated or truncated or info["tokens/errors"]:
            raise RuntimeError(f"{info['error']} {observation['result'][:500]}")
        laps.lap("step")

    async def put_away(self) -> None:
        """The next reset does it."""

    async def aclose(self) -> None:
        """End the environment."""
        await asyncio.to_thread(self._env.close)


@dataclass(frozen=True)
class Kind:
    """A way by name."""

    name: str
    make: Callable[[Case], Way]
    refuse: Callable[[Case], str] = field(default=lambda case: "")
    """Why it cannot be measured with this server; "" when it can."""


def no_engine(case: Case) -> str:
    """Why no container can be started."""
    return engine.unavailable() or image.unavailable(case.installation.server)


def no_docker(case: Case) -> str:
    """Why `docker run` cannot be called."""
    return "" if shutil.which("docker") and not no_engine(case) else (no_engine(case) or "no docker program")


def not_forked(case: Case) -> str:
    """Why this server is not forked."""
    return refusal(case.installation)


def not_a_spare(case: Case) -> str:
    """Why this server is not kept ready."""
    return case.installation.server.manifest.respawn


GYM_SPARES: Final = (
    [Kind("gym spare", lambda case: Gym(case, runtime="process", prefork=True, spares=SPARES), not_a_spare)]
    if "spares" in inspect.signature(AtlasEnv).parameters
    else []
)
KINDS: Final = (
    Kind("respawn", lambda case: Ours(case, ProcessRuntime(prefork=False))),
    Kind("prefork", lambda case: Ours(case, ProcessRuntime(prefork=True)), not_forked),
    Kind("spare", lambda case: Spares(case, ProcessRuntime(prefork=True)), not_a_spare),
    Kind("container", lambda case: Ours(case, ContainerRuntime(prefork=False)), no_engine),
    Kind(
        "container-fork",
        lambda case: Ours(case, ContainerRuntime(prefork=True)),
        lambda case: no_engine(case) or not_forked(case),
    ),
    Kind(
        "container spare",
        lambda case: Spares(case, ContainerRuntime(prefork=True)),
        lambda case: no_engine(case) or not_a_spare(case),
    ),
    Kind("gym respawn", lambda case: Gym(case, runtime="process", prefork=False)),
    Kind("gym prefork", lambda case: Gym(case, runtime="process", prefork=True), not_forked),
    Kind("gym container", lambda case: Gym(case, runtime="container", prefork=True), no_engine),
    *GYM_SPARES,
    Kind("sdk stdio_client", lambda case: Sdk(case, local)),
    Kind("docker run -i", lambda case: Sdk(case, docker_run), no_docker),
)

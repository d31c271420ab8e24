"""What all episodes of one configuration share in one process.

Owns the suite, the servers' prepared tool texts, the runtime and the tokenizer, each made at first use
and kept. Does not know any episode.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

from atlas_gym.context.renderer import Renderer
from atlas_gym.context.tokenizer import Tokenizer, load_tokenizer
from atlas_gym.env import fleet
from atlas_gym.env.housing import RUNTIMES, Housing, laid_out, runtime
from atlas_gym.env.memory import MemoryServer, memory_servers
from atlas_gym.env.tape import Tape
from atlas_gym.errors import ConfigError, unknown
from atlas_gym.runtime import engine, image
from atlas_gym.runtime.catalog import Catalog, Server
from atlas_gym.runtime.gc import collect
from atlas_gym.runtime.install import Installation, unavailable
from atlas_gym.runtime.link import Runtime
from atlas_gym.runtime.memory import MemoryRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task.setup import Setup
from atlas_gym.task.suite import Suite, load_suite
from atlas_gym.toolspace.records import ServerTools, Toolset, parse_listing
from atlas_gym.wire.fake import serve
from atlas_gym.wire.infra import open_session
from atlas_gym.wire.session import Session
from atlas_gym.wire.sessions import Sessions

_log = logging.getLogger("atlas_gym")


@dataclass(frozen=True)
class WorldConfig:
    """Everything that decides what a world is; equal configurations share one world."""

    suite: str = "core"
    task_seed: int = 0
    toolspace: str = "core"
    runtime: str = "process"
    prefork: bool = True
    spares: int = 0
    tokenizer: str | None = None
    template: str = "qwen3"
    mcp_json: str | None = None
    cassette: str | None = None
    cassette_mode: str = "replay"


class World:
    """The shared half of an environment. Get it with `World.shared`."""

    _worlds: ClassVar[dict[tuple[int, WorldConfig], World]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, config: WorldConfig) -> None:
        if config.runtime not in RUNTIMES:
            raise unknown("runtime", config.runtime, RUNTIMES)
        self.config = config
        self._prepared: dict[str, fleet.Prepared] = {}
        self._tools: dict[str, ServerTools] = {}
        self._verified: set[str] = set()
        self._swept = False
        self._lock = threading.Lock()

    @classmethod
    def shared(cls, config: WorldConfig) -> World:
        """The world of this configuration in this process; a forked child makes its own."""
        key = (os.getpid(), config)
        with cls._guard:
            if key not in cls._worlds:
                cls._worlds[key] = cls(config)
            return cls._worlds[key]

    def sweep(self) -> None:
        """Remove what killed runs left behind; once per process."""
        with self._lock:
            due, self._swept = not self._swept, True
        if due:
            collect()
            if self.config.runtime == "container":
                engine.collect()

    @cached_property
    def suite(self) -> Suite:
        """The tasks."""
        return load_suite(self.config.suite, task_seed=self.config.task_seed)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What counts tokens."""
        return load_tokenizer(self.config.tokenizer)

    @cached_property
    def renderer(self) -> Renderer:
        """What turns messages into labelled token ids."""
        return Renderer(self.tokenizer, self.config.template)

    @cached_property
    def catalog(self) -> Catalog:
        """The servers that can be named."""
        if self._memory is not None:
            return Catalog({name: made.server(name) for name, made in self._memory.items()})
        return Catalog.load(mcp_json=Path(self.config.mcp_json) if self.config.mcp_json else None)

    @cached_property
    def toolspace(self) -> tuple[str, ...]:
        """The servers that extra distractors are drawn from, sorted."""
        if self._memory is not None:
            return tuple(sorted(self._memory))
        names = tuple(s.name for s in self.catalog if self.config.toolspace in s.manifest.tags)
        if not names:
            tags = {tag for s in self.catalog for tag in s.manifest.tags}
            raise unknown("toolspace", self.config.toolspace, tags)
        return names

    @cached_property
    def tape(self) -> Tape | None:
        """The cassette that is recorded or played.

        Raises:
            CassetteError: It is missing, damaged or none at all.
        """
        return Tape(self.config.cassette, self.config.cassette_mode) if self.config.cassette else None

    @property
    def replays_only(self) -> bool:
        """Whether no server may ever be installed, asked or started."""
        return self.tape is not None and self.tape.replays_only

    @cached_property
    def housing(self) -> Housing:
        """Where servers live."""
        return Housing(self._inner(), self._open_spare, lambda name: self.catalog.get(name).manifest)

    def _inner(self) -> Runtime:
        if self.replays_only:
            return MemoryRuntime({})
        if self._memory is not None:
            return MemoryRuntime({name: serve(made.fake) for name, made in self._memory.items()})
        return runtime(self.config.runtime, prefork=self.config.prefork)

    async def _open_spare(self, runtime: Runtime, name: str, workspace: Workspace) -> Session:
        installation = await asyncio.to_thread(self.installation, name)
        session = await open_session(runtime, installation, workspace, name)
        try:
            await self._verify(name, session, workspace)
        except BaseException:  # cancelled too: no server may stay without an owner
            await session.close()
            raise
        return session

    @cached_property
    def _memory(self) -> Mapping[str, MemoryServer] | None:
        if self.config.runtime != "memory":
            return None
        return memory_servers(self.config.suite)

    def unavailable(self, name: str) -> str:
        """Why a server cannot be used on this machine, or ""."""
        server = self.catalog.get(name)
        if self.tape is not None and self.tape.plays(server):
            return ""
        if self.tape is not None and self.tape.replays_only:
            return self.tape.missing(server)
        return self._unable(server)

    def _unable(self, server: Server) -> str:
        if self._memory is not None:
            return ""
        if self.config.runtime == "container" and not server.manifest.url:
            return image.unavailable(server) or unavailable(server)
        return unavailable(server)

    def isolated(self, names: Iterable[str]) -> bool:
        """Whether every one of these servers has an instance of its own per episode."""
        return not any(self.catalog.get(name).manifest.url for name in names)

    def toolset(self, names: Iterable[str]) -> Toolset:
        """The tools of these servers; installs what is missing at first use. Slow then: not for the loop.

        Raises:
            ConfigError: A server is unknown, or cannot run on this machine.
        """
        return Toolset([self._server_tools(name) for name in names])

    def _server_tools(self, name: str) -> ServerTools:
        with self._lock:
            if name not in self._tools:
                self._tools[name] = self._read_tools(name)
            return self._tools[name]

    def _read_tools(self, name: str) -> ServerTools:
        server = self.catalog.get(name)
        manifest = server.manifest
        shapes: Mapping[str, str] = {}
        recorded = self.tape.recorded(server) if self.tape else None
        if recorded is not None:
            raw: Iterable[dict[str, Any]] = recorded.tools
            lock = fleet.read_lock(server)
            shapes = lock.shapes if lock else {}
        elif self._memory is not None:
            raw = self._memory[name].listing()
        else:
            prepared = self._prepare(server)
            raw, shapes = prepared.raw_tools, prepared.shapes
        if self.tape is not None and recorded is None:
            raw = self.tape.keep(server, raw, self._prepared.get(name))
        return parse_listing(name, manifest.description, raw, read_only=manifest.read_only, shapes=shapes)

    def _prepare(self, server: Server) -> fleet.Prepared:
        """Make a server ready to be started; the caller holds the lock.

        Raises:
            ConfigError: It cannot run on this machine.
        """
        if server.name not in self._prepared:
            reason = self._unable(server)
            if reason:
                raise ConfigError(f"Server {server.name!r} cannot run on this machine: {reason}")
            self._prepared[server.name] = fleet.prepare(server, say=_log.info)
            if self.config.runtime == "container" and not server.manifest.url:
                image.ensure(server, say=_log.info)
        return self._prepared[server.name]

    def prepare(self, names: Iterable[str]) -> None:
        """Make servers ready whose tools are known from a cassette. Slow: not for the loop.

        Raises:
            ConfigError: One cannot run on this machine.
        """
        with self._lock:
            for name in names:
                if self._memory is None:
                    self._prepare(self.catalog.get(name))

    def installation(self, name: str) -> Installation:
        """The installed server, for the runtime."""
        self._server_tools(name)
        if self._memory is not None:
            return self._memory[name].installation(name)
        with self._lock:
            return self._prepare(self.catalog.get(name)).installation

    def read_only(self, server: str, tool: str) -> bool:
        """Whether our manifest says that a tool changes nothing."""
        return tool in self.catalog.get(server).manifest.read_only

    def sessions(
        self, workspace: Workspace, setup: Setup, ready: Mapping[str, Session] | None = None
    ) -> Sessions:
        """The sessions of one episode, whose workspace began with this set-up; all but the `ready` closed."""

        async def verify(name: str, session: Session) -> None:
            await self._verify(name, session, workspace)

        return Sessions(
            self.housing.pool,
            self.installation,
            workspace,
            verify=verify,
            ready=ready,
            replica=partial(laid_out, "replica", setup),
        )

    async def _verify(self, name: str, session: Session, workspace: Workspace) -> None:
        """Compare a server with its lock, once per process.

        Raises:
            LockError: Names the difference.
        """
        if name in self._verified or self._memory is not None:
            return
        await fleet.verify(self._prepared[name], session, workspace)
        self._verified.add(name)

"""The `container` runtime: each server in a container of its own, or a fork in one that is warm.

Owns the choice between the two, the images in use and the bound on starting. Does not know MCP, how a
container lives and ends (`container_link`, `container_host`) or what it may do (`container_spec`).
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from atlas_gym.errors import InstallError, LockError, StartError
from atlas_gym.runtime import engine, image, kernel
from atlas_gym.runtime.aside import aside
from atlas_gym.runtime.container_files import identity
from atlas_gym.runtime.container_host import ContainerHosts, Shared
from atlas_gym.runtime.container_link import ContainerLink
from atlas_gym.runtime.container_spec import Ground, Image, plan
from atlas_gym.runtime.host import HostGone
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.process import ProcessLink
from atlas_gym.runtime.workspace import Workspace

_TMP_MB: Final = 64
_HOSTS: Final = 2
"""Warmed parents that may die under one start before the server gets a container of its own."""


class ContainerRuntime:
    """Starts servers in containers of a Docker engine on this machine.

    Args:
        prefork: Whether Python servers that their manifests allow it for are forked from a warmed parent in a
            container that they share, behind walls of the kernel's. Otherwise, and for every server with
            `walls = "required"`, each episode's server has a container of its own.
        base: Image that images of servers are built on; None for what the settings say.
        images: By name of a server: an image that holds its command already, so that none is built.
        max_starting: Servers that may be starting at the same time, per event loop. A server is starting
            until its first bytes, its end, or its manifest's `start_seconds`.
        cpus: Processors that one server's container may keep busy.
        shared: How much a container of forks may hold.
    """

    name: str = "container"

    def __init__(
        self,
        *,
        prefork: bool = True,
        base: str | None = None,
        images: Mapping[str, str] | None = None,
        max_starting: int = 4,
        cpus: float = 1.0,
        shared: Shared | None = None,
    ) -> None:
        self.hosts: ContainerHosts | None = None
        """The warmed parents, once there may be some: what lives, why a server has none, how to end one."""
        self._prefork = prefork
        self._shared = shared or Shared()
        self._base = base
        self._given = dict(images or {})
        self._max_starting = max_starting
        self._cpus = cpus
        self._looking = threading.Lock()
        self._ground: Ground | None = None
        self._images: dict[tuple[str, Path], Image] = {}
        self._slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._slots = weakref.WeakKeyDictionary()
        self._last: weakref.WeakValueDictionary[tuple[Path, str], ContainerLink]
        self._last = weakref.WeakValueDictionary()

    async def start(self, installation: Installation, workspace: Workspace) -> Link:
        """Start one server for one episode.

        Raises:
            StartError: No engine answers, there is no image, or its program cannot be executed; holds the
                command to try.
            StorageError: The episode's directories cannot be made or given to the container's user.
        """
        held = await self._image(installation)
        ground = await self._standing()
        free = await self._slot(installation.server.manifest.limits.start_seconds)
        try:
            link: Link | None = await self._forked(installation, workspace, held, free)
            return link or await self._cold(installation, workspace, held, ground, free)
        except BaseException:  # cancelled too: the place is given back
            free()
            raise

    async def _forked(
        self, installation: Installation, workspace: Workspace, held: Image, free: Callable[[], None]
    ) -> ProcessLink | None:
        """A fork of the server's warmed parent; None where it has none."""
        if self.hosts is None:
            return None
        inside = self.hosts.inside(installation, held)
        for _ in range(_HOSTS):
            host = await self.hosts.get(inside)
            if host is None:
                return None
            launch = await asyncio.to_thread(self.hosts.planned, inside, workspace)
            try:
                link = ProcessLink(launch, free, host, how="container-fork")
                await link.begin()
            except HostGone:
                if host.alive():  # one that does not answer
                    await asyncio.to_thread(self.hosts.end, host.plan.workspace.root.name)
                continue
            return link
        return None

    async def _cold(
        self,
        installation: Installation,
        workspace: Workspace,
        held: Image,
        ground: Ground,
        free: Callable[[], None],
    ) -> ContainerLink:
        """A container of its own."""
        key = (workspace.root, installation.server.name)
        before = self._last.get(key)
        if before is not None:  # what it could still write is about to be mounted again
            await before.aclose()
            if not before.removed:
                raise StartError(
                    f"Server {before.name!r} cannot be started again in this episode: its earlier container "
                    "could not be removed. Look at the engine with: docker ps -a."
                )
        link = ContainerLink(plan(installation, workspace, held, ground), ground.who, free)
        self._last[key] = link
        await link.begin()
        return link

    async def aclose(self) -> None:
        """End the warmed parents and the servers forked from them; later starts make new ones."""
        if self.hosts is not None:
            await aside(self.hosts.close)

    async def _standing(self) -> Ground:
        if self._ground is None:
            await asyncio.to_thread(self._look)
        assert self._ground is not None
        return self._ground

    def _look(self) -> None:
        """See what the engine and the kernel can do, once for all loops of this process."""
        with self._looking:
            if self._ground is not None:
                return
            facts = engine.facts()
            cpus = float(facts.cpus or 1)
            who = identity(rootless=facts.rootless)
            ground = Ground(who, facts.user_namespace, min(self._cpus, cpus), cpus, _TMP_MB)
            walls = kernel.probe()
            if self._prefork and walls.landlock_abi and walls.seccomp:  # what else would part the forks?
                self.hosts = ContainerHosts(walls, ground, self._shared)
            self._ground = ground

    async def _image(self, installation: Installation) -> Image:
        """The server's image, built where it is missing."""
        server = installation.server
        if server.name in self._given:
            return Image(self._given[server.name], installation.command)
        key = (server.name, installation.directory)
        if key not in self._images:
            try:
                reference = await asyncio.to_thread(image.ensure, installation, base=self._base)
            except (InstallError, LockError) as exc:
                raise StartError(f"Server {server.name!r} cannot be started in a container: {exc}") from exc
            self._images[key] = Image(reference, image.command(server), (("PATH", image.PATH),))
        return self._images[key]

    async def _slot(self, seconds: float) -> Callable[[], None]:
        """Wait for one of the places for starting servers; what gives it back, at the latest after a time."""
        loop = asyncio.get_running_loop()
        slots = self._slots.setdefault(loop, asyncio.Semaphore(self._max_starting))
        await slots.acquire()
        taken = True

        def free() -> None:
            nonlocal taken
            if taken:
                taken = False
                slots.release()
                timer.cancel()

        timer = loop.call_later(seconds, free)
        return free

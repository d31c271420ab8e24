"""Servers of two sorts in one episode: those that are started, and those that run already.

Owns the choice, by the server's manifest alone. Does not know either sort.
"""

from __future__ import annotations

from atlas_gym.runtime.http import HttpRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link, Runtime
from atlas_gym.runtime.workspace import Workspace


class ByServer:
    """A runtime that reaches servers with a url over HTTP, and starts all others.

    Args:
        started: Where servers without a url live.
        running: What reaches the others.
    """

    def __init__(self, started: Runtime, running: Runtime | None = None) -> None:
        self.started = started
        self._running: Runtime = running or HttpRuntime()

    @property
    def name(self) -> str:
        """The name of the runtime that starts servers."""
        return self.started.name

    async def start(self, installation: Installation, workspace: Workspace) -> Link:
        """Start one server, or open a session with it.

        Raises:
            StartError: As the runtime that is responsible says.
        """
        runtime = self._running if installation.server.manifest.url else self.started
        return await runtime.start(installation, workspace)

    async def aclose(self) -> None:
        """End what outlives episodes, in both."""
        await self.started.aclose()
        await self._running.aclose()

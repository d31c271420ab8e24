"""The seam between a place where servers live and whoever talks to them.

Owns the protocols `ByteStream`, `Link` and `Runtime`. Does not know what the bytes mean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from atlas_gym.runtime.install import Installation
    from atlas_gym.runtime.workspace import Workspace


class ByteStream(Protocol):
    """One end of a pair of byte streams."""

    async def send(self, data: bytes) -> None:
        """Write all of `data`, waiting while the other end does not read.

        Raises:
            WireError: The other end is gone.
        """

    async def receive(self) -> bytes:
        """Any chunk of bytes; `b""` at the end of the stream."""


class Link(ByteStream, Protocol):
    """One started server. All coroutines run on the loop that started it."""

    @property
    def name(self) -> str:
        """Name of the server."""

    @property
    def walls(self) -> str:
        """What holds it, for traces: "landlock+seccomp", "none", "memory"."""

    @property
    def how(self) -> str:
        """How it was started: "spawn", "fork", "container", "container-fork", "http" or "memory"."""

    @property
    def own_paths(self) -> bool:
        """Whether "/workspace", "/home/agent" and "/tmp/<server>" are real paths to this server.

        It has a container of its own then, and nothing is translated on the way to it.
        """

    @property
    def command(self) -> str:
        """A shell line that starts the same server by hand, for error messages."""

    @property
    def exit_status(self) -> int | None:
        """Exit status, negative for the signal that ended it; None while it runs."""

    def stderr_tail(self) -> str:
        """Its last lines of standard error, secrets replaced."""

    async def aclose(self) -> None:
        """End it and everything it started. Idempotent; never hangs; leaves no zombie."""


class Runtime(Protocol):
    """A place where servers live."""

    @property
    def name(self) -> str:
        """What `gym.make(runtime=...)` calls it."""

    async def start(self, installation: Installation, workspace: Workspace) -> Link:
        """Start one server for one episode.

        Raises:
            StartError: With its last lines of standard error and the command to try.
        """

    async def aclose(self) -> None:
        """End what outlives episodes: warmed parents, containers, pools. Idempotent; starts may follow."""

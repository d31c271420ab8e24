"""The `memory` runtime: servers that are coroutines of this process, for tests and for fakes.

Owns the two bounded byte queues between a server and its client. Does not know what a server says.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from atlas_gym.errors import StartError, WireError, unknown
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.workspace import Workspace

_BUFFER: Final = 1 << 16
"""Bytes in flight in one direction, as in a pipe."""


class _Pipe:
    """A bounded buffer with one reader; writers wait while it is full."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._closed = False
        self._changed = asyncio.Condition()

    async def write(self, data: bytes) -> None:
        rest = memoryview(data)
        async with self._changed:
            while rest:
                await self._changed.wait_for(lambda: self._closed or len(self._data) < _BUFFER)
                if self._closed:
                    raise WireError("The other end of the stream is gone.")
                room = _BUFFER - len(self._data)
                self._data += rest[:room]
                rest = rest[room:]
                self._changed.notify_all()

    async def read(self) -> bytes:
        async with self._changed:
            await self._changed.wait_for(lambda: self._closed or bool(self._data))
            data = bytes(self._data)
            self._data.clear()
            self._changed.notify_all()
            return data

    async def close(self) -> None:
        async with self._changed:
            self._closed = True
            self._changed.notify_all()


class MemoryStream:
    """The server's end. Beside the bytes it knows the workspace that it serves."""

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, workspace: Workspace) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self.workspace = workspace

    async def send(self, data: bytes) -> None:
        """Write all of `data` to the client."""
        await self._outgoing.write(data)

    async def receive(self) -> bytes:
        """The client's next bytes; `b""` at the end."""
        return await self._incoming.read()


class MemoryLink:
    """The client's end, and the task that runs the server."""

    walls: Final = "memory"
    how: Final = "memory"
    own_paths: Final = False

    def __init__(
        self, name: str, serve: Callable[[MemoryStream], Awaitable[None]], workspace: Workspace
    ) -> None:
        self.name = name
        self.command = f"(the server {name!r} runs inside this process)"
        self._to_server, self._to_client = _Pipe(), _Pipe()
        self._status: int | None = None
        self._error = ""
        stream = MemoryStream(self._to_server, self._to_client, workspace)
        self._task = asyncio.get_running_loop().create_task(self._run(serve, stream))

    async def _run(self, serve: Callable[[MemoryStream], Awaitable[None]], stream: MemoryStream) -> None:
        self._status = -15
        try:
            await serve(stream)
            self._status = 0
        except Exception:  # noqa: BLE001 - a server's crash is data for its client, as it is for a process
            self._status = 1
            self._error = traceback.format_exc()[-8192:]
        finally:
            await asyncio.shield(self._hang_up())

    async def _hang_up(self) -> None:
        await self._to_client.close()
        await self._to_server.close()

    @property
    def exit_status(self) -> int | None:
        """0 after its end, 1 after an exception, -15 when it was closed; None while it runs."""
        return self._status if self._task.done() else None

    def stderr_tail(self) -> str:
        """The traceback that ended it, or nothing."""
        return self._error

    async def send(self, data: bytes) -> None:
        """Write all of `data` to the server.

        Raises:
            WireError: The server has ended.
        """
        await self._to_server.write(data)

    async def receive(self) -> bytes:
        """The server's next bytes; `b""` at the end."""
        return await self._to_client.read()

    async def aclose(self) -> None:
        """Cancel the server and wait for its end. Idempotent."""
        self._task.cancel()
        await asyncio.wait([self._task])


class MemoryRuntime:
    """Runs servers given as coroutine functions.

    Args:
        servers: Name -> coroutine function, which is given the server's end of the stream.
    """

    name: str = "memory"

    def __init__(self, servers: Mapping[str, Callable[[MemoryStream], Awaitable[None]]]) -> None:
        self._servers = dict(servers)

    async def start(self, installation: Installation, workspace: Workspace) -> MemoryLink:
        """Start one server.

        Raises:
            StartError: There is no server of that name.
        """
        name = installation.server.name
        if name not in self._servers:
            raise StartError(str(unknown("in-process server", name, self._servers)))
        return MemoryLink(name, self._servers[name], workspace)

    async def aclose(self) -> None:
        """Nothing here outlives an episode."""

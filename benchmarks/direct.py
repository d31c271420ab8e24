"""What `step` is measured beside: the SDK's raw request, and raw JSON lines, to the same server.

Both start the server as its installation says, in a workspace of their own, without walls or guards.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from atlas_gym.env.world import World
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task.model import Task
from atlas_gym.task.setup import lay_out
from atlas_gym.wire.loop import portal

PROTOCOL: Final = "2025-06-18"
CLIENT: Final = {"name": "benchmark", "version": "1"}


class Start:
    """Command, variables and directory of one server in a fresh workspace."""

    def __init__(self, world: World, task: Task, server: str) -> None:
        self.workspace = Workspace.create(f"bench-{server}")
        lay_out(task.setup, self.workspace.files, self.workspace.state)
        installation = world.installation(server)
        manifest = installation.server.manifest
        state = self.workspace.state(server)
        places: dict[str, Path | str] = {
            "workspace": self.workspace.files,
            "state": state,
            "home": state / "home",
            "env": installation.directory,
        }
        self.command = [manifest.expand(part, places) for part in installation.command]
        self.env = {name: manifest.expand(value, places) for name, value in manifest.env.items()}
        self.env["PATH"] = ":".join(str(p) for p in (*installation.path, "/usr/bin", "/bin"))
        self.env["HOME"] = str(state / "home")


class RawLines:
    """One JSON object per line, written and read by hand."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self._process = subprocess.Popen(
            start.command,
            env=start.env,
            cwd=start.workspace.files,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._count = 0
        about = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": CLIENT}
        self.request("initialize", about)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def call(self, tool: str, arguments: dict[str, Any]) -> float:
        """Seconds of one tool call."""
        began = time.perf_counter()
        self.request("tools/call", {"name": tool, "arguments": arguments})
        return time.perf_counter() - began

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its result."""
        self._count += 1
        self._send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        assert self._process.stdout is not None
        while True:
            answer = json.loads(self._process.stdout.readline())
            if answer.get("id") == self._count:
                result: dict[str, Any] = answer["result"]
                return result

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """End the server and remove its workspace."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._start.workspace.close()


class SdkRequest:
    """The SDK's stdio transport and `send_raw_request`, on the same loop as everything else.

    The time is taken inside the loop, so that the way from the caller's thread into it, which `step` pays,
    is not charged to the SDK.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._asks: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue()
        self._times: asyncio.Queue[float] = asyncio.Queue()
        self._life = portal().submit(self._live())
        portal().run(self._times.get())

    async def _live(self) -> None:
        from mcp import ClientSession
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

        command, *args = self._start.command
        given = StdioServerParameters(
            command=command, args=args, env=self._start.env, cwd=self._start.workspace.files
        )
        with open("/dev/null", "w") as nowhere:  # noqa: ASYNC230 - opened once, before anything is timed
            async with stdio_client(given, errlog=nowhere) as (read, write):
                dispatcher: Any = JSONRPCDispatcher(read, write)
                async with ClientSession(dispatcher=dispatcher) as session:
                    await session.initialize()
                    await self._times.put(0.0)
                    while (asked := await self._asks.get()) is not None:
                        tool, arguments = asked
                        params = {"name": tool, "arguments": arguments}
                        began = time.perf_counter()
                        await dispatcher.send_raw_request("tools/call", params, {"timeout": 30.0})
                        await self._times.put(time.perf_counter() - began)

    def call(self, tool: str, arguments: dict[str, Any]) -> float:
        """Seconds of one tool call."""

        async def ask() -> float:
            await self._asks.put((tool, arguments))
            return await self._times.get()

        return portal().run(ask())

    def close(self) -> None:
        """End the session and remove its workspace."""
        portal().run(self._asks.put(None))
        self._life.result(20)
        self._start.workspace.close()

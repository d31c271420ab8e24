"""OpenEnv's `MCPEnvironment`, which takes a FastMCP server object and knows no server processes.

`openenv-proxy` puts FastMCP's proxy of a stdio server into it and uses the documented, synchronous `step`.
The proxy has to start a server for every request (`keep_alive` off): with FastMCP's default the environment's
own listing of tools, in an event loop of its own, leaves a transport that every step finds closed.
`openenv-forward` is the best that a user can write: a FastMCP tool, forwarding to a held FastMCP client, and
`step_async` inside `mcp_session()`, as OpenEnv's own WebSocket server does.
"""

from __future__ import annotations

import importlib
from contextlib import AsyncExitStack
from typing import Any

_base: Any = importlib.import_module("openenv.core.env_server.mcp_environment").MCPEnvironment
_types: Any = importlib.import_module("openenv.core.env_server.mcp_types")
_state: Any = importlib.import_module("openenv.core.env_server.types").State
_fastmcp: Any = importlib.import_module("fastmcp")
_proxy: Any = importlib.import_module("fastmcp.server").create_proxy


class Environment(_base):  # type: ignore[misc]
    """The least that its abstract class asks for."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Any:
        """Nothing of its own: the proxied server is the state."""
        return self.step(_types.ListToolsAction())

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        raise RuntimeError(f"no action but MCP's is known: {action}")

    @property
    def state(self) -> Any:
        """None of its own."""
        return _state()


def _config(start: dict[str, Any], **more: Any) -> dict[str, Any]:
    given = {k: start[k] for k in ("command", "args", "env", "cwd")}
    return {"mcpServers": {"one": {**given, **more}}}


def _text(observation: Any) -> str:
    if observation.error is not None:
        raise RuntimeError(f"the tool failed: {observation.error}")
    result = observation.result
    content = result["content"] if isinstance(result, dict) else result.content
    return "\n".join(str(getattr(block, "text", block)) for block in content)


class Proxy:
    """`step(CallToolAction(...))` over a proxied server."""

    def __init__(self) -> None:
        self._env: Any = None

    def open(self, start: dict[str, Any]) -> None:
        """Make the environment."""
        self._env = Environment(_proxy(_config(start, keep_alive=False)))

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """One step."""
        return _text(self._env.step(_types.CallToolAction(tool_name=tool, arguments=arguments)))

    def close(self) -> None:
        """End it."""
        self._env.close()
        self._env = None


class Forward:
    """`step_async` inside `mcp_session()`, with one tool that forwards to a held client."""

    def __init__(self) -> None:
        self._env: Any = None
        self._stack = AsyncExitStack()

    async def open(self, start: dict[str, Any]) -> None:
        """Start the server, make the environment, hold its session."""
        client = await self._stack.enter_async_context(_fastmcp.Client(_config(start, keep_alive=False)))
        server = _fastmcp.FastMCP("forward")

        async def read_query(query: str) -> str:
            result = await client.call_tool("read_query", {"query": query})
            return str(result.content[0].text)

        server.tool()(read_query)
        self._env = Environment(server)
        await self._stack.enter_async_context(self._env.mcp_session())

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """One step."""
        return _text(await self._env.step_async(_types.CallToolAction(tool_name=tool, arguments=arguments)))

    async def close(self) -> None:
        """End the session, the server and the environment."""
        await self._stack.aclose()
        self._env.close()


WAYS = {"openenv-proxy": Proxy, "openenv-forward": Forward}

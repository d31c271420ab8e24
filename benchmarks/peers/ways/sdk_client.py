"""The MCP SDK's own `Client`, told that the server is an old one, so that it does not probe."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent


class Sdk:
    """A held client."""

    def __init__(self) -> None:
        self._client: Any = None
        self._stack = AsyncExitStack()

    async def open(self, start: dict[str, Any]) -> None:
        """Start the server and shake hands."""
        given = StdioServerParameters(**{k: start[k] for k in ("command", "args", "env", "cwd")})
        self._client = await self._stack.enter_async_context(Client(given, mode="legacy"))

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """One call."""
        result = await self._client.call_tool(tool, arguments)
        (block,) = result.content
        if result.is_error or not isinstance(block, TextContent):
            raise RuntimeError(f"the tool failed: {result.content}")
        return block.text

    async def close(self) -> None:
        """End the server."""
        await self._stack.aclose()


WAYS = {"sdk-client": Sdk}

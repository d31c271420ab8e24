"""mcp-use: one session of its `MCPClient`, and `session.call_tool`."""

from __future__ import annotations

import importlib
import os
from typing import Any

os.environ["MCP_USE_ANONYMIZED_TELEMETRY"] = "false"
_client: Any = importlib.import_module("mcp_use").MCPClient


class McpUse:
    """A held session."""

    def __init__(self) -> None:
        self._made: Any = None
        self._session: Any = None

    async def open(self, start: dict[str, Any]) -> None:
        """Start the server and shake hands."""
        given = {k: start[k] for k in ("command", "args", "env", "cwd")}
        self._made = _client({"mcpServers": {"one": given}})
        self._session = await self._made.create_session("one")

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """One call."""
        result = await self._session.call_tool(tool, arguments)
        if result.isError:
            raise RuntimeError(f"the tool failed: {result.content}")
        return str(result.content[0].text)

    async def close(self) -> None:
        """End the server."""
        await self._made.close_all_sessions()


WAYS = {"mcp-use": McpUse}

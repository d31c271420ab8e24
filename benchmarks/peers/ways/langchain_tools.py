"""langchain-mcp-adapters: its tools over a held session, and in their default form."""

from __future__ import annotations

import importlib
from contextlib import AsyncExitStack
from typing import Any

_client: Any = importlib.import_module("langchain_mcp_adapters.client").MultiServerMCPClient
_load: Any = importlib.import_module("langchain_mcp_adapters.tools").load_mcp_tools


class Held:
    """`client.session(...)` and `load_mcp_tools(session)`."""

    def __init__(self) -> None:
        self._tools: dict[str, Any] = {}
        self._stack = AsyncExitStack()

    def _client(self, start: dict[str, Any]) -> Any:
        given = {k: start[k] for k in ("command", "args", "env", "cwd")}
        return _client({"one": {"transport": "stdio", **given}})

    async def open(self, start: dict[str, Any]) -> None:
        """Start the server and read its tools."""
        session = await self._stack.enter_async_context(self._client(start).session("one"))
        self._tools = {tool.name: tool for tool in await _load(session)}

    async def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """One call."""
        return str(await self._tools[tool].ainvoke(arguments))

    async def close(self) -> None:
        """End the server."""
        await self._stack.aclose()


class Default(Held):
    """`client.get_tools()`: a new server for every call."""

    async def open(self, start: dict[str, Any]) -> None:
        """Read the tools, from a server started for that."""
        self._tools = {tool.name: tool for tool in await self._client(start).get_tools()}


WAYS = {"langchain-held": Held, "langchain-default": Default}

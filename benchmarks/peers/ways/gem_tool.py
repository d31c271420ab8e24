"""GEM's MCP tool, as its `ToolEnvWrapper` uses it: `execute_action` with the XML form of a call."""

from __future__ import annotations

import importlib
import json
from typing import Any

_tool: Any = importlib.import_module("gem.tools.mcp_tool").MCPTool


class Gem:
    """One `MCPTool`; it opens its client in an event loop of its own for every call."""

    def __init__(self) -> None:
        self._made: Any = None

    def open(self, start: dict[str, Any]) -> None:
        """Make the tool, which lists the server's tools once."""
        given = {k: start[k] for k in ("command", "args", "env", "cwd")}
        self._made = _tool.from_local_command(given, max_retries=1)

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        """One action."""
        text = f"<tool_name>{tool}</tool_name><arguments>{json.dumps(arguments)}</arguments>"
        valid, failed, observation, _ = self._made.execute_action(f"<tool_call>{text}</tool_call>")
        if not valid or failed:
            raise RuntimeError(f"the tool failed: {observation}")
        return str(observation)

    def close(self) -> None:
        """End it."""
        self._made.close()
        self._made = None


WAYS = {"gem": Gem}

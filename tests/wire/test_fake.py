"""The fake speaks MCP as the SDK's own client understands it, and we speak to the SDK's own server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.memory import MemoryRuntime
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.types import ToolCall
from atlas_gym.wire import fake
from atlas_gym.wire.fake import FakeServer
from atlas_gym.wire.sessions import Sessions

SDK_SERVER = """
from typing import Any
from mcp.server import MCPServer
server = MCPServer("sdk")
@server.tool()
def numbers(n: int) -> list[int]:
    "Count."
    return list(range(n))
@server.tool()
def record(name: str) -> dict[str, Any]:
    return {"result": name}
@server.tool()
def fail() -> str:
    raise ValueError("no cheese")
server.run()
"""


def install(name: str, *command: str, protocol: Literal["legacy", "auto"] = "legacy") -> Installation:
    manifest = Manifest(
        name=name,
        description="A server.",
        registry="user",
        language="other",
        command=command or ("unused",),
        state="memory",
        state_bound="call",
        protocol=protocol,
    )
    return Installation(Server(manifest, None), Path("/nonexistent"), manifest.command, (Path("/"),))


@pytest.mark.asyncio
async def test_the_sdk_client_talks_to_the_fake() -> None:
    parameters = StdioServerParameters(command=sys.executable, args=["-I", str(Path(fake.__file__))])
    async with asyncio.timeout(60), Client(parameters, mode="legacy") as client:
        assert [tool.name for tool in (await client.list_tools()).tools][:2] == ["echo", "add"]
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"result": 3}
        assert (await client.call_tool("fail", {"message": "x"})).is_error


@pytest.mark.asyncio
@pytest.mark.parametrize("protocol", ["legacy", "auto"])
async def test_we_talk_to_the_sdks_server(
    protocol: Literal["legacy", "auto"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path))
    workspace = Workspace.create()
    server = install("sdk", sys.executable, "-c", SDK_SERVER, protocol=protocol)
    sessions = Sessions(ProcessRuntime(), {"sdk": server}, workspace)
    async with asyncio.timeout(60):
        assert (await sessions.call(ToolCall("sdk", "numbers", {"n": 3}))).value == [0, 1, 2]
        assert (await sessions.call(ToolCall("sdk", "numbers", {"n": 0}))).value == []
        assert (await sessions.call(ToolCall("sdk", "record", {"name": "x"}))).value == {"result": "x"}
        failed = await sessions.call(ToolCall("sdk", "fail", {}))
        assert (failed.outcome, "fail" in failed.text) == ("tool_error", True)
        wrong = await sessions.call(ToolCall("sdk", "numbers", {"n": "many"}))
        assert wrong.outcome == "tool_error"
        assert "n" in wrong.text
        await sessions.close()
    workspace.close()


@pytest.mark.asyncio
async def test_functions_become_tools_with_schemas_pages_and_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path))
    server = FakeServer("shop", state={"sold": 0}, page=1)

    @server.tool
    def sell(
        item: str, count: int = 1, tags: list[str] | None = None, *, state: dict[str, Any]
    ) -> dict[str, Any]:
        """Sell something."""
        state["sold"] += count
        return {"item": item, "sold": state["sold"], "tags": tags}

    async def level(kind: Literal["low", "high"]) -> str:
        return kind

    server.tool(level, name="get-level", description="The level.")
    workspace = Workspace.create()
    sessions = Sessions(MemoryRuntime({"shop": server.serve}), {"shop": install("shop")}, workspace)
    listing = await (await sessions.start("shop")).list_tools(seconds=10)
    assert [tool["name"] for tool in listing.tools] == ["sell", "get-level"]
    assert listing.tools[0]["inputSchema"] == {
        "type": "object",
        "properties": {
            "item": {"type": "string"},
            "count": {"type": "integer", "default": 1},
            "tags": {
                "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                "default": None,
            },
        },
        "required": ["item"],
    }
    assert listing.tools[1]["inputSchema"]["properties"] == {"kind": {"enum": ["low", "high"]}}
    assert listing.tools[1]["description"] == "The level."
    sold = await sessions.call(ToolCall("shop", "sell", {"item": "tea", "count": 2}))
    assert sold.value == {"item": "tea", "sold": 2, "tags": None}
    assert server.state == {"sold": 0}
    await sessions.close()
    workspace.close()

"""A small MCP server made of plain Python functions: what tests and demonstrations run against.

Speaks JSON-RPC itself, over any byte stream (`serve`) or stdin and stdout (`FakeServer.main`). Stdlib
only, so that `python fake.py` starts it in any environment. Does not know the client, nor the SDK.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import sys
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

_TYPES: Final = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}


class ByteStream(Protocol):
    """The server's end of a connection."""

    async def send(self, data: bytes) -> None:
        """Write all of `data`."""

    async def receive(self) -> bytes:
        """The next bytes; b"" when the client has gone."""


class Quit(BaseException):
    """Raised by a tool to end the server in the middle of a call, as a crash does."""


@dataclass(frozen=True)
class FakeTool:
    """One function as a tool."""

    run: Callable[..., Any]
    listing: Mapping[str, Any]
    wants_state: bool


@dataclass
class FakeServer:
    """Tools by name, and a state that every started server gets its own copy of.

    A function's parameters become the input schema; one named `state` is given the server's state and
    is not part of it; `state["workspace"]` is the episode's directory. What a function returns becomes
    the result: text as text, anything else as structured content (what is no object wrapped as
    {"result": ...}) and its JSON as text. A dict with `content` and nothing but result fields is sent as
    it is. An exception is the tool's error.
    """

    name: str
    version: str = "1.0"
    state: dict[str, Any] = field(default_factory=dict)
    page: int = 100
    """Tools per page of `tools/list`."""
    tools: dict[str, FakeTool] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)
    """Text by URI."""

    def tool(self, run: Callable[..., Any], **listing: Any) -> Callable[..., Any]:
        """Add a function as a tool; also usable as a decorator.

        Args:
            run: The function, plain or async.
            listing: Fields of the tool's listing that replace the derived ones (`name`, `inputSchema`...).
        """
        derived = {
            "name": run.__name__,
            "description": inspect.getdoc(run) or "",
            "inputSchema": _schema(run),
        }
        whole = {**derived, **listing}
        self.tools[whole["name"]] = FakeTool(run, whole, "state" in inspect.signature(run).parameters)
        return run

    async def answer(self, line: bytes, state: dict[str, Any]) -> bytes | None:
        """The line that answers one line of the client; None for a notification."""
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            return None
        try:
            body = {"result": await self._result(message["method"], message.get("params") or {}, state)}
        except LookupError as exc:
            body = {"error": {"code": exc.args[0], "message": exc.args[1]}}
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], **body}).encode() + b"\n"

    async def serve(self, stream: ByteStream) -> None:
        """Serve one client until it goes."""
        workspace = getattr(stream, "workspace", None)
        state = self._fresh(workspace.files if workspace is not None else Path.cwd())
        buffer = b""
        while chunk := await stream.receive():
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                try:
                    reply = await self.answer(line, state)
                except Quit:
                    return
                if reply is not None:
                    await stream.send(reply)

    def main(self) -> int:
        """Serve stdin and stdout until the client goes. Returns the exit status."""
        state = self._fresh(Path.cwd())
        with asyncio.Runner() as runner:
            for line in sys.stdin.buffer:
                try:
                    reply = runner.run(self.answer(line, state))
                except Quit:
                    return 3
                if reply is not None:
                    sys.stdout.buffer.write(reply)
                    sys.stdout.buffer.flush()
        return 0

    def _fresh(self, workspace: Path) -> dict[str, Any]:
        return {**copy.deepcopy(self.state), "workspace": str(workspace)}

    async def _result(self, method: str, params: Mapping[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                return {
                    "protocolVersion": params.get("protocolVersion", "2025-11-25"),
                    "capabilities": {"tools": {}, "resources": {}},
                    "serverInfo": {"name": self.name, "version": self.version},
                }
            case "ping":
                return {}
            case "tools/list":
                return self._list(int(params.get("cursor") or 0))
            case "tools/call":
                return await self._call(str(params.get("name")), params.get("arguments") or {}, state)
            case "resources/read" if params.get("uri") in self.resources:
                return {"contents": [{"uri": params["uri"], "text": self.resources[params["uri"]]}]}
            case "resources/read":
                raise LookupError(-32002, f"Unknown resource: {params.get('uri')}")
        raise LookupError(-32601, f"Method not found: {method}")

    def _list(self, start: int) -> dict[str, Any]:
        listings = [dict(tool.listing) for tool in self.tools.values()]
        page: dict[str, Any] = {"tools": listings[start : start + self.page]}
        if start + self.page < len(listings):
            page["nextCursor"] = str(start + self.page)
        return page

    async def _call(self, name: str, arguments: Mapping[str, Any], state: dict[str, Any]) -> dict[str, Any]:
        tool = self.tools.get(name)
        if tool is None:
            raise LookupError(-32602, f"Unknown tool: {name}")
        extra = {"state": state} if tool.wants_state else {}
        try:
            value = tool.run(**arguments, **extra)
            if inspect.isawaitable(value):
                value = await value
        except Exception as exc:  # noqa: BLE001 - a tool's failure, whatever it is, is its answer
            return {"content": [{"type": "text", "text": f"{type(exc).__name__}: {exc}"}], "isError": True}
        if (
            isinstance(value, dict)
            and "content" in value
            and value.keys() <= {"content", "structuredContent", "isError"}
        ):
            return value
        if isinstance(value, str):
            return {"content": [{"type": "text", "text": value}]}
        structured = value if isinstance(value, dict) else {"result": value}
        return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": structured}


def serve(make: Callable[[], FakeServer] | FakeServer) -> Callable[[ByteStream], Awaitable[None]]:
    """A server as the handler that the memory runtime wants; each start gets a state of its own."""
    fake = make if isinstance(make, FakeServer) else make()
    return fake.serve


def _schema(run: Callable[..., Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(run)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(run).parameters.items():
        if name == "state":
            continue
        properties[name] = _type(hints.get(name, Any))
        if parameter.default is inspect.Parameter.empty:
            required.append(name)
        else:
            properties[name]["default"] = parameter.default
    return {"type": "object", "properties": properties, "required": required}


def _type(hint: Any) -> dict[str, Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type(arg) for arg in args]}
    if hint is type(None):
        return {"type": "null"}
    kind = _TYPES.get(origin or hint)
    schema: dict[str, Any] = {"type": kind} if kind else {}
    if kind == "array" and args:
        schema["items"] = _type(args[0])
    return schema


def demo() -> FakeServer:
    """A server with one tool of each kind: pure, failing, stateful, on files, silent, crashing."""
    fake = FakeServer("demo", state={"notes": {}}, resources={"memo://hello": "hello"})

    def echo(text: str) -> str:
        """Give the text back."""
        return text

    def add(a: float, b: float = 1) -> float:
        """Add two numbers."""
        return a + b

    def fail(message: str) -> str:
        """Always fail."""
        raise ValueError(message)

    def remember(key: str, value: str, state: dict[str, Any]) -> dict[str, Any]:
        """Keep a note in memory."""
        state["notes"][key] = value
        return dict(state["notes"])

    def write_file(path: str, text: str) -> str:
        """Write a file."""
        Path(path).write_text(text, encoding="utf-8")
        return f"wrote {path}"

    def read_file(path: str) -> str:
        """Read a file."""
        return Path(path).read_text(encoding="utf-8")

    async def stall() -> str:
        """Never answer."""
        await asyncio.Event().wait()
        return ""

    def leave(message: str = "") -> str:
        """End the server in the middle of the call."""
        sys.stderr.write(f"leaving: {message}\n")
        raise Quit

    def picture() -> dict[str, Any]:
        """A tiny image and a caption."""
        image = {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}
        return {"content": [{"type": "text", "text": "a picture"}, image]}

    for run in (echo, add, fail, remember, write_file, read_file, stall, leave, picture):
        fake.tool(run)
    return fake


if __name__ == "__main__":
    sys.exit(demo().main())

"""A real streamable HTTP server for tests, on the SDK of its interpreter: `mcp` 2, `mcp` 1 or `fastmcp`.

Run as `python http_server.py [json] [stateless] [modern]`; prints its port. Its address is /mcp. `modern`
refuses what belongs to protocols with sessions.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Annotated, Any, TypeAlias

import uvicorn

Message: TypeAlias = MutableMapping[str, Any]
App: TypeAlias = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]

FLAGS = set(sys.argv[1:])


def sdk() -> tuple[Any, Any]:
    """The server class and the context class of this interpreter's SDK."""
    for name, server, context in (
        ("fastmcp", "FastMCP", "Context"),
        ("mcp.server.mcpserver", "MCPServer", "Context"),
        ("mcp.server.fastmcp", "FastMCP", "Context"),
    ):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        return getattr(module, server), getattr(module, context)
    raise SystemExit(f"{sys.executable} has no SDK to serve with")


class Counter:
    """State of the process, seen by every session."""

    value = 0


def echo(text: str) -> str:
    return text


def add(a: int, b: int) -> dict[str, int]:
    return {"sum": a + b}


def count() -> int:
    Counter.value += 1
    return Counter.value


def fail(message: str) -> str:
    raise ValueError(message)


def big(size: int) -> str:
    return "x" * size


async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "waited"


def die() -> str:
    os._exit(3)


async def talk(ctx: Any, lines: int) -> str:
    for number in range(lines):
        await ctx.report_progress(number, lines)
    return "talked"


async def roots(ctx: Any) -> int:
    found = await ctx.session.list_roots()
    return len(found.roots)


def where(region: str, verbose: bool = False) -> str:
    return f"{region}, {verbose}"


def make() -> Any:
    """The server and its tools."""
    server_class, context_class = sdk()
    tools: list[Callable[..., Any]] = [echo, add, count, fail, big, wait, die, talk, roots]
    server = server_class("real")
    for tool in tools:
        if "ctx" in tool.__annotations__:
            tool.__annotations__["ctx"] = context_class
        server.tool()(tool)
    if "modern" in FLAGS:  # arguments that have to be repeated in headers
        pydantic = importlib.import_module("pydantic")
        for argument, kind in (("region", str), ("verbose", bool)):
            field = pydantic.Field(json_schema_extra={"x-mcp-header": argument.title()})
            where.__annotations__[argument] = Annotated[kind, field]
        server.tool()(where)
    return server


def application(server: Any) -> App:
    """The ASGI application, in the way of the SDK."""
    how: dict[str, Any] = {"json_response": "json" in FLAGS, "stateless_http": "stateless" in FLAGS}
    if hasattr(server, "http_app"):
        app: App = server.http_app(path="/mcp", **how)
        return app
    if hasattr(server, "settings") and hasattr(server.settings, "json_response"):  # mcp 1 keeps them there
        for name, value in how.items():
            setattr(server.settings, name, value)
        app = server.streamable_http_app()
        return app
    app = server.streamable_http_app(**how)
    return app


def modern_only(app: App) -> App:
    """Refuse every request that does not name the newest protocol, as a server that knows only that would."""

    async def guarded(scope: Message, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers") or ())
        if scope["type"] != "http" or headers.get(b"mcp-protocol-version", b"") >= b"2026":
            await app(scope, receive, send)
            return
        body = {
            "jsonrpc": "2.0",
            "id": None,
            "error": {
                "code": -32022,
                "message": "Unsupported protocol version",
                "data": {"supported": ["2026-07-28"]},
            },
        }
        content = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 400, "headers": content})
        await send({"type": "http.response.body", "body": json.dumps(body).encode()})

    return guarded


def main() -> None:
    """Serve until killed."""
    app = application(make())
    if "modern" in FLAGS:
        app = modern_only(app)
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)  # noqa: T201 - the port is this program's output
    config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=1)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()

"""What a cell can do with tools: the prelude that defines it, and the host that answers (paper, appendix A).

Owns the operations between both: which tool is meant, its arguments bound, every call recorded, every
error one that teaches. Does not know sandboxes (the prelude needs only a function `host_call(op,
payload)`), nor how a call is made.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from atlas_gym.errors import AtlasError, ConfigError, UnknownNameError
from atlas_gym.toolspace.exposure import NotLoaded, View
from atlas_gym.toolspace.observed import shape_of
from atlas_gym.toolspace.records import unknown_tool
from atlas_gym.toolspace.signatures import ArgumentError, bind
from atlas_gym.types import Outcome, ToolCall, ToolResult

CallTool: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
"""Makes one call on a server. Never raises for the server's fault."""

PRELUDE: Final = '''
import json as _json

__all__ = ["MCPServer", "ToolError", "get_tools_info", "load_server", "load_tools", "search_tools", "answer"]


class ToolError(Exception):
    """A tool said no, or cannot be called like this. `.server` and `.tool` say which."""

    def __init__(self, message, server="", tool=""):
        super().__init__(message)
        self.server = server
        self.tool = tool


class _Text(str):
    """A text that shows as it is when it is a cell's last expression."""

    def __repr__(self):
        return str(self)


def _ask(op, payload):
    try:
        reply = host_call(op, payload)
    except HostError as error:
        raise ToolError(str(error), payload.get("server", ""), payload.get("tool", "")) from None
    if "error" in reply:
        raise ToolError(reply["error"], payload.get("server", ""), payload.get("tool", ""))
    return reply["value"]


class _Tool:
    def __init__(self, server, name):
        self.server = server
        self.__name__ = self.name = name

    def __call__(self, *args, **kwargs):
        payload = {"server": self.server, "tool": self.name, "args": args, "kwargs": kwargs}
        try:
            return _ask("call", payload)
        except TypeError as error:
            raise TypeError(f"{self.server}.{self.name}: {error}") from None

    def __repr__(self):
        return f"<tool {self.server}.{self.name}>"

    @property
    def __doc__(self):
        return get_tools_info([self])


class MCPServer:
    """One server; its tools are methods, and `tools` lists their names."""

    def __init__(self, name):
        found = _ask("server", {"server": name})
        self.name = found["name"]
        self.description = found["description"]
        self.tools = found["tools"]
        for tool in self.tools:
            self.__dict__[tool] = _Tool(self.name, tool)

    def __getattr__(self, name):
        if name.startswith("__") or "name" not in self.__dict__:
            raise AttributeError(f"MCPServer has no attribute {name!r}")
        found = _ask("resolve", {"server": self.name, "tool": name})
        if "unknown" in found:
            raise AttributeError(found["unknown"]) from None
        return _Tool(self.name, found["tool"])

    def __getitem__(self, name):
        try:
            return getattr(self, name)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def __dir__(self):
        return sorted({*self.tools, "name", "description", "tools"})

    def __repr__(self):
        return f"MCPServer({self.name!r})"


def _named(tools, server):
    listed = [tools] if isinstance(tools, (str, _Tool)) else list(tools)
    home = getattr(server, "name", server)
    return [
        f"{tool.server}.{tool.name}" if isinstance(tool, _Tool) else f"{home}.{tool}" if home else tool
        for tool in listed
    ]


def get_tools_info(tools, server=None):
    """Signatures of tools, given as "server.tool" (or as plain names with `server`), which loads them."""
    return _Text(_ask("info", {"tools": _named(tools, server)}))


def load_tools(server, tools):
    """Signatures of tools of one server, which loads them."""
    return get_tools_info(tools, server)


def load_server(server):
    """What a server has, as much as may be shown at once."""
    return _Text(_ask("load_server", {"server": getattr(server, "name", server)}))


def search_tools(query, k=5):
    """Tools that match some words, one per line."""
    return _Text(_ask("search", {"query": query, "k": k}))


def answer(text):
    """Give the final answer; the episode ends with this cell."""
    if not isinstance(text, str):
        try:
            text = _json.dumps(text, ensure_ascii=False)
        except (TypeError, ValueError):
            text = str(text)
    _ask("answer", {"text": text})
'''
"""For CPython. Every name in its `__all__` becomes visible to cells."""

MONTY_PRELUDE: Final = """
import json as _json

ToolError = RuntimeError


def _ask(op, payload):
    reply = host_call(op, payload)
    if "error" in reply:
        raise ToolError(reply["error"])
    return reply["value"]


class _Tool:
    def __init__(self, server, name):
        self.server = server
        self.name = name

    def __call__(self, *args, **kwargs):
        return _ask("call", {"server": self.server, "tool": self.name, "args": list(args), "kwargs": kwargs})

    def __repr__(self):
        return f"<tool {self.server}.{self.name}>"


class MCPServer:
    def __init__(self, name):
        found = _ask("server", {"server": name})
        self.name = found["name"]
        self.description = found["description"]
        self.tools = found["tools"]
        for tool in self.tools:
            setattr(self, tool, _Tool(self.name, tool))

    def __repr__(self):
        return f"MCPServer({self.name!r})"


def _named(tools, server):
    listed = [tools] if isinstance(tools, (str, _Tool)) else list(tools)
    home = server.name if isinstance(server, MCPServer) else server
    names = []
    for tool in listed:
        if isinstance(tool, _Tool):
            names.append(f"{tool.server}.{tool.name}")
        else:
            names.append(f"{home}.{tool}" if home else tool)
    return names


def get_tools_info(tools, server=None):
    return _ask("info", {"tools": _named(tools, server)})


def load_tools(server, tools):
    return get_tools_info(tools, server)


def load_server(server):
    return _ask("load_server", {"server": server.name if isinstance(server, MCPServer) else server})


def search_tools(query, k=5):
    return _ask("search", {"query": query, "k": k})


def answer(text):
    _ask("answer", {"text": text if isinstance(text, str) else _json.dumps(text)})
"""
"""For monty, which has neither inheritance nor `__getattr__`: ToolError is RuntimeError there."""

_MISUSE: Final = ("KeyError", "TypeError", "AttributeError", "IndexError")
_NO_ATTRIBUTE: Final = re.compile(r"'MCPServer' object has no attribute '(\w+)'")
_SHAPES_SHOWN: Final = 4


def prelude(kind: str) -> str:
    """The source that runs before the first cell, for one kind of sandbox."""
    return MONTY_PRELUDE if kind == "monty" else PRELUDE


class Host:
    """Answers what one episode's cells ask. It is the `HostCall` that a sandbox is given.

    Args:
        view: What this episode's agent has been shown.
        call: Makes a call on a server, or refuses it (budgets are its business).

    Attributes:
        answer: The text of `answer(...)` in the cell that was begun last, None until then.
        results: Every tool call of the cell that was begun last, in order, also those that were refused.
    """

    def __init__(self, view: View, call: CallTool) -> None:
        self._view = view
        self._call = call
        self.answer: str | None = None
        self.results: list[ToolResult] = []
        self._fresh: dict[str, None] = {}
        self._shapes: dict[str, str] = {}
        self._servers: dict[str, None] = {}
        self._operations: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "server": self._server,
            "resolve": self._resolve,
            "info": lambda p: self._view.info(p.get("tools", [])),
            "load_server": lambda p: self._view.load_server(p.get("server", "")),
            "search": lambda p: self._view.search(p.get("query", ""), p.get("k", 5)),
            "answer": self._answer,
        }

    def begin(self) -> None:
        """A new cell: forget the last one's calls, and its answer if that did not end the episode."""
        self.results = []
        self.answer = None
        self._fresh = {}

    async def __call__(self, op: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Serve one operation. Whatever is wrong with it comes back as `{"error": text}`.

        Args:
            op: One of the prelude's operations; cells can send anything.
            payload: Its arguments, not yet checked.
        """
        try:
            if op == "call":
                return await self._tool(payload)
            if op not in self._operations:
                raise ConfigError(f"There is no operation {op[:60]!r}.")
            return {"value": self._operations[op](payload)}
        except AtlasError as exc:
            return {"error": str(exc)}

    def explain(self, error_type: str, error: str) -> str:
        """A hint for a cell that failed, or "": the shapes of its results, or the tool that was meant.

        Args:
            error_type: Name of the exception's class.
            error: Its traceback.
        """
        if error_type not in _MISUSE:
            return ""
        hints = []
        missing = _NO_ATTRIBUTE.search(error)
        if missing:
            hints += [str(unknown_tool(missing[1], self._view.toolset.servers[s])) for s in self._servers]
        if "can't be used in 'await' expression" in error:
            hints.append("Tools are plain functions: call them without await.")
        shown = list(self._fresh) or list(self._shapes)[-1:]
        hints += [f"{path} returned {self._shapes[path]}" for path in shown[-_SHAPES_SHOWN:]]
        return "\n".join(f"Hint: {hint}" for hint in hints)

    def _server(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        name = payload.get("server")
        if not isinstance(name, str):
            raise ConfigError(
                f'MCPServer takes the name of a server, as in MCPServer("name"), not {name!r:.80}.'
            )
        server = self._view.toolset.server(name)
        self._servers[server.name] = None
        tools = [tool.python_name for tool in server.tools]
        return {"name": server.name, "description": server.description, "tools": tools}

    def _resolve(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The tool that an attribute means. Unknown is no error: `hasattr` asks too."""
        try:
            found = self._view.toolset.tool(str(payload.get("server", "")), str(payload.get("tool", "")))
        except UnknownNameError as exc:
            return {"unknown": str(exc)}
        return {"tool": found.python_name}

    def _answer(self, payload: Mapping[str, Any]) -> None:
        if self.answer is not None:
            raise ConfigError("An answer was given already; the first one counts.")
        self.answer = str(payload.get("text", ""))

    async def _tool(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        server, name = str(payload.get("server", "")), str(payload.get("tool", ""))
        args, kwargs = payload.get("args", []), payload.get("kwargs", {})
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ConfigError("A call takes positional arguments as a list and named ones as an object.")
        try:
            tool = self._view.require(server, name)
        except NotLoaded as exc:
            known = self._view.toolset.tool(server, name)
            return self._refuse(ToolCall(known.server, known.name, kwargs, "code"), "refused", exc)
        except UnknownNameError as exc:
            return self._refuse(ToolCall(server, name, kwargs, "code"), "invalid_call", exc)
        try:
            arguments = bind(tool, args, kwargs)
        except ArgumentError as exc:
            return self._refuse(ToolCall(tool.server, tool.name, kwargs, "code"), "invalid_call", exc)
        result = await self._call(ToolCall(tool.server, tool.name, arguments, "code"))
        self.results.append(result)
        path = f"{tool.server}.{tool.python_name}"
        if result.outcome != "ok":
            return {"error": result.text or f"{path}: {result.outcome}"}
        self._shapes.pop(path, None)
        self._shapes[path] = shape_of([result.value])
        self._fresh[path] = None
        return {"value": result.value}

    def _refuse(self, call: ToolCall, outcome: Outcome, why: AtlasError) -> dict[str, Any]:
        self.results.append(ToolResult(call, outcome, text=str(why)))
        return {"error": str(why)}

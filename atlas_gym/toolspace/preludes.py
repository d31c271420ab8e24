"""What a cell can do with tools, in the words of the cell: Python source that runs before the first one.

It needs only a function `host_call(op, payload)` and an exception `HostError`; `scaffold.Host` answers. One
source for CPython, one for monty. Does not know sandboxes.
"""

from __future__ import annotations

from typing import Final

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

    def __iter__(self):
        return iter(self.tools)

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

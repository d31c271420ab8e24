"""Tools, servers and toolsets: what `tools/list` said, made safe to use.

Owns the lenient reading of a listing (one bad tool is repaired or skipped with a reason, never an
error) and the tolerant look-up of names. Does not know sessions, nor how a tool is shown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from atlas_gym import errors
from atlas_gym.toolspace.naming import fold, match, python_names

MAX_DEPTH: Final = 64
"""A schema nested deeper is not one that a model could fill in."""

MAX_NODES: Final = 20_000
"""Values in one tool's schemas; more is not a schema but an accident."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Tool:
    """One tool of one server."""

    server: str
    name: str
    """The server's own name for it: what goes over the wire."""
    python_name: str
    """A valid identifier, unique within the server."""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """JSON Schema of the arguments: always a dictionary with `type: object`."""
    output_schema: Mapping[str, Any] | None = field(default=None, hash=False)
    annotations: Mapping[str, Any] = field(default_factory=dict, hash=False)
    read_only: bool = False
    """Our manifest says so; the server's own annotations are only hints."""
    shape: str | None = None
    """What results look like as Python, observed once by really calling the tool."""


@dataclass(frozen=True)
class ServerTools:
    """The usable tools of one server, and what was left out."""

    name: str
    description: str
    """One line."""
    tools: tuple[Tool, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    """(tool name, reason) for each entry that could not be used."""

    @cached_property
    def by_name(self) -> Mapping[str, Tool]:
        """Real names and Python names -> tool. A real name wins over another tool's Python name."""
        made = {tool.python_name: tool for tool in self.tools}
        made.update({tool.name: tool for tool in self.tools})
        return MappingProxyType(made)

    def find(self, name: str) -> Tool | None:
        """The tool that a name means: real, Python, or either of them without case and punctuation."""
        if name in self.by_name:
            return self.by_name[name]
        folded = fold(name)
        hits = {tool.name: tool for key, tool in self.by_name.items() if folded and fold(key) == folded}
        return next(iter(hits.values())) if len(hits) == 1 else None


class Toolset:
    """The tools of several servers, by server name.

    Attributes:
        servers: Server name -> its tools, in the order given.
    """

    def __init__(self, servers: Mapping[str, ServerTools] | Iterable[ServerTools]) -> None:
        entries = servers.values() if isinstance(servers, Mapping) else servers
        self.servers: Mapping[str, ServerTools] = MappingProxyType({s.name: s for s in entries})

    def __iter__(self) -> Iterator[Tool]:
        return (tool for server in self.servers.values() for tool in server.tools)

    @property
    def count(self) -> int:
        """Tools in all."""
        return sum(len(server.tools) for server in self.servers.values())

    def server(self, name: str) -> ServerTools:
        """The server that a name means; case and punctuation do not count.

        Raises:
            UnknownNameError: With the closest server and the list of them.
        """
        hit = match(name, self.servers)
        if hit is None:
            raise errors.unknown("server", name, self.servers)
        return self.servers[hit]

    def tool(self, server: str, name: str) -> Tool:
        """The tool that is meant by a real or a Python name; `server.tool` is read as `tool` too.

        Raises:
            UnknownNameError: With the closest tool and the tools of that server.
        """
        home = self.server(server)
        found = home.find(name)
        if found is None:
            cuts = [i for i, c in enumerate(name) if c in ".:/" and fold(name[:i]) == fold(home.name)]
            found = next((tool for i in cuts if (tool := home.find(name[i + 1 :]))), None)
        if found is None:
            raise unknown_tool(name, home)
        return found

    def locate(self, path: str) -> Tool:
        """The tool that is meant by `server.tool`, `server:tool`, or `tool` where only one server has it.

        Raises:
            UnknownNameError: With the closest name, or the servers that have such a tool.
        """
        home: ServerTools | None = None
        for cut in (i for i, c in enumerate(path) if c in ".:/"):
            name = match(path[:cut].strip(), self.servers)
            if name is not None:
                home = self.servers[name]
                found = home.find(path[cut + 1 :].strip())
                if found is not None:
                    return found
        if home is not None:
            raise unknown_tool(path[len(home.name) + 1 :] or path, home)
        hits = [tool for server in self.servers.values() if (tool := server.find(path.strip()))]
        if len(hits) == 1:
            return hits[0]
        if hits:
            many = ", ".join(f"{t.server}.{t.name}" for t in hits)
            raise errors.UnknownNameError(f"Several servers have a tool {path!r}; say which: {many}.")
        server = match(path, self.servers)
        if server is not None:
            tools = ", ".join(f"{server}.{t.name}" for t in self.servers[server].tools)
            raise errors.UnknownNameError(f"{path!r} is a server, not a tool. Its tools: {tools}.")
        raise errors.unknown("tool", path, [f"{t.server}.{t.name}" for t in self], 'Write "server.tool".')

    def only(self, names: Iterable[str]) -> Toolset:
        """The same toolset with these servers alone, in the order given.

        Raises:
            UnknownNameError: A name is not one of the servers.
        """
        return Toolset([self.server(name) for name in names])


def unknown_tool(name: str, home: ServerTools, *, python: bool = True) -> errors.UnknownNameError:
    """An error that names the closest tool and every tool of the server (as many as one line takes).

    Args:
        name: What was asked for.
        home: The server that was asked.
        python: Whether the tools are named as programs call them, or as the server does.
    """
    shown, tools = "", [tool.python_name if python else tool.name for tool in home.tools]
    near = errors.closest(name, tools)
    for index, tool in enumerate(tools):
        if len(shown) > 1200:
            shown += f" and {len(tools) - index} more"
            break
        shown += f", {tool}" if shown else tool
    meant = f" Did you mean {near!r}?" if near else ""
    return errors.UnknownNameError(
        f"Server {home.name!r} has no tool {name!r}.{meant} Its tools: {shown or 'none'}."
    )


def parse_listing(
    server: str,
    description: str,
    raw_tools: Iterable[Any],
    *,
    read_only: Collection[str] = (),
    shapes: Mapping[str, str] | None = None,
) -> ServerTools:
    """Read what `tools/list` returned. Never raises for what one tool looks like.

    Args:
        server: The server's name.
        description: One line about it.
        raw_tools: The dictionaries as they came; anything else in between is skipped.
        read_only: Real names of the tools that change nothing.
        shapes: Real name -> observed shape of its results.
    """
    good: dict[str, dict[str, Any]] = {}
    skipped: list[tuple[str, str]] = []
    entries = raw_tools if isinstance(raw_tools, Iterable) and not isinstance(raw_tools, str | bytes) else ()
    for index, raw in enumerate(entries):
        label = f"#{index}"
        if not isinstance(raw, Mapping):
            skipped.append((label, f"is no object but {type(raw).__name__}"))
            continue
        name = raw.get("name")
        if not isinstance(name, str) or not name.strip():
            skipped.append((label, f"has no usable name: {str(name)[:40]!r}"))
        elif _CONTROL.search(name):
            skipped.append((ascii(name)[1:-1], "has control characters or lone surrogates in its name"))
        elif name in good:
            skipped.append((name, "is listed twice; the first is used"))
        elif not _measured(raw):
            skipped.append((name, f"has schemas of more than {MAX_DEPTH} levels or {MAX_NODES} values"))
        else:
            good[name] = {str(k): _printable(v) for k, v in raw.items()}
    identifiers = python_names(good, "tool", public=True)
    tools = tuple(
        Tool(
            server=server,
            name=name,
            python_name=identifiers[name],
            description=_description(raw),
            input_schema=_object_schema(raw.get("inputSchema")),
            output_schema=raw["outputSchema"] if isinstance(raw.get("outputSchema"), dict) else None,
            annotations=raw["annotations"] if isinstance(raw.get("annotations"), dict) else {},
            read_only=name in read_only,
            shape=(shapes or {}).get(name),
        )
        for name, raw in good.items()
    )
    return ServerTools(server, " ".join(description.split()), tools, tuple(skipped))


def _measured(raw: Any) -> bool:
    """Whether a value is small and flat enough to be walked by recursion."""
    level, nodes = [raw], 0
    for _ in range(MAX_DEPTH):
        nodes += len(level)
        if not level or nodes > MAX_NODES:
            break
        level = [
            child
            for value in level
            if isinstance(value, Mapping | list | tuple)
            for child in (value.values() if isinstance(value, Mapping) else value)
        ]
    return not level and nodes <= MAX_NODES


def _printable(value: Any) -> Any:
    """The same JSON value with characters replaced that no text for a model can hold."""
    if isinstance(value, str):
        return _CONTROL.sub("\ufffd", value.replace("\r\n", "\n").replace("\r", "\n"))
    if isinstance(value, Mapping):
        return {_printable(str(k)): _printable(v) for k, v in value.items()}
    return [_printable(v) for v in value] if isinstance(value, list | tuple) else value


def _description(raw: Mapping[str, Any]) -> str:
    hints = raw.get("annotations")
    title = hints.get("title") if isinstance(hints, dict) else None
    candidates = (raw.get("description"), raw.get("title"), title)
    return next((text.strip() for text in candidates if isinstance(text, str) and text.strip()), "")


def _object_schema(raw: Any) -> dict[str, Any]:
    """An input schema that describes an object. What the server left out stays open, not empty."""
    if raw is False:
        return {"type": "object", "properties": {}}
    if not isinstance(raw, dict):
        return {"type": "object", "additionalProperties": True}
    return {**raw, "type": "object"}

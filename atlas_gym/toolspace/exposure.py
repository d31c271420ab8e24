"""What one episode's agent has been shown, and the texts of what it may ask to see.

Owns the four exposures, both ways to write a schema, and which tools count as loaded. Does not run
tools; sessions, budgets and sandboxes are unknown here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from atlas_gym import errors
from atlas_gym.errors import ConfigError, UnknownNameError
from atlas_gym.toolspace.prompts import (
    ACTS,
    EXECUTIONS,
    EXPOSURES,
    LOADERS,
    Execution,
    Exposure,
    how_to_act,
)
from atlas_gym.toolspace.records import ServerTools, Tool, Toolset, unknown_tool
from atlas_gym.toolspace.search import DEFAULT_RESULTS, MAX_RESULTS, Index
from atlas_gym.toolspace.signatures import schema_text, signature, summary
from atlas_gym.types import Label


class NotLoaded(ConfigError):
    """The tool exists, but its schema was not loaded; the message says how to load it."""


class NotOffered(ConfigError):
    """This exposure has no such operation; the message says what to do instead."""


class View:
    """What ONE episode's agent has been shown.

    Attributes:
        toolset: The visible servers.
        exposure: What the prompt holds at reset.
        execution: Whether schemas are written as JSON or as Python signatures.
        strict: Whether a tool must be loaded before it is called.
        meta_tools: The operations that are offered, as the actions' names.
    """

    def __init__(self, toolset: Toolset, exposure: str, execution: str, *, strict: bool = True) -> None:
        if exposure not in EXPOSURES:
            raise errors.unknown("exposure", exposure, EXPOSURES)
        if execution not in EXECUTIONS:
            raise errors.unknown("execution", execution, EXECUTIONS)
        self.toolset = toolset
        self.exposure: Exposure = exposure
        self.execution: Execution = execution
        self.strict = strict
        self.meta_tools: tuple[str, ...] = (*LOADERS[self.exposure], ACTS[self.execution], "answer")
        self._loaded: set[tuple[str, str]] = set()
        self._index: Index | None = None
        if exposure == "eager":
            self._mark(toolset)

    @property
    def schemas_loaded(self) -> int:
        """How many tools' schemas the agent has been given so far."""
        return len(self._loaded)

    def is_loaded(self, tool: Tool) -> bool:
        """Whether the agent has been given the schema of this tool."""
        return (tool.server, tool.name) in self._loaded

    def pieces(self) -> list[tuple[Label, str]]:
        """The texts of the prompt in order; joined, they are the system message."""
        servers = self._servers()
        system: tuple[Label, str] = ("system", how_to_act(self.exposure, self.execution))
        if self.exposure == "eager":
            blocks = (f"{_headed(server)}\n{self._schemas(server.tools)}" for server in servers)
            return [system, ("schemas", "\nServers and tools:\n" + "\n".join(blocks))]
        if self.exposure == "search":
            text = f"\nThere are {len(servers)} servers with {self.toolset.count} tools; search for them."
            return [system, ("index", text)]
        lines = []
        for server in servers:
            line = f"- {server.name}: {server.description}"
            if self.exposure == "tools" and self.execution == "code":
                line = f"{line.removesuffix('.')}. Tools: {self._names(server)}"
            lines.append(line)
        return [system, ("index", "\nServers:\n" + "\n".join(lines))]

    def load_server(self, name: str, *, again: bool = False) -> str:
        """What `load_server` shows: all schemas (exposure `servers`) or the tools' names.

        Args:
            name: The server; case and punctuation do not count.
            again: Whether schemas that were shown before are shown in full again.

        Raises:
            UnknownNameError: With the closest server.
        """
        server = self.toolset.server(_text(name, "server"))
        if not server.tools:
            return f"{server.name} has no tools."
        if self.exposure == "servers":
            return self._show(server, server.tools, again)
        count = len(server.tools)
        return f"{server.name} has {count} {'tool' if count == 1 else 'tools'}: {self._names(server)}"

    def load_tools(self, server: str, names: Sequence[str], *, again: bool = False) -> str:
        """What `load_tools` shows: the schemas of some tools of one server, which are loaded thereby.

        Args:
            server: The server; case and punctuation do not count.
            names: Its tools. Unknown ones among known ones are named at the end of the text.
            again: Whether schemas that were shown before are shown in full again.

        Raises:
            UnknownNameError: The server or all the tools are unknown.
            NotOffered: This exposure loads whole servers.
        """
        home = self.toolset.server(_text(server, "server"))
        self._offered("load_tools")
        tools, wrong = _found(names, lambda name: self._tool(home.name, name))
        return "\n".join([self._show(home, tools, again), *wrong])

    def info(self, names: str | Sequence[str]) -> str:
        """What `get_tools_info` shows in a cell: the schemas of `server.tool` names, always in full.

        A cell need not print what it got, so "shown before" is unknown here.

        Raises:
            UnknownNameError: All the tools are unknown.
            NotLoaded: This exposure loads whole servers, and that of a tool was not.
        """
        tools, wrong = _found(names, self.toolset.locate)
        if self.exposure == "servers":
            for tool in tools:
                self._check(tool)
        texts = []
        for home in dict.fromkeys(tool.server for tool in tools):
            texts.append(self._show(self.toolset.servers[home], [t for t in tools if t.server == home], True))
        return "\n".join([*texts, *wrong])

    def search(self, query: str, k: int = DEFAULT_RESULTS) -> str:
        """What `search_tools` shows: one line for each tool found. Loads nothing.

        Raises:
            NotOffered: This exposure lists its servers instead.
        """
        self._offered("search_tools")
        if isinstance(k, bool) or not isinstance(k, int):
            raise ConfigError(f"k is a whole number from 1 to {MAX_RESULTS}, not {k!r}.")
        if self._index is None:
            self._index = _index(tuple(self.toolset.servers.values()))
        hits = self._index.search(_text(query, "query"), k)
        if not hits:
            return "No tool matches. Try other words: what the tool does, or what it works on."
        return "\n".join(f"{self._path(tool)}: {summary(tool) or 'no description'}" for tool, _ in hits)

    def require(self, server: str, tool: str) -> Tool:
        """The tool that a call means, if it may be called.

        Raises:
            UnknownNameError: With the closest name and what there is.
            NotLoaded: It must be loaded first; the message says how.
        """
        found = self._tool(_text(server, "server"), _text(tool, "tool"))
        self._check(found)
        return found

    def how_to_load(self, tool: Tool) -> str:
        """The call that loads a tool here, ready to be copied."""
        if self.execution == "code":
            if self.exposure == "servers":
                return f"print(load_server({tool.server!r}))"
            return f"print(get_tools_info([{self._path(tool)!r}]))"
        if self.exposure == "servers":
            return _call("load_server", server=tool.server)
        return _call("load_tools", server=tool.server, tools=[tool.name])

    def _check(self, tool: Tool) -> None:
        if self.strict and not self.is_loaded(tool):
            raise NotLoaded(
                f"{self._path(tool)} is not loaded, so you have not seen its arguments. "
                f"First: {self.how_to_load(tool)}"
            )

    def _tool(self, server: str, name: str) -> Tool:
        """The tool that is meant; an error names the tools as this agent has seen them."""
        try:
            return self.toolset.tool(server, name)
        except UnknownNameError:
            if self.execution == "code":
                raise
            raise unknown_tool(name, self.toolset.server(server), python=False) from None

    def _offered(self, operation: str) -> None:
        if operation in LOADERS[self.exposure] or (self.exposure == "eager" and operation != "search_tools"):
            return
        instead = {
            "eager": "every tool is in the prompt",
            "servers": "the prompt lists the servers; load_server gives all schemas of one",
            "tools": "the prompt lists the servers; load the tools you need",
            "search": "use search_tools",
        }[self.exposure]
        raise NotOffered(f"There is no {operation} here: {instead}.")

    def _show(self, server: ServerTools, tools: Sequence[Tool], again: bool) -> str:
        """Schemas under the server's name. Cells are always answered in full: they may not print it."""
        known = [t for t in tools if self.is_loaded(t) and not again and self.execution == "json"]
        fresh = [t for t in tools if t not in known]
        self._mark(fresh)
        parts = [f"# {server.name}\n{self._schemas(fresh)}"] if fresh else []
        if known:
            named = ", ".join(self._name(t) for t in known)
            parts.append(f"Already loaded, see above: {named}")
        return "\n".join(parts)

    def _schemas(self, tools: Sequence[Tool]) -> str:
        write = signature if self.execution == "code" else schema_text
        return "\n".join(write(tool) for tool in tools)

    def _servers(self) -> list[ServerTools]:
        """In the order of their names, so that nothing tells a task's servers from the others."""
        return sorted(self.toolset.servers.values(), key=lambda s: (s.name.casefold(), s.name))

    def _name(self, tool: Tool) -> str:
        return tool.python_name if self.execution == "code" else tool.name

    def _names(self, server: ServerTools) -> str:
        return ", ".join(self._name(tool) for tool in server.tools)

    def _path(self, tool: Tool) -> str:
        return f"{tool.server}{'.' if self.execution == 'code' else ':'}{self._name(tool)}"

    def _mark(self, tools: Iterable[Tool]) -> None:
        self._loaded.update((tool.server, tool.name) for tool in tools)


def _call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


def _headed(server: ServerTools) -> str:
    return f"# {server.name}: {server.description}" if server.description else f"# {server.name}"


def _text(value: Any, what: str) -> str:
    """A cell may pass anything; only text is a name."""
    if not isinstance(value, str):
        raise ConfigError(f"The {what} must be text, not {type(value).__name__}.")
    return value


def _found(names: Any, look_up: Callable[[str], Tool]) -> tuple[list[Tool], list[str]]:
    """The tools that are meant, each once, and what was wrong with the other names."""
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise ConfigError(f"The tools must be a list of names, not {type(names).__name__}.")
    if not listed:
        raise ConfigError("The list of tools is empty: name at least one.")
    tools: dict[Tool, None] = {}
    wrong: dict[str, None] = {}
    for name in listed:
        try:
            tools[look_up(name)] = None
        except UnknownNameError as error:
            wrong[str(error)] = None
    if not tools:
        raise UnknownNameError("\n".join(wrong))
    return list(tools), list(wrong)


@lru_cache(maxsize=8)
def _index(servers: tuple[ServerTools, ...]) -> Index:
    """Episodes of one group see the same servers: they share an index."""
    return Index(Toolset(servers))

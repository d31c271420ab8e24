"""The host that answers what cells ask of tools (paper, appendix A); `preludes` is the cell's side of it.

Owns the operations between both: which tool is meant, its arguments bound, every call recorded, every
error one that teaches; and that whatever a cell sends is no trouble. Does not know sandboxes, nor how a
call is made.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from atlas_gym.errors import AtlasError, ConfigError, UnknownNameError
from atlas_gym.toolspace.exposure import NotLoaded, View
from atlas_gym.toolspace.observed import shape_of
from atlas_gym.toolspace.preludes import MONTY_PRELUDE, PRELUDE
from atlas_gym.toolspace.records import unknown_tool
from atlas_gym.toolspace.signatures import ArgumentError, bind
from atlas_gym.types import Outcome, ToolCall, ToolResult
from atlas_gym.wire.codec import Unsendable, encode

CallTool: TypeAlias = Callable[[ToolCall], Awaitable[ToolResult]]
"""Makes one call on a server. Never raises for the server's fault."""

_MISUSE: Final = ("KeyError", "TypeError", "AttributeError", "IndexError")
_NO_ATTRIBUTE: Final = re.compile(r"'MCPServer' object has no attribute '(\w+)'")
_AWAITED: Final = re.compile(r"await' expression|be awaited|awaitable is required|a coroutine was expected")
_NOT_OF_RESULTS: Final = re.compile(
    r"has no tool '|arguments must (be|not)|(required|unexpected) (positional|keyword)|positional argument"
)
"""Errors of the same classes that are about a call and not about what came back."""
_SHAPES_SHOWN: Final = 4
_LONGEST_NAME: Final = 200
_MOST_NAMES: Final = 200
_LONGEST_ANSWER: Final = 100_000
_LONGEST_ERROR: Final = 20_000
"""Characters; a cell can send anything, and looking for the closest of a million names takes its time."""
_KEPT_BYTES: Final = 10_000
"""Arguments of a call that was not made are kept up to here."""


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
        self._values: dict[str, Any] = {}
        self._servers: dict[str, None] = {}
        self._operations: dict[str, Callable[[Mapping[str, Any]], Any]] = {
            "server": self._server,
            "resolve": self._resolve,
            "info": self._info,
            "load_server": lambda p: self._view.load_server(_name(p, "server")),
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
            return {"error": str(exc)[:_LONGEST_ERROR]}

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
        if _AWAITED.search(error):
            hints.append("Tools are plain functions: call them without await.")
        if _NOT_OF_RESULTS.search(error.rpartition("\n")[2]):
            return "\n".join(f"Hint: {hint}" for hint in hints)
        shown = list(self._fresh) or list(self._values)[-1:]
        hints += [f"{path} returned {shape_of([self._values[path]])}" for path in shown[-_SHAPES_SHOWN:]]
        return "\n".join(f"Hint: {hint}" for hint in hints)

    def _server(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        name = payload.get("server")
        if not isinstance(name, str):
            raise ConfigError(
                f'MCPServer takes the name of a server, as in MCPServer("name"), not {name!r:.80}.'
            )
        server = self._view.toolset.server(_name(payload, "server"))
        self._servers[server.name] = None
        tools = [tool.python_name for tool in server.tools]
        return {"name": server.name, "description": server.description, "tools": tools}

    def _resolve(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The tool that an attribute means. Unknown is no error: `hasattr` asks too."""
        try:
            found = self._view.toolset.tool(_name(payload, "server"), _name(payload, "tool"))
        except ConfigError as exc:
            return {"unknown": str(exc)}
        return {"tool": found.python_name}

    def _info(self, payload: Mapping[str, Any]) -> str:
        names = payload.get("tools", [])
        if isinstance(names, list | str) and len(names) > _MOST_NAMES:
            raise ConfigError(f"At most {_MOST_NAMES} tools can be asked about at once.")
        return self._view.info(
            [_name({"tool": n}, "tool") for n in names] if isinstance(names, list) else names
        )

    def _answer(self, payload: Mapping[str, Any]) -> None:
        text = payload.get("text")
        if self.answer is not None:
            raise ConfigError("An answer was given already; the first one counts.")
        if not isinstance(text, str) or len(text) > _LONGEST_ANSWER:
            raise ConfigError(f"An answer is a text of at most {_LONGEST_ANSWER} characters.")
        self.answer = _whole(text)

    async def _tool(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        server, name = _name(payload, "server"), _name(payload, "tool")
        args, kwargs = payload.get("args", []), payload.get("kwargs", {})
        if not isinstance(args, list) or not isinstance(kwargs, dict):
            raise ConfigError("A call takes positional arguments as a list and named ones as an object.")
        for key in kwargs:
            _name({"argument": key}, "argument")
        try:
            tool = self._view.require(server, name)
        except NotLoaded as exc:
            known = self._view.toolset.tool(server, name)
            return self._refuse(ToolCall(known.server, known.name, kwargs, "code"), "refused", exc)
        except UnknownNameError as exc:
            return self._refuse(ToolCall(server, name, kwargs, "code"), "invalid_call", exc)
        try:
            arguments = bind(tool, args, kwargs)
            encode(arguments)
        except Unsendable as exc:
            why = ConfigError(f"Nothing was sent to {tool.server}.{tool.python_name}: {exc}.")
            return self._refuse(ToolCall(tool.server, tool.name, kwargs, "code"), "invalid_call", why)
        except ArgumentError as exc:
            return self._refuse(ToolCall(tool.server, tool.name, kwargs, "code"), "invalid_call", exc)
        result = await self._call(ToolCall(tool.server, tool.name, arguments, "code"))
        self.results.append(result)
        path = f"{tool.server}.{tool.python_name}"
        if result.outcome != "ok":
            return {"error": result.text or f"{path}: {result.outcome}"}
        self._values.pop(path, None)
        self._values[path] = result.value  # its shape is made when a hint asks: that takes milliseconds
        self._fresh[path] = None
        return {"value": result.value}

    def _refuse(self, call: ToolCall, outcome: Outcome, why: AtlasError) -> dict[str, Any]:
        """Record a call that was not made, as far as its arguments can be kept."""
        try:
            arguments = call.arguments if len(encode(call.arguments)) <= _KEPT_BYTES else {}
        except Unsendable:
            arguments = {}
        kept = ToolCall(_whole(call.server), _whole(call.tool), arguments, call.via)
        text = str(why)[:_LONGEST_ERROR]
        self.results.append(ToolResult(kept, outcome, text=text))
        return {"error": text}


def _name(payload: Mapping[str, Any], key: str) -> str:
    """A name that a cell sent: a text, and not too long to be looked for."""
    value = payload.get(key)
    if not isinstance(value, str):
        raise ConfigError(f"The {key} must be text, not {type(value).__name__}.")
    if len(value) > _LONGEST_NAME:
        raise ConfigError(f"No {key} has a name of {len(value)} characters.")
    return value


def _whole(text: str) -> str:
    """`text` without lone surrogates, which no file and no token can hold."""
    return text.encode("utf-8", "replace").decode()

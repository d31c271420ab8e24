"""The gold program as a policy, in every exposure and execution.

Owns the loads that each exposure needs and, for JSON execution, running the program as a coroutine
whose every tool call becomes one `call_tool` step fed with the live result. Gold programs ship with
suites and are trusted code; does not know how they are scored.
"""

from __future__ import annotations

import ast
import json
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from atlas_gym.env.episode import Episode
from atlas_gym.errors import TaskError
from atlas_gym.rollout.policy import Policy, PolicyInput
from atlas_gym.toolspace.records import Toolset
from atlas_gym.toolspace.signatures import bind
from atlas_gym.types import ToolResult

WAIT_SECONDS = 60.0
"""A gold program that computes longer than this between two calls is broken."""


def tools_used(program: str) -> dict[str, list[str]]:
    """The servers and tools that a gold program names, in order of appearance.

    Args:
        program: PTC code; servers are bound as `x = MCPServer("name")` and tools called as `x.tool(...)`.

    Raises:
        TaskError: The program is not Python.
    """
    try:
        tree = ast.parse(program)
    except SyntaxError as exc:
        raise TaskError(f"The gold program is not Python: {exc}") from exc
    bound: dict[str, str] = {}
    used: dict[str, list[str]] = {}
    for node in ast.walk(tree):
        for name, value in _bindings(node):
            if server := _server(value):
                bound[name] = server
                used.setdefault(server, [])
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        server = _server(node.value) or (
            bound.get(node.value.id) if isinstance(node.value, ast.Name) else None
        )
        if server and node.attr not in used.setdefault(server, []):
            used[server].append(node.attr)
    return used


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Names and values of one assignment; `a, b = x, y` is two of them."""
    if not isinstance(node, ast.Assign):
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            yield target.id, node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for part, value in zip(target.elts, node.value.elts, strict=False):
                if isinstance(part, ast.Name):
                    yield part.id, value


def _server(node: ast.expr) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "MCPServer":
        argument = node.args[0] if node.args else None
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return argument.value
    return None


def call_text(name: str, /, **arguments: Any) -> str:
    """One Hermes tool call."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}</tool_call>"


def loads(exposure: str, used: dict[str, list[str]]) -> list[str]:
    """The messages that make the tools known before the first call; several operations in each."""
    by_server = [call_text("load_server", server=server) for server in used]
    by_tool = [call_text("load_tools", server=s, tools=names) for s, names in used.items() if names]
    searches = [
        call_text("search_tools", query=f"{server} {name}".replace("_", " "), k=3)
        for server, names in used.items()
        for name in names[:1]
    ]
    steps = {
        "eager": [],
        "servers": [by_server],
        "tools": [by_server, by_tool],
        "search": [searches, by_tool],
    }[exposure]
    return ["\n".join(step) for step in steps if step]


def load_cells(exposure: str, used: dict[str, list[str]]) -> list[str]:
    """The cells that make the tools known where code is run, as the prompt teaches them."""
    paths = [f"{server}.{name}" for server, names in used.items() for name in names]
    info = f"print(get_tools_info({paths!r}))"
    servers = "\n".join(f"print(load_server({server!r}))" for server in used)
    words = [f"{server} {name}".replace("_", " ") for server, names in used.items() for name in names[:1]]
    searches = "\n".join(f"print(search_tools({query!r}, 3))" for query in words)
    return {"eager": [], "servers": [servers], "tools": [info], "search": [searches, info]}[exposure]


@dataclass
class GoldCode:
    """Loads what the program uses, then runs it as one cell."""

    program: str
    exposure: str
    name: str = "gold"

    async def act(self, seen: PolicyInput) -> str:
        """A cell that loads, or the program."""
        cells = [*load_cells(self.exposure, tools_used(self.program)), self.program.strip()]
        if seen.turn < len(cells):
            return f"```python\n{cells[seen.turn]}\n```"
        return f"<answer>The program gave no answer: {seen.result[-500:]}</answer>"


class _Abandoned(BaseException):
    """Ends a program whose episode is over. Not an `Exception`: the program must not catch it."""


class GoldToolError(Exception):
    """What a gold program sees as `ToolError`."""


@dataclass
class GoldJson:
    """Runs the program beside the episode; each of its calls becomes one step."""

    program: str
    exposure: str
    toolset: Toolset
    name: str = "gold"
    _asks: queue.Queue[tuple[str, dict[str, Any]]] = field(default_factory=queue.Queue)
    _replies: queue.Queue[ToolResult | None] = field(default_factory=queue.Queue)
    _thread: threading.Thread | None = None
    _loads: Iterator[str] | None = None

    async def act(self, seen: PolicyInput) -> str:
        """A load, the next call of the program, or its answer."""
        if self._loads is None:
            self._loads = iter(loads(self.exposure, tools_used(self.program)))
        step = next(self._loads, None)
        if step is not None:
            return step
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gold-program", daemon=True)
            self._thread.start()
        elif seen.last is not None and seen.last.results:
            self._replies.put(seen.last.results[-1])
        else:
            return f"<answer>The last call was not run: {seen.result[-500:]}</answer>"
        try:
            kind, given = self._asks.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            return "<answer>The gold program did not go on in time.</answer>"
        return call_text(kind, **given)

    def close(self) -> None:
        """Let a program that still waits end."""
        self._replies.put(None)

    def _run(self) -> None:
        ended = False

        def answer(text: object) -> None:
            nonlocal ended
            ended = True
            self._asks.put(("answer", {"text": str(text)}))
            raise _Abandoned

        namespace: dict[str, Any] = {
            "__name__": "__main__",
            "MCPServer": lambda name: _Server(name, self),
            "ToolError": GoldToolError,
            "answer": answer,
            "print": lambda *args, **kwargs: None,
        }
        try:
            exec(compile(self.program, "<gold>", "exec"), namespace)
        except _Abandoned:
            return
        except Exception as exc:  # noqa: BLE001 - whatever a broken gold program raises is its answer
            self._asks.put(("answer", {"text": f"The gold program failed: {type(exc).__name__}: {exc}"}))
            return
        if not ended:
            self._asks.put(("answer", {"text": "The gold program ended without an answer."}))

    def ask(self, server: str, tool: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Called in the program's thread: one tool call, answered by the live episode."""
        known = self.toolset.tool(server, tool)
        arguments = bind(known, args, kwargs)
        self._asks.put(("call_tool", {"server": known.server, "tool": known.name, "arguments": arguments}))
        result = self._replies.get(timeout=WAIT_SECONDS)
        if result is None:
            raise _Abandoned
        if result.outcome != "ok":
            raise GoldToolError(result.text)
        return result.value


class _Server:
    def __init__(self, name: str, policy: GoldJson) -> None:
        self._name, self._policy = name, policy

    def __getattr__(self, tool: str) -> Callable[..., Any]:
        if tool.startswith("__"):
            raise AttributeError(tool)
        return lambda *args, **kwargs: self._policy.ask(self._name, tool, args, kwargs)


def gold(episode: Episode) -> Policy:
    """The task's gold program as the policy of this episode, whatever its variant.

    Raises:
        TaskError: The task has no gold program.
    """
    program = episode.task.gold
    if not program:
        raise TaskError(f"Task {episode.task.id!r} has no gold program.")
    settings = episode.settings
    if settings.execution == "code":
        return GoldCode(program, settings.exposure)
    return GoldJson(program, settings.exposure, episode.world.toolset(episode.servers))

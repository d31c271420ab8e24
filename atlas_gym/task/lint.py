"""What is wrong with a suite before anything runs: static faults, answers that need no work, budgets.

Owns the findings. Does not count tokens (it is given a function that does) and starts no server: that a
task can be solved is proved elsewhere.
"""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atlas_gym.errors import closest
from atlas_gym.task.checks import reward, state_checks
from atlas_gym.task.evidence import Evidence
from atlas_gym.task.kinds import CalledCheck, ToolCheck
from atlas_gym.task.model import Task
from atlas_gym.task.setup import lay_out
from atlas_gym.types import CheckResult

FLOOR: Final = 0.2
"""The most that an agent may earn that did nothing for it."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with one task."""

    task_id: str
    text: str

    def __str__(self) -> str:
        return f"{self.task_id}: {self.text}"


def lint(
    tasks: Iterable[Task], *, tools: Mapping[str, Collection[str]] | None = None, floors: bool = True
) -> list[Finding]:
    """Every static fault of some tasks.

    Args:
        tasks: The tasks of one suite.
        tools: Server -> its tools' names. Without it, tools are not looked up.
        floors: Also score what an empty answer, a copy of the prompt and "impossible" earn on an untouched
            setup (checks that call tools are taken as failed: they need servers).
    """
    found: list[Finding] = []
    seen: set[str] = set()
    for task in tasks:
        found += [Finding(task.id, text) for text in _faults(task, tools)]
        if task.id in seen:
            found.append(Finding(task.id, "the id stands twice"))
        seen.add(task.id)
        if floors:
            found += [Finding(task.id, text) for text in _broken_gates(task)]
            for answer, value in offline_floors(task).items():
                if value > FLOOR:
                    text = f"the floor {answer!r} earns {value:.2f}; at most {FLOOR} is allowed"
                    found.append(Finding(task.id, text))
    return found


def offline_floors(task: Task) -> dict[str, float]:
    """Reward of agents that do nothing but answer, by answer: "empty", "echo", "impossible".

    No server is started. Checks that call tools are taken as failed, gates among them as kept.
    """
    answers = {"empty": "", "echo": task.prompt, "impossible": "This is impossible."}
    with tempfile.TemporaryDirectory(prefix="atlas-lint-") as folder:
        root = Path(folder)
        lay_out(task.setup, root / "files", lambda server: root / "state" / server)
        called = [
            CheckResult(check.name, passed=check.gate, weight=check.weight, gate=check.gate)
            for check in task.checks
            if isinstance(check, ToolCheck)
        ]
        scores = {}
        for name, answer in answers.items():
            evidence = Evidence(answer, root / "files", lambda server: root / "state" / server)
            scores[name] = reward([*called, *state_checks(task, evidence)])
        return scores


def _broken_gates(task: Task) -> Iterator[str]:
    """Gates on the state that do not hold even when nobody does anything."""
    with tempfile.TemporaryDirectory(prefix="atlas-lint-") as folder:
        root = Path(folder)
        lay_out(task.setup, root / "files", lambda server: root / "state" / server)
        for result in state_checks(
            task, Evidence(None, root / "files", lambda server: root / "state" / server)
        ):
            kind = next(check.kind for check in task.checks if check.name == result.name)
            if result.gate and not result.passed and not kind.startswith(("answer", "called")):
                yield f"the gate {result.name!r} is broken before anything is done: {result.detail}"


def _faults(task: Task, tools: Mapping[str, Collection[str]] | None) -> Iterator[str]:
    for server, tool in _called_by_checks(task):
        yield from _unknown_tool(f"check calls {server}.{tool}", server, tool, task.visible, tools)
    if not task.gold.strip():
        yield "there is no gold program: the task can be played, but not proven"
        return
    try:
        calls, last = _calls_of(task.gold)
    except SyntaxError as exc:
        yield f"the gold program does not parse: {exc.msg} (line {exc.lineno})"
        return
    if last is not None:
        yield last
    used = set()
    for server, tool in calls:
        used.add(server)
        yield from _unknown_tool(f"the gold program calls {server}.{tool}", server, tool, task.servers, tools)
    for server in task.servers:
        if server not in used:
            yield f"the gold program never uses {server!r}: make it a distractor"


def _called_by_checks(task: Task) -> Iterator[tuple[str, str]]:
    for check in task.checks:
        if isinstance(check, ToolCheck):
            yield check.server, check.tool
        if isinstance(check, CalledCheck):
            yield from ((check.server, tool) for tool in check.tools)


def _unknown_tool(
    what: str, server: str, tool: str, servers: Collection[str], tools: Mapping[str, Collection[str]] | None
) -> Iterator[str]:
    if server not in servers:
        near = closest(server, servers)
        yield f"{what}, but the task has no server {server!r}" + (f"; did you mean {near!r}?" if near else "")
    elif tools is not None and tool not in tools.get(server, ()):
        near = closest(tool, tools.get(server, ()))
        yield f"{what}, a tool that the server does not have" + (f"; did you mean {near!r}?" if near else "")


def _calls_of(gold: str) -> tuple[list[tuple[str, str]], str | None]:
    """The (server, tool) pairs that a program calls by plain names, and what is wrong with its answer."""
    tree = ast.parse(gold)
    servers: dict[str, str] = {}
    answered = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            servers.update(_servers_in(node.targets[0], node.value))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "answer":
            answered = True
    calls = [
        (servers[node.func.value.id], node.func.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in servers
    ]
    return calls, None if answered else "the gold program never calls answer(...)"


def _servers_in(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, str]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, two in zip(target.elts, value.elts, strict=False):
            yield from _servers_in(one, two)
    elif (
        isinstance(target, ast.Name)
        and isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == "MCPServer"
        and value.args
        and isinstance(value.args[0], ast.Constant)
    ):
        yield target.id, str(value.args[0].value)

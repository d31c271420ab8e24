"""Runs the actions of one message: loads, searches, tool calls, cells, the answer.

Owns the tool-call budget, the order of calls and the sandbox of one episode. Does not know tokens,
turns or rewards: it returns labelled texts and typed results.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from atlas_gym.context.budget import Budget
from atlas_gym.errors import ConfigError, SandboxError, UnknownNameError
from atlas_gym.sandbox import CellLimits, CellResult, Sandbox, choose, open_sandbox
from atlas_gym.toolspace.exposure import NotLoaded, View
from atlas_gym.toolspace.scaffold import Host, prelude
from atlas_gym.types import Action, Label, Stop, ToolCall, ToolResult
from atlas_gym.wire.calls import Calls


@dataclass(frozen=True)
class Piece:
    """A labelled part of what the agent sees."""

    label: Label
    text: str


@dataclass
class Outcome:
    """What the actions of one message came to."""

    pieces: list[Piece] = field(default_factory=list)
    made: list[ToolResult] = field(default_factory=list)
    stop: Stop = ""
    answer: str | None = None
    error: str = ""

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """Every tool call of the message, in order."""
        return tuple(self.made)


class Dispatcher:
    """The acting half of one episode."""

    def __init__(
        self,
        *,
        view: View,
        sessions: Calls,
        budget: Budget,
        sandbox: str,
        seed: int,
        read_only: Callable[[str, str], bool],
    ) -> None:
        self.tool_calls = 0
        self.sandbox_kind = sandbox
        self._view = view
        self._sessions = sessions
        self._budget = budget
        self._seed = seed
        self._read_only = read_only
        self._sandbox: Sandbox | None = None
        self._host = Host(view, self._call_from_cell)
        self._outcome = Outcome()
        self._deadline = 0.0
        self._overspent = False

    async def run(self, actions: Sequence[Action], *, seconds: float) -> Outcome:
        """Run the actions in order; read-only calls that stand together run concurrently.

        Args:
            actions: What the agent asked for in one message.
            seconds: What is left of the episode's time.
        """
        self._deadline = time.monotonic() + seconds
        self._outcome = outcome = Outcome()
        i = 0
        while i < len(actions) and not outcome.stop:
            together = self._run_together(actions[i:])
            if len(together) > 1:
                await self._calls(together)
            else:
                await self._one(actions[i])
            i += max(1, len(together))
            if self._sessions.lost:
                outcome.stop, outcome.error = "infra", self._sessions.lost
            elif self._overspent and not outcome.stop:
                outcome.stop = "tool_calls"
            elif time.monotonic() >= self._deadline and not outcome.stop:
                outcome.stop = "time"
        return outcome

    def _run_together(self, actions: Sequence[Action]) -> list[Action]:
        """The leading calls that only read and so may run at the same time."""
        together: list[Action] = []
        for action in actions:
            given = action.arguments
            if action.kind != "call_tool" or not self._reads(given["server"], given["tool"]):
                break
            together.append(action)
        return together

    def _reads(self, server: str, tool: str) -> bool:
        try:
            known = self._view.require(server, tool)
        except (NotLoaded, UnknownNameError):
            return False
        return self._read_only(known.server, known.name)

    async def _one(self, action: Action) -> None:
        given = action.arguments
        match action.kind:
            case "invalid":
                self._say("errors", action.error)
            case "answer":
                self._outcome.answer, self._outcome.stop = given["text"], "answer"
            case "run_code":
                await self._cell(given["code"])
            case "call_tool":
                await self._calls([action])
            case "load_server":
                self._teach("schemas", lambda: self._view.load_server(given["server"]))
            case "load_tools":
                self._teach("schemas", lambda: self._view.load_tools(given["server"], given["tools"]))
            case "search_tools":
                self._teach("index", lambda: self._view.search(given["query"], given.get("k", 5)))

    def _say(self, label: Label, text: str) -> None:
        pieces = self._outcome.pieces
        pieces.append(Piece(label, ("\n" if pieces else "") + text))

    def _teach(self, label: Label, make: Callable[[], str]) -> None:
        try:
            text = make()
        except ConfigError as exc:
            self._say("errors", f"Error: {exc}")
        else:
            self._say(label, text)

    async def _calls(self, actions: Sequence[Action]) -> None:
        """JSON calls: admitted one by one in order, then run together."""
        calls = [
            ToolCall(a.arguments["server"], a.arguments["tool"], a.arguments.get("arguments", {}))
            for a in actions
        ]
        admitted = [self._admit(call) for call in calls]
        if len(admitted) == 1:  # spares a task, for nearly every step
            results = [await self._run(admitted[0])]
        else:
            results = await asyncio.gather(*(self._run(given) for given in admitted))
        for result in results:
            self._outcome.made.append(result)
            self._say("results" if result.outcome == "ok" else "errors", result_text(result))

    def _admit(self, call: ToolCall) -> ToolCall | ToolResult:
        """Count a call against the budget, or refuse it with a reason."""
        try:
            tool = self._view.require(call.server, call.tool)
        except NotLoaded as exc:
            return ToolResult(call, "refused", text=str(exc))
        except UnknownNameError as exc:
            return ToolResult(call, "invalid_call", text=str(exc))
        if time.monotonic() >= self._deadline:
            return ToolResult(call, "refused", text="The time of the episode is over.")
        if self.tool_calls >= self._budget.tool_calls:
            self._overspent = True
            return ToolResult(
                call, "refused", text=f"The budget of {self._budget.tool_calls} tool calls is spent."
            )
        self.tool_calls += 1
        return ToolCall(tool.server, tool.name, call.arguments, call.via)

    async def _run(self, admitted: ToolCall | ToolResult) -> ToolResult:
        if isinstance(admitted, ToolResult):
            return admitted
        # Its own deadline, however little of the episode's time is left: a call cut short by that would look
        # like a server that hangs.
        return await self._sessions.call(admitted, seconds=self._budget.call_seconds)

    async def _call_from_cell(self, call: ToolCall) -> ToolResult:
        """One call of a cell. `Host` records it, as it records those that it refuses itself."""
        try:
            return await self._run(self._admit(call))
        except asyncio.CancelledError:
            self._host.results.append(
                ToolResult(call, "timeout", text="The cell was stopped during this call.")
            )
            raise

    async def _cell(self, code: str) -> None:
        try:
            if self._sandbox is None:
                self.sandbox_kind = choose(self.sandbox_kind)
                limits = CellLimits(
                    seconds=float(self._budget.cell_seconds),
                    total_seconds=max(1.0, self._deadline - time.monotonic()),
                    memory_mb=self._budget.cell_memory_mb,
                    seed=self._seed,
                )
                self._sandbox = await open_sandbox(
                    self.sandbox_kind, call=self._host, prelude=prelude(self.sandbox_kind), limits=limits
                )
            self._host.begin()
            result = await self._sandbox.run(code)
        except SandboxError as exc:
            self._outcome.stop, self._outcome.error = "infra", str(exc)
            return
        finally:
            self._outcome.made += self._host.results
        answer = self._host.answer
        if answer is not None and (result.status == "ok" or result.error_type == "SystemExit"):
            self._outcome.answer, self._outcome.stop = answer, "answer"
            return
        self._show(result)

    def _show(self, result: CellResult) -> None:
        shown = result.stdout
        if result.value is not None:
            shown += ("" if not shown or shown.endswith("\n") else "\n") + result.value
        if result.status == "ok":
            self._say("code", shown or "(no output; print what you want to see)")
            return
        if shown:
            self._say("code", shown)
        hint = self._host.explain(result.error_type, result.error)
        self._say("errors", result.error + (f"\n{hint}" if hint else ""))

    async def close(self) -> None:
        """End the sandbox. Idempotent."""
        if self._sandbox is not None:
            sandbox, self._sandbox = self._sandbox, None
            await sandbox.close()


def result_text(result: ToolResult) -> str:
    """What the agent reads of one result in JSON execution."""
    name = f"{result.call.server}:{result.call.tool}"
    if result.outcome == "ok":
        text = result.text or json.dumps(result.value, ensure_ascii=False)
        return f"[{name}]\n{text}"
    said = {
        "tool_error": "the tool reported an error",
        "invalid_call": "the call is not valid",
        "refused": "refused",
        "timeout": "no answer in time",
        "crashed": "the server died",
    }[result.outcome]
    return f"[{name}] Error, {said}: {result.text}"

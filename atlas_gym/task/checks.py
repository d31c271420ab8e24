"""Running a task's checks at the end of an episode, and the base reward.

First `tool_checks`, while the servers live; then `state_checks`, on copies. A check fails on anything
that the agent left wrong; it has an `error` only when the machine could not run it. Does not know who
runs it or when.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from atlas_gym.errors import TaskError
from atlas_gym.task import answers, states
from atlas_gym.task.evidence import Evidence, Unavailable, Unreadable
from atlas_gym.task.kinds import (
    AnswerJson,
    AnswerNumber,
    AnswerText,
    CalledCheck,
    Check,
    CheckBase,
    ToolCheck,
)
from atlas_gym.task.model import Task
from atlas_gym.types import CheckResult, ToolCall, ToolResult

__all__ = ["Check", "Evidence", "reward", "state_checks", "tool_checks"]

_MACHINE: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EIO,
        errno.EROFS,
        errno.EAGAIN,
    }
)
"""Errors of the operating system that are the machine's fault, never the agent's."""


async def tool_checks(task: Task, call: Callable[[ToolCall], Awaitable[ToolResult]]) -> list[CheckResult]:
    """Run the checks that call tools, in the task's order. Only these; the servers must still live.

    Args:
        task: Whose checks.
        call: Calls one tool and never raises for the server's fault.
    """
    results = []
    for check in task.checks:
        if isinstance(check, ToolCheck):
            reply = await call(ToolCall(check.server, check.tool, dict(check.arguments), via="check"))
            results.append(_of_reply(check, reply))
    return results


def state_checks(task: Task, evidence: Evidence) -> list[CheckResult]:
    """Run every check that calls no tool, in the task's order."""
    with states.Pristine(task.setup, evidence.files.parent) as pristine:
        return [
            _run(check, task, evidence, pristine) for check in task.checks if not isinstance(check, ToolCheck)
        ]


def reward(results: Iterable[CheckResult]) -> float:
    """The weighted fraction of passed checks; 0 when a gate is broken or a check could not run.

    Gates have no share. Whether the number is valid at all is another question: it is not when any
    result has an `error`.
    """
    found = list(results)
    if any(r.error or (r.gate and not r.passed) for r in found):
        return 0.0
    shares = [r for r in found if not r.gate]
    total = sum(r.weight for r in shares)
    return sum(r.weight for r in shares if r.passed) / total if total > 0 else 0.0


def _result(check: CheckBase, wrong: str = "", error: str = "") -> CheckResult:
    passed = not wrong and not error
    return CheckResult(check.name, passed, check.weight, check.gate, detail=wrong[:500], error=error[:500])


def _of_reply(check: ToolCheck, reply: ToolResult) -> CheckResult:
    if reply.failed:  # never the tool's own error, which a check may want to see
        return _result(
            check, f"{check.tool}: after what was done, a clean server fails on it: {reply.text[:300]}"
        )
    if reply.outcome not in ("ok", "tool_error"):
        return _result(check, error=f"{check.server}.{check.tool}: {reply.outcome}: {reply.text[:300]}")
    if check.fails:
        return _result(check, "" if reply.outcome == "tool_error" else "the call works, but must not")
    if reply.outcome != "ok":
        return _result(check, f"{check.tool}: {reply.text[:300]}")
    value = _decoded(reply.value)
    wrong = states.parts_differ(value, check.expected, check.tolerance)
    for path, length in check.lengths.items():
        try:
            part = answers.at(value, path)
        except LookupError as exc:
            wrong = wrong or f"{path!r} is missing: {exc}"
            continue
        if not isinstance(part, list) or len(part) != length:
            size = len(part) if isinstance(part, list) else type(part).__name__
            wrong = wrong or f"{path!r} has length {size}, not {length}"
    return _result(check, wrong)


def _decoded(value: Any) -> Any:
    """Some servers put a JSON text into a structured result: then the text's value is meant."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _run(check: Check, task: Task, evidence: Evidence, pristine: states.Pristine) -> CheckResult:
    try:
        match check:
            case AnswerNumber() | AnswerText() | AnswerJson():
                return _result(check, _of_answer(check, evidence.answer, task.prompt))
            case CalledCheck():
                return _result(check, _of_calls(check, evidence.calls))
            case ToolCheck():
                raise TaskError(f"Check {check.name!r} calls a tool: run it with tool_checks.")
            case _:
                return _result(check, states.wrong(check, evidence, pristine))
    except Unreadable as exc:
        return _result(check, str(exc) or "unreadable")
    except Unavailable as exc:
        return _result(check, error=str(exc))
    except OSError as exc:
        if exc.errno in _MACHINE:
            return _result(check, error=f"{exc.strerror} ({exc.filename})")
        return _result(check, f"{type(exc).__name__}: {exc.strerror}")


def _of_answer(check: AnswerNumber | AnswerText | AnswerJson, answer: str | None, prompt: str) -> str:
    if answer is None or not answer.strip():
        return "there is no answer"
    match check:
        case AnswerNumber():
            return answers.has_number(
                answer, check.value, tolerance=check.tolerance, limit=check.limit, known=prompt
            )
        case AnswerText():
            return _of_text(check, answer)
        case AnswerJson():
            try:
                value = answers.json_in(answer)
            except ValueError as exc:
                return str(exc)
            return states.parts_differ(value, check.expected, check.tolerance)


def _of_text(check: AnswerText, answer: str) -> str:
    lost = [p for p in check.all_of if not answers.mentions(answer, p)]
    if lost:
        return f"it does not say {lost[0]!r}"
    if check.any_of and not answers.mentioned(answer, check.any_of):
        return f"it says none of {', '.join(map(repr, check.any_of[:5]))}"
    if bad := answers.mentioned(answer, check.none_of):
        return f"it says {bad[0]!r}"
    others = answers.mentioned(answer, check.options)
    if len(others) > check.allowed:
        return f"it also names {', '.join(map(repr, others[:5]))}"
    return ""


def _of_calls(check: CalledCheck, calls: Iterable[ToolResult]) -> str:
    count = sum(_matches(check, done) for done in calls)
    if check.times is not None:
        return "" if count == check.times else f"{count} such calls, not {check.times}"
    return "" if count else f"no such call of {check.server}.{'/'.join(check.tools)}"


def _matches(check: CalledCheck, done: ToolResult) -> bool:
    call = done.call
    if call.via == "check" or call.server != check.server or call.tool not in check.tools:
        return False
    if done.outcome not in check.outcomes:
        return False
    arguments = dict(call.arguments)
    if states.parts_differ(arguments, check.arguments, 0.0):
        return False
    seen = "\n".join((_flat(arguments), _flat(done.value), done.text))
    if not all(answers.mentions(seen, text) for text in check.mentions):
        return False
    return not states.parts_differ(_decoded(done.value), check.expected, 0.005)


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(_flat(v) for v in value.values())
    if isinstance(value, list | tuple):
        return "\n".join(_flat(v) for v in value)
    return str(value)

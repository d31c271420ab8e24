"""Answers, calls and tool checks, the reward, and what a task may not be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from atlas_gym.task.checks import reward, state_checks, tool_checks
from atlas_gym.task.evidence import Evidence
from atlas_gym.task.kinds import (
    AnswerJson,
    AnswerNumber,
    AnswerText,
    CalledCheck,
    Check,
    FileCheck,
    ToolCheck,
    UnchangedCheck,
)
from atlas_gym.task.model import Criterion, Rubric, Task
from atlas_gym.types import CheckResult, Outcome, ToolCall, ToolResult


def task(*checks: Check, **more: Any) -> Task:
    fields: dict[str, Any] = {
        "id": "s/t",
        "suite": "s",
        "difficulty": "easy",
        "prompt": "Add 3 to 4.",
        "servers": ("x",),
    }
    return Task(**{**fields, "gold": "answer('7')", "checks": checks, **more})


def judged(check: Check, answer: str | None, calls: Sequence[ToolResult] = ()) -> CheckResult:
    whole = task(check, FileCheck(name="share", path="a"))
    return state_checks(
        whole, Evidence(answer, Path("/nonexistent"), lambda server: Path("/nonexistent"), calls)
    )[0]


@pytest.mark.parametrize(
    ("check", "answer", "passed"),
    [
        (AnswerNumber(name="c", value=7), "It is 7.", True),
        (AnswerNumber(name="c", value=7), "3 and 4 give 7", True),
        (AnswerNumber(name="c", value=7), "8", False),
        (AnswerNumber(name="c", value=7, limit=2), "5, 6, 7", False),
        (AnswerNumber(name="c", value=7), "", False),
        (AnswerNumber(name="c", value=7), None, False),
        (AnswerText(name="c", all_of=("Ann",), options=("Bob",)), "ann did it", True),
        (AnswerText(name="c", all_of=("Ann",), options=("Bob",)), "Ann or Bob", False),
        (AnswerText(name="c", all_of=("Ann",), options=("Bob",), allowed=1), "Ann, not Bob", True),
        (AnswerText(name="c", any_of=("05:30", "5:30 am")), "at 5:30 AM", True),
        (AnswerText(name="c", any_of=("yes",), none_of=("no",)), "yes and no", False),
        (AnswerText(name="c", all_of=("Ann",)), "Joanna", False),
        (AnswerJson(name="c", expected={"a.b": 1, "c": "X"}), 'So: {"a": {"b": "1.0"}, "c": " x"}', True),
        (AnswerJson(name="c", expected={"a": 1}), '{"b": 1}', False),
        (AnswerJson(name="c", expected={"a": 1}), "a is 1", False),
    ],
)
def test_answers(check: Check, answer: str | None, passed: bool) -> None:
    found = judged(check, answer)
    assert found.passed is passed
    assert bool(found.detail) is not passed
    assert not found.error


@given(st.text(max_size=200))
def test_no_answer_breaks_a_check(answer: str) -> None:
    for check in (
        AnswerNumber(name="c", value=123456.789),
        AnswerText(name="c", all_of=("not in any random text at all",)),
        AnswerJson(name="c", expected={"no such key": 1}),
    ):
        found = judged(check, answer)
        assert not found.passed
        assert not found.error


def done(tool: str, outcome: Outcome = "ok", value: Any = None, **arguments: Any) -> ToolResult:
    return ToolResult(ToolCall("x", tool, arguments, via="code"), outcome, value)


@pytest.mark.parametrize(
    ("check", "passed"),
    [
        (CalledCheck(name="c", server="x", tools=("get", "read")), True),
        (CalledCheck(name="c", server="x", tools=("get",), times=2), True),
        (CalledCheck(name="c", server="x", tools=("get",), times=1), False),
        (CalledCheck(name="c", server="x", tools=("get",), arguments={"id": "a 1"}, times=1), True),
        (CalledCheck(name="c", server="x", tools=("get",), expected={"n": 5}), True),
        (CalledCheck(name="c", server="x", tools=("get",), expected={"n": 6}), False),
        (CalledCheck(name="c", server="x", tools=("get",), mentions=("tea",)), True),
        (CalledCheck(name="c", server="x", tools=("put",)), False),
        (CalledCheck(name="c", server="x", tools=("put",), outcomes=("tool_error",)), True),
        (CalledCheck(name="c", server="x", tools=("never",), times=0), True),
        (CalledCheck(name="c", server="y", tools=("get",)), False),
    ],
)
def test_called(check: CalledCheck, passed: bool) -> None:
    calls = [
        done("get", id="A 1", value={"n": 5, "drink": "tea"}),
        done("get", id="b"),
        done("put", "tool_error", id="a 1"),
        ToolResult(ToolCall("x", "never", {}, via="check"), "ok"),
    ]
    assert judged(check, "", calls).passed is passed


@pytest.mark.asyncio
async def test_tool_checks_judge_the_reply_and_tell_faults_apart() -> None:
    replies: dict[str, tuple[Outcome, Any]] = {
        "good": ("ok", {"rows": [["2.50"]], "l": [1, 2]}),
        "text": ("ok", '{"rows": [["2.50"]]}'),
        "gone": ("tool_error", None),
        "slow": ("timeout", None),
    }
    asked: list[ToolCall] = []

    async def call(one: ToolCall) -> ToolResult:
        asked.append(one)
        outcome, value = replies[one.tool]
        return ToolResult(one, outcome, value, text="said so")

    def check(name: str, tool: str, **more: Any) -> ToolCheck:
        return ToolCheck(name=name, server="x", tool=tool, arguments={"id": 1}, **more)

    rows = {"rows[0][0]": 2.5}
    found = await tool_checks(
        task(
            check("a", "good", expected=rows, lengths={"l": 2}),
            FileCheck(name="not a tool", path="a"),
            check("b", "text", expected=rows),
            check("c", "good", lengths={"l": 3}),
            check("d", "good", lengths={"rows[0][0]": 1}),
            check("e", "good", lengths={"none": 1}),
            check("f", "gone", expected=rows),
            check("g", "gone", fails=True),
            check("h", "good", fails=True),
            check("i", "slow", expected=rows, gate=True),
        ),
        call,
    )
    assert "".join(r.name for r in found if r.passed) == "abg"
    assert [r.name for r in found if r.error] == ["i"]
    assert [r.name for r in found] == list("abcdefghi")
    assert {(one.via, dict(one.arguments)["id"]) for one in asked} == {("check", 1)}


RESULTS = st.builds(
    CheckResult,
    name=st.just("c"),
    passed=st.booleans(),
    weight=st.floats(min_value=0.01, max_value=100),
    gate=st.booleans(),
    error=st.sampled_from(["", "", "", "no git"]),
)


@given(st.lists(RESULTS, max_size=8))
def test_the_reward_is_a_fraction_and_gates_only_take(results: list[CheckResult]) -> None:
    value = reward(results)
    assert 0.0 <= value <= 1.0
    shares = [r for r in results if not r.gate]
    if any(r.error or (r.gate and not r.passed) for r in results):
        assert value == 0.0
    else:
        assert value == reward(shares)
        assert (value == 1.0) is (bool(shares) and all(r.passed for r in shares))
    assert reward([*results, CheckResult("g", True, 5, True)]) == value
    assert reward([*results, CheckResult("g", False, 5, True)]) == 0.0


@given(st.lists(RESULTS.filter(lambda r: not r.error and not r.gate), min_size=1, max_size=8), st.data())
def test_passing_one_check_more_never_costs(results: list[CheckResult], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(results) - 1))
    one = results[at]
    better = [*results[:at], CheckResult("c", True, one.weight, False), *results[at + 1 :]]
    assert reward(better) >= reward(results)


def test_a_task_survives_json() -> None:
    whole = task(
        AnswerNumber(name="n", value=7),
        UnchangedCheck(name="u", of="file", path="a"),
        ToolCheck(name="t", server="x", tool="get", expected={"a": None}),
        rubric=Rubric(criteria=(Criterion(category="TF", description="d", weight=9, check="n"),)),
    )
    assert Task.model_validate_json(whole.model_dump_json()) == whole
    assert whole.visible == ("x",)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"checks": (FileCheck(name="a", path="a"), FileCheck(name="a", path="b"))}, "same name"),
        ({"checks": (FileCheck(name="a", path="a", gate=True),)}, "nothing can be earned"),
        ({"checks": ()}, "at least 1"),
        ({"distractors": ("x",)}, "both a server and a distractor"),
        ({"servers": ()}, "at least 1"),
        ({"id": "no slash"}, "pattern"),
        (
            {"rubric": {"criteria": [{"category": "TF", "description": "d", "weight": 1, "check": "z"}]}},
            "not there",
        ),
        ({"hint": "typo"}, "Extra inputs"),
    ],
)
def test_what_is_no_task(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        task(FileCheck(name="a", path="a"), **more)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (AnswerText, {}),
        (ToolCheck, {"server": "x", "tool": "t"}),
        (ToolCheck, {"server": "x", "tool": "t", "fails": True, "expected": {"a": 1}}),
        (UnchangedCheck, {"of": "query", "path": "a"}),
        (UnchangedCheck, {"of": "file", "path": "a", "gate": False}),
        (FileCheck, {"path": "../a"}),
        (FileCheck, {"path": "a", "weight": 0}),
        (AnswerNumber, {"value": float("nan")}),
    ],
)
def test_what_is_no_check(kind: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        kind(name="c", **fields)

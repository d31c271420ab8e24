from __future__ import annotations

import ast
import dataclasses
import inspect
from typing import Any

import pytest

from atlas_gym.context.budget import Budget
from atlas_gym.errors import ConfigError, UnknownNameError


def test_defaults_are_the_papers() -> None:
    assert Budget().to_dict() == {
        "context_tokens": 31_000,
        "response_tokens": 4_000,
        "tool_calls": 20,
        "turns": 30,
        "cell_seconds": 10,
        "cell_memory_mb": 256,
        "call_seconds": 30,
        "episode_seconds": 600,
    }


def test_mapping_and_back() -> None:
    budget = Budget.from_mapping({"turns": 5, "call_seconds": 2})
    assert (budget.turns, budget.call_seconds, budget.context_tokens) == (5, 2, 31_000)
    assert Budget.from_mapping(budget.to_dict()) == budget


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("turns", 0),
        ("turns", 1.5),
        ("turns", "3"),
        ("turns", True),
        ("tool_calls", -1),
        ("context_tokens", None),
        ("cell_seconds", float("nan")),
        ("call_seconds", float("inf")),
        ("episode_seconds", 0),
    ],
)
def test_bad_values_name_field_value_and_range(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Budget.from_mapping({name: value})
    message = str(caught.value)
    assert name in message
    assert repr(value) in message
    assert " from " in message


def test_unknown_key_says_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'tool_calls'"):
        Budget.from_mapping({"tool_call": 3})


def test_lifted_has_room_and_keeps_the_limits_per_call() -> None:
    budget = Budget(call_seconds=3).lifted()
    assert budget.context_tokens >= 1_000_000
    assert budget.turns >= 1_000
    assert (budget.call_seconds, budget.cell_seconds) == (3, 10)


def test_every_field_has_a_docstring() -> None:
    body = ast.parse(inspect.getsource(Budget)).body[0]
    assert isinstance(body, ast.ClassDef)
    documented = {
        before.target.id
        for before, after in zip(body.body, body.body[1:], strict=False)
        if isinstance(before, ast.AnnAssign)
        and isinstance(before.target, ast.Name)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
    }
    assert documented == {field.name for field in dataclasses.fields(Budget)}

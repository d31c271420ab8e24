"""Summaries: what counts as solved, what is left out, what fits."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from atlas_gym.context.budget import Budget
from atlas_gym.rollout.metrics import (
    context_at_end,
    fits,
    growth,
    interval,
    solved,
    summarise,
    tool_calls,
)
from atlas_gym.types import Action, Outcome, ToolCall, ToolResult, Trajectory, Turn

OK: tuple[Outcome, ...] = ("ok",) * 21


def turn(index: int, used: int, *outcomes: Outcome, invalid: bool = False) -> Turn:
    call = ToolCall("s", "t", {})
    return Turn(
        index=index,
        text="",
        actions=(Action("invalid", error="no") if invalid else Action("call_tool"),),
        results=tuple(ToolResult(call, outcome) for outcome in outcomes),
        observation="",
        segments=(),
        context_used=used,
        ledger={},
        seconds=0.5,
    )


def trajectory(*turns: Turn, **fields: Any) -> Trajectory:
    made = Trajectory(
        task_id="a/b",
        suite="a",
        seed=0,
        settings={},
        prompt="",
        servers=("s",),
        segments=(),
        turns=turns,
        stop="answer",
        context_at_reset=100,
    )
    return dataclasses.replace(made, **fields)


def test_an_episode_without_a_turn_ends_where_it_began() -> None:
    assert context_at_end(trajectory()) == 100
    assert growth(trajectory()) == [100]
    assert growth(trajectory(turn(1, 150), turn(2, 170))) == [100, 150, 170]


def test_refused_calls_were_not_made() -> None:
    assert tool_calls(trajectory(turn(1, 1, "ok", "refused", "tool_error"))) == 2


def test_only_full_marks_that_count_are_solved() -> None:
    assert solved(trajectory(reward=1.0))
    assert not solved(trajectory(reward=0.99))
    assert not solved(trajectory(reward=1.0, reward_valid=False))


@pytest.mark.parametrize(
    ("turns", "budget", "expected"),
    [
        ([turn(1, 31_000)], Budget(), True),
        ([turn(1, 31_001)], Budget(), False),
        ([turn(1, 10, *OK[:20])], Budget(), True),
        ([turn(1, 10, *OK)], Budget(), False),
        ([turn(i, 10) for i in range(30)], Budget(), True),
        ([turn(i, 10) for i in range(31)], Budget(), False),
        ([turn(1, 31_000)], Budget(context_tokens=1_000), False),
    ],
)
def test_fits(turns: list[Turn], budget: Budget, expected: bool) -> None:
    assert fits(trajectory(*turns), budget) is expected


def test_invalid_rewards_are_counted_and_left_out_of_the_mean() -> None:
    found = summarise(
        [
            trajectory(turn(1, 200, "ok"), reward=1.0),
            trajectory(turn(1, 300, "ok", "ok"), turn(2, 400, invalid=True), reward=0.5),
            trajectory(turn(1, 200), reward=0.0, reward_valid=False, invalid_reason="infra", stop="infra"),
            trajectory(turn(1, 200), reward=0.0, stop="context"),
        ]
    )
    assert (found.episodes, found.valid, found.solved, found.infra, found.cut) == (4, 3, 1, 1, 1)
    assert found.reward == pytest.approx(0.5)
    assert found.turns == pytest.approx(5 / 4)
    assert found.tool_calls == pytest.approx(3 / 4)
    assert found.context_at_reset == 100
    assert found.context_at_end == pytest.approx(1000 / 4)
    assert found.invalid_actions == pytest.approx(1 / 4)
    assert found.seconds == pytest.approx(5 * 0.5 / 4)
    assert found.fits == 4
    assert found.to_json()["solved"] == 1


def test_an_interval_needs_two_values_and_holds_the_mean() -> None:
    assert interval([1.0]) is None
    assert interval([1.0] * 9) == (1.0, 1.0)
    ends = interval([0.0, 1.0] * 20)
    assert ends is not None
    low, high = ends
    assert 0.3 < low < 0.5 < high < 0.7
    assert interval([0.0, 1.0] * 20) == (low, high)


def test_nothing_played_is_said_and_no_number_is_made_up() -> None:
    found = summarise([])
    assert found.reward is None
    assert found.reward_low is None
    assert (found.episodes, found.solved) == (0, 0)

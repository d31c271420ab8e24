"""Numbers over many trajectories: how often solved, how long, how much context, with intervals.

Owns their definitions. An invalid reward (infra, judge) is left out of means and counted apart, never
taken as zero. Does not know who played.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from atlas_gym.context.budget import Budget
from atlas_gym.types import Trajectory

RESAMPLES: Final = 2_000
INTERVAL: Final = f"percentile bootstrap over episodes, 95 %, {RESAMPLES} resamples, seed 0"
"""How every interval here is made; written beside it in results."""

_CUTS: Final = ("context", "turns", "tool_calls", "time")


@dataclass(frozen=True)
class Summary:
    """What a set of episodes came to. Token counts and calls are means over all of them."""

    episodes: int
    valid: int
    """Episodes whose reward counts."""
    solved: int
    """Valid episodes with reward 1."""
    reward: float | None
    """Mean over valid episodes; None without any."""
    reward_low: float | None
    """Lower end of the 95 % interval (see `INTERVAL`); None below two valid episodes."""
    reward_high: float | None
    turns: float
    tool_calls: float
    context_at_reset: float
    context_at_end: float
    fits: int
    """Episodes that would have fitted the budget they were measured against."""
    invalid_actions: float
    """Messages per episode that held something which was not understood."""
    infra: int
    """Episodes that machinery ended, not the agent."""
    cut: int
    """Episodes that a budget ended."""
    seconds: float
    """Mean wall time inside `step`."""

    def to_json(self) -> dict[str, Any]:
        """Every field as a JSON value."""
        return dataclasses.asdict(self)


def context_at_end(trajectory: Trajectory) -> int:
    """Tokens of the whole conversation when the episode ended."""
    return trajectory.turns[-1].context_used if trajectory.turns else trajectory.context_at_reset


def tool_calls(trajectory: Trajectory) -> int:
    """Tool calls that were made, inside cells or not; refused ones were not made."""
    return sum(r.outcome != "refused" for turn in trajectory.turns for r in turn.results)


def growth(trajectory: Trajectory) -> list[int]:
    """Context tokens at reset, then after each turn."""
    return [trajectory.context_at_reset, *(turn.context_used for turn in trajectory.turns)]


def fits(trajectory: Trajectory, budget: Budget) -> bool:
    """Whether an episode stayed within a budget that it was not played under.

    Context, turns and tool calls are compared. An answer over `response_tokens` would have been cut,
    which makes a conversation shorter, so that this errs on the strict side.
    """
    return (
        context_at_end(trajectory) <= budget.context_tokens
        and len(trajectory.turns) <= budget.turns
        and tool_calls(trajectory) <= budget.tool_calls
    )


def solved(trajectory: Trajectory) -> bool:
    """Full marks that count."""
    return trajectory.reward_valid and trajectory.reward >= 1.0


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean (`INTERVAL`), or None below two values."""
    if len(values) < 2:
        return None
    data = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(0).integers(len(data), size=(RESAMPLES, len(data)))
    low, high = np.percentile(data[draws].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def summarise(trajectories: Sequence[Trajectory], *, budget: Budget | None = None) -> Summary:
    """Summarise episodes of one policy in one variant.

    Args:
        trajectories: Episodes that are over.
        budget: What `fits` is measured against; None for the default budget.
    """
    against = budget or Budget()
    rewards = [t.reward for t in trajectories if t.reward_valid]
    ends = interval(rewards)
    return Summary(
        episodes=len(trajectories),
        valid=len(rewards),
        solved=sum(solved(t) for t in trajectories),
        reward=_mean(rewards) if rewards else None,
        reward_low=ends[0] if ends else None,
        reward_high=ends[1] if ends else None,
        turns=_mean([len(t.turns) for t in trajectories]),
        tool_calls=_mean([tool_calls(t) for t in trajectories]),
        context_at_reset=_mean([t.context_at_reset for t in trajectories]),
        context_at_end=_mean([context_at_end(t) for t in trajectories]),
        fits=sum(fits(t, against) for t in trajectories),
        invalid_actions=_mean(
            [sum(a.kind == "invalid" for turn in t.turns for a in turn.actions) for t in trajectories]
        ),
        infra=sum(t.invalid_reason == "infra" for t in trajectories),
        cut=sum(t.stop in _CUTS for t in trajectories),
        seconds=_mean([sum(turn.seconds for turn in t.turns) for t in trajectories]),
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else 0.0

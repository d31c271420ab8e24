"""The limits of one episode, validated. Does not know who enforces them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from atlas_gym.errors import ConfigError, unknown

_LIFTED: Final = 10_000_000
_DAY: Final = 86_400.0

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "context_tokens": (1, 100_000_000),
    "response_tokens": (1, 100_000_000),
    "tool_calls": (0, _LIFTED),
    "turns": (1, _LIFTED),
    "cell_seconds": (0.1, _DAY),
    "cell_memory_mb": (32, 1_048_576),
    "call_seconds": (0.1, _DAY),
    "episode_seconds": (1, 30 * _DAY),
}


@dataclass(frozen=True, slots=True)
class Budget:
    """What one episode may use (paper, section on the context budget)."""

    context_tokens: int = 31_000
    """Tokens of the whole conversation, markup included; the episode is truncated beyond it."""
    response_tokens: int = 4_000
    """Tokens of one answer of the environment; a longer one is cut in the middle."""
    tool_calls: int = 20
    """Tool calls of one episode, whether made as JSON or inside code."""
    turns: int = 30
    """Messages that the agent may write."""
    cell_seconds: float = 10.0
    """Seconds that one code cell may compute, the time of its tool calls left out."""
    cell_memory_mb: int = 256
    """MiB of memory of the code interpreter."""
    call_seconds: float = 30.0
    """Seconds that one tool call may take."""
    episode_seconds: float = 600.0
    """Seconds of wall time of the whole episode."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            whole = isinstance(field.default, int)
            low, high = _RANGES[field.name]
            kind = "a whole number" if whole else "a number"
            good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
            if not good or not math.isfinite(value) or not low <= value <= high:
                raise ConfigError(
                    f"Budget {field.name} = {value!r} cannot be used: give {kind} from {low:g} to {high:,g}."
                )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> Budget:
        """A budget from a plain mapping; what is not named keeps its default.

        Args:
            raw: Field names and values, as in `to_dict`.

        Raises:
            UnknownNameError: A key that is no field; the message holds the closest one.
            ConfigError: A value of the wrong type or out of range.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for key in raw:
            if key not in known:
                raise unknown("budget", str(key), known)
        return cls(**raw)

    def to_dict(self) -> dict[str, int | float]:
        """Every field as a JSON value."""
        return dataclasses.asdict(self)

    def lifted(self) -> Budget:
        """The same limits per call and cell, and room for anything: for proofs that a task is solvable."""
        return dataclasses.replace(
            self,
            context_tokens=_LIFTED,
            response_tokens=_LIFTED,
            tool_calls=_LIFTED,
            turns=_LIFTED,
            episode_seconds=_DAY,
        )

"""The eight ways to show tools and to call them: exposure x execution (paper, the four agent variants).

Owns their order, their names and which of them the paper has. Does not know how an episode is played.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from atlas_gym.context.budget import Budget
from atlas_gym.env.episode import Episode, EpisodeSettings
from atlas_gym.env.world import World
from atlas_gym.errors import ConfigError, unknown
from atlas_gym.task.model import Task
from atlas_gym.toolspace.prompts import EXECUTIONS, EXPOSURES, Execution, Exposure

_PAPER: Final = {
    "eager/json": "eager",
    "servers/json": "ISL",
    "tools/json": "ITL",
    "tools/code": "ITL + PTC",
}


@dataclass(frozen=True)
class Variant:
    """One cell of the exposure x execution table."""

    exposure: Exposure
    execution: Execution

    @property
    def name(self) -> str:
        """`exposure/execution`, as commands and tables write it."""
        return f"{self.exposure}/{self.execution}"

    @property
    def paper(self) -> str:
        """The paper's name of this variant; "" where the paper does not have it."""
        return _PAPER.get(self.name, "")

    def episode(
        self,
        world: World,
        task: Task,
        *,
        budget: Budget | None = None,
        sandbox: str = "auto",
        seed: int | None = 0,
    ) -> Episode:
        """A new, still closed episode of a task in this variant, with the task's own distractors.

        Args:
            world: What all its episodes share.
            task: What is played.
            budget: None for the default one.
            sandbox: Where code runs: "auto", "sealed", "container", "monty" or "local".
            seed: Written to the trace; the task is given, so that nothing is drawn from it.
        """
        settings = EpisodeSettings(
            exposure=self.exposure,
            execution=self.execution,
            budget=budget or Budget(),
            sandbox=sandbox,
        )
        return Episode(world, task, task.visible, settings, seed)


VARIANTS: Final[tuple[Variant, ...]] = tuple(
    Variant(exposure, execution) for execution in EXECUTIONS for exposure in EXPOSURES
)
"""All eight; the JSON ones first."""


def variant(name: str) -> Variant:
    """The variant of a name such as "tools/code".

    Raises:
        UnknownNameError: With the closest name.
    """
    known = {v.name: v for v in VARIANTS}
    if name not in known:
        raise unknown("variant", name, known)
    return known[name]


def chosen(names: Iterable[str] | None) -> tuple[Variant, ...]:
    """The variants of these names, in the order of `VARIANTS`; None for all eight.

    Raises:
        UnknownNameError: One is not known.
        ConfigError: The list is empty.
    """
    if names is None:
        return VARIANTS
    wanted = {variant(name.strip()) for name in names if name.strip()}
    if not wanted:
        raise ConfigError("No variant is named. Give some of: " + ", ".join(v.name for v in VARIANTS) + ".")
    return tuple(v for v in VARIANTS if v in wanted)

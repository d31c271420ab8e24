"""A task and its rubric, as data. Does not know how a task is made, run or checked."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, StringConstraints, model_validator

from atlas_gym.task.kinds import Check
from atlas_gym.task.setup import Record, Setup

Split: TypeAlias = Literal["train", "test", "unseen"]
Difficulty: TypeAlias = Literal["easy", "medium", "hard"]
Category: TypeAlias = Literal["TF", "TA", "TG", "PA"]
"""Task fulfilment, tool appropriateness, tool grounding, parameter accuracy (paper, rewards)."""

Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, pattern=r"^[A-Za-z0-9@_.-]+$")]
TaskId: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$")]


class Criterion(Record):
    """One thing that a judge looks for in a trajectory."""

    category: Category
    description: str = Field(min_length=1)
    weight: int = Field(ge=1, le=10)
    """1-3 nice to have, 4-6 useful, 7-8 important, 9-10 the task fails without it."""
    check: str = ""
    """Name of the task's check that decides it; "" when a judge must."""


class Rubric(Record):
    """The criteria of one task, fixed for every rollout of it."""

    criteria: tuple[Criterion, ...] = Field(min_length=1)


class Task(Record):
    """One thing to ask of an agent, with what it finds and how the end is judged."""

    id: TaskId
    """`suite/template-number`; stable for a suite version."""
    suite: Name
    split: Split = "train"
    difficulty: Difficulty
    template: str = ""
    params: dict[str, JsonValue] = Field(default_factory=dict)
    """What the template drew: for reading, never shown to the agent."""
    prompt: str = Field(min_length=1)
    servers: tuple[Name, ...] = Field(min_length=1)
    """The servers that a solution needs."""
    distractors: tuple[Name, ...] = ()
    """Servers that are visible too, and not needed."""
    setup: Setup = Setup()
    checks: tuple[Check, ...] = Field(min_length=1)
    rubric: Rubric | None = None
    gold: str = ""
    """A program that solves the task, for the code execution; it ends with `answer(text)`. Empty where
    nobody has one (a task of one's own can be played, but not proven)."""
    impossible: bool = False
    """What is asked cannot be done, and the calls that show it are what is rewarded."""

    @model_validator(mode="after")
    def _consistent(self) -> Task:
        names = [check.name for check in self.checks]
        if len(set(names)) != len(names):
            raise ValueError(
                f"two checks have the same name: {sorted(n for n in names if names.count(n) > 1)[0]!r}"
            )
        if all(check.gate for check in self.checks):
            raise ValueError("every check is a gate, so nothing can be earned: add one with gate = false")
        both = set(self.servers) & set(self.distractors)
        if both:
            raise ValueError(f"{sorted(both)[0]!r} is both a server and a distractor of the task")
        if self.rubric:
            lost = {c.check for c in self.rubric.criteria if c.check} - set(names)
            if lost:
                raise ValueError(f"the rubric names a check that is not there: {sorted(lost)[0]!r}")
        return self

    @property
    def visible(self) -> tuple[str, ...]:
        """The servers that an episode shows: the task's own and its distractors."""
        return tuple(sorted({*self.servers, *self.distractors}))

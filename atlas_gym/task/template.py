"""Seeded task templates: a function that draws one task from a random generator.

    @template(servers=("mcp-server-sqlite",), difficulty="easy")
    def orders_total(rng: random.Random) -> Draft: ...

Owns the decorator and turning drafts into tasks with stable ids. A template is trusted code that ships
with its suite. Does not know where suites lie.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final, TypeAlias

from pydantic import ValidationError

from atlas_gym.errors import TaskError
from atlas_gym.task.kinds import CheckBase
from atlas_gym.task.model import Difficulty, Split, Task
from atlas_gym.task.setup import Setup

_DISTRACTORS: Final = (2, 4)
"""Fewest and most distractor servers of one task."""


@dataclass(frozen=True)
class Draft:
    """What a template draws: a task without the fields that its template fixes."""

    prompt: str
    gold: str
    """PTC program; `textwrap.dedent` it, and end with `answer(...)`."""
    checks: Sequence[CheckBase]
    setup: Setup = field(default_factory=Setup)
    params: dict[str, Any] = field(default_factory=dict)
    impossible: bool = False


Maker: TypeAlias = Callable[[random.Random], Draft]


@dataclass(frozen=True)
class Template:
    """A template function with what it declares."""

    name: str
    maker: Maker
    servers: tuple[str, ...]
    difficulty: Difficulty
    split: Split

    def draw(self, suite: str, number: int, all_servers: Iterable[str]) -> Task:
        """The task with this number: always the same one.

        Args:
            suite: The suite's name, the first part of the id.
            number: Which draw.
            all_servers: From which the distractors are drawn.

        Raises:
            TaskError: The template fails, or draws something that is no task.
        """
        rng = random.Random(f"{suite}:{self.name}:{number}")
        where = f"Template {self.name!r} of suite {suite!r}, draw {number}"
        others = sorted(set(all_servers) - set(self.servers))
        distractors = rng.sample(others, min(len(others), rng.randint(*_DISTRACTORS)))
        try:
            draft = self.maker(rng)
            return Task(
                id=f"{suite}/{self.name}-{number:04d}",
                suite=suite,
                split=self.split,
                difficulty=self.difficulty,
                template=self.name,
                params=draft.params,
                prompt=draft.prompt.strip(),
                servers=self.servers,
                distractors=tuple(sorted(distractors)),
                setup=draft.setup,
                checks=tuple(draft.checks),  # type: ignore[arg-type]  # pydantic checks the union
                gold=draft.gold.strip() + "\n",
                impossible=draft.impossible,
            )
        except ValidationError as exc:
            raise TaskError(f"{where} is not a task: {exc}") from exc
        except (ArithmeticError, LookupError, TypeError, ValueError, AssertionError) as exc:
            raise TaskError(f"{where} failed: {type(exc).__name__}: {exc}") from exc


def template(
    *, servers: Sequence[str], difficulty: Difficulty, split: Split = "train"
) -> Callable[[Maker], Maker]:
    """Declare a template. The function's name becomes part of its tasks' ids, so it must not change.

    Args:
        servers: The servers that a solution needs.
        difficulty: By the number of distinct requirements: easy 2-3, medium 4-5, hard 6 or more.
        split: The split of all of the template's tasks: templates are never shared between splits.
    """

    def declare(maker: Maker) -> Maker:
        made = Template(maker.__name__, maker, tuple(servers), difficulty, split)
        maker.__dict__["atlas_template"] = made
        return maker

    return declare


def templates_of(module: ModuleType) -> list[Template]:
    """The templates that a module defines, in the order in which they are written."""
    found = [value.atlas_template for value in vars(module).values() if hasattr(value, "atlas_template")]
    return [made for made in found if isinstance(made, Template) and made.maker.__module__ == module.__name__]

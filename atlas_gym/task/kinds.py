"""The kinds of checks, as data: what must be true when an episode has ended.

Owns their fields and the discriminated union `Check`. Does not know how a check is run.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, model_validator

from atlas_gym.task.setup import Record, RelativePath, Scalar


class CheckBase(Record):
    """What every check has."""

    name: str = Field(min_length=1)
    """Unique in its task."""
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Share of the reward, against the other checks' weights. A gate's weight is not used."""
    gate: bool = False
    """A gate earns nothing; when it is broken, the whole reward is lost."""


class AnswerNumber(CheckBase):
    """The answer states a number, and does not list many others."""

    kind: Literal["answer_number"] = "answer_number"
    value: float = Field(allow_inf_nan=False)
    tolerance: float = Field(default=0.005, ge=0)
    limit: int = Field(default=6, ge=1)
    """How many different numbers the answer may hold, beside those that stand in the prompt."""


class AnswerText(CheckBase):
    """The answer mentions what it must as whole words, and does not enumerate the options."""

    kind: Literal["answer_text"] = "answer_text"
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    """At least one of these: ways to say the same."""
    none_of: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Wrong but thinkable answers."""
    allowed: int = Field(default=0, ge=0)
    """How many of the options may be mentioned as well."""

    @model_validator(mode="after")
    def _something(self) -> AnswerText:
        if not (self.all_of or self.any_of):
            raise ValueError(f"check {self.name!r}: give all_of or any_of; without them every answer passes")
        return self


class AnswerJson(CheckBase):
    """The answer holds a JSON value whose parts are right."""

    kind: Literal["answer_json"] = "answer_json"
    expected: dict[str, JsonValue] = Field(min_length=1)
    """Path ("" is the whole; see `answers.at`) -> value."""
    tolerance: float = Field(default=0.005, ge=0)


class FileCheck(CheckBase):
    """A file of the workspace, or of a server's state, has the right content."""

    kind: Literal["file"] = "file"
    path: RelativePath
    server: str = ""
    exists: bool = True
    equals: str | None = None
    """The whole text; spaces at line ends and empty lines at the end do not count."""
    contains: tuple[str, ...] = ()
    """Texts that must stand in it, letter case and spacing apart."""
    lacks: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    """Whole lines that must stand in it, in any order."""
    only_lines: bool = False
    """There are no other lines than `lines` (empty ones apart)."""
    number: float | None = None
    """A number that it must state (the rule of `answer_number`, at most three different numbers)."""
    tolerance: float = Field(default=0.005, ge=0)
    expected: dict[str, JsonValue] = Field(default_factory=dict)
    """The file is JSON: path -> value."""


class SqliteCheck(CheckBase):
    """A query on a database gives exactly these rows."""

    kind: Literal["sqlite"] = "sqlite"
    path: RelativePath
    server: str = ""
    query: str
    rows: tuple[tuple[Scalar, ...], ...]
    ordered: bool = False
    tolerance: float = Field(default=0.005, ge=0)


class WorkbookCheck(CheckBase):
    """Cells of a workbook have the right values."""

    kind: Literal["workbook"] = "workbook"
    path: RelativePath
    sheet: str
    cells: dict[str, Scalar]
    """Cell ("B7") -> value as last computed; None for an empty cell."""
    tolerance: float = Field(default=0.005, ge=0)
    formulas: tuple[str, ...] = ()
    """Cells that must hold a formula, not a typed value."""


class GitCheck(CheckBase):
    """A branch of a repository is right. What is not given is not looked at."""

    kind: Literal["git"] = "git"
    path: RelativePath
    branch: str = ""
    """"" is the branch that is checked out."""
    exists: bool = True
    current: str = ""
    """The branch that must be checked out."""
    commits: int | None = None
    """Commits on the branch, from the root."""
    message: tuple[str, ...] = ()
    """Texts in the tip's message."""
    tip: str = ""
    """The tip's subject line, whole."""
    files: dict[str, str | None] = Field(default_factory=dict)
    """Path in the tip's tree -> content; None when it must not be there. Spaces at line ends do not count."""
    contains: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class GraphCheck(CheckBase):
    """A knowledge graph in a JSON-lines file (the format of `server-memory`)."""

    kind: Literal["graph"] = "graph"
    path: RelativePath
    entity: str = ""
    entity_type: str = ""
    exists: bool = True
    observations: tuple[str, ...] = ()
    """Observations that the entity must have, letter case and spacing apart."""
    lacks: tuple[str, ...] = ()
    relations: tuple[tuple[str, str, str], ...] = ()
    """(from, type, to) that must be there."""
    no_relations: tuple[tuple[str, str, str], ...] = ()


class ToolCheck(CheckBase):
    """A tool that the environment calls itself, after the agent has ended, answers rightly."""

    kind: Literal["tool"] = "tool"
    server: str
    tool: str
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    fails: bool = False
    """The call must end in the tool's own error (the thing is gone)."""
    expected: dict[str, JsonValue] = Field(default_factory=dict)
    """Path into the result -> value."""
    lengths: dict[str, int] = Field(default_factory=dict)
    """Path into the result -> length of the list there."""
    tolerance: float = Field(default=0.005, ge=0)

    @model_validator(mode="after")
    def _something(self) -> ToolCheck:
        if self.fails == bool(self.expected or self.lengths):
            raise ValueError(f"check {self.name!r}: give either fails, or expected or lengths")
        return self


class CalledCheck(CheckBase):
    """The host's own record shows a call: the evidence for what leaves no state behind."""

    kind: Literal["called"] = "called"
    server: str
    tools: tuple[str, ...] = Field(min_length=1)
    """Any of these tools."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """Arguments (paths as in `answers.at`) that the call must have had."""
    mentions: tuple[str, ...] = ()
    """Texts that must stand somewhere in the call's arguments or result, as whole words."""
    outcomes: tuple[Literal["ok", "tool_error"], ...] = ("ok",)
    expected: dict[str, JsonValue] = Field(default_factory=dict)
    """Path into the result -> value."""
    times: int | None = Field(default=None, ge=0)
    """Exactly so many such calls; None for at least one."""


class UnchangedCheck(CheckBase):
    """What the setup laid out is still there as it was. Always a gate: keeping it earns nothing."""

    kind: Literal["unchanged"] = "unchanged"
    gate: Literal[True] = True
    of: Literal["file", "folder", "query", "sheet", "branch", "graph"]
    path: RelativePath
    server: str = ""
    query: str = ""
    """For `query`: rows that must be the same as in the setup."""
    sheet: str = ""
    """For `sheet`."""
    branch: str = ""
    """For `branch`: its tip must be the same commit."""
    except_for: tuple[str, ...] = ()
    """For `folder`: paths below it; for `graph`: names of entities; for `sheet`: cells. These may change."""

    @model_validator(mode="after")
    def _complete(self) -> UnchangedCheck:
        needs = {"query": self.query, "sheet": self.sheet, "branch": self.branch}
        if self.of in needs and not needs[self.of]:
            raise ValueError(f"check {self.name!r}: unchanged of={self.of!r} needs the field {self.of!r}")
        return self


Check: TypeAlias = Annotated[
    AnswerNumber
    | AnswerText
    | AnswerJson
    | FileCheck
    | SqliteCheck
    | WorkbookCheck
    | GitCheck
    | GraphCheck
    | ToolCheck
    | CalledCheck
    | UnchangedCheck,
    Field(discriminator="kind"),
]

"""Frozen records that flow through every floor: calls, results, turns, trajectories, scores.

Owns their fields and their JSON form (`to_json`, `Trajectory.from_json`; the schema is versioned).
Does not know how any of them is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from atlas_gym.errors import TraceError

TRACE_SCHEMA: Final = 1

Outcome: TypeAlias = Literal["ok", "tool_error", "invalid_call", "timeout", "crashed", "refused"]
"""What became of one tool call. `timeout` and `crashed` are infra, never the agent's reward."""

Failed: TypeAlias = Literal["", "timeout", "crashed"]
"""How a server failed on a call that is scored all the same, because clean servers fail on it too."""

Stop: TypeAlias = Literal["", "answer", "context", "turns", "tool_calls", "time", "infra"]
"""Why an episode ended; "" while it runs."""

InvalidReason: TypeAlias = Literal["", "infra", "judge"]

Label: TypeAlias = Literal[
    "system", "task", "index", "schemas", "results", "code", "errors", "agent", "template"
]
"""What a piece of the conversation is, for the itemised ledger."""

LABELS: Final[tuple[Label, ...]] = (
    "system",
    "task",
    "index",
    "schemas",
    "results",
    "code",
    "errors",
    "agent",
    "template",
)

Via: TypeAlias = Literal["json", "code", "check"]

ActionKind: TypeAlias = Literal[
    "call_tool", "run_code", "load_server", "load_tools", "search_tools", "answer", "invalid"
]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of one server's tool, with the server's own argument names."""

    server: str
    tool: str
    arguments: Mapping[str, Any]
    via: Via = "json"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came back from one `ToolCall`."""

    call: ToolCall
    outcome: Outcome
    value: Any = None
    """The result as a Python value (JSON types only); None unless the outcome is `ok`."""
    text: str = ""
    """The result as the server's text; for other outcomes the error, written for the agent."""
    seconds: float = 0.0
    """Wall time. Never shown to the agent and never in `info`: it does not repeat."""
    failed: Failed = ""
    """With `tool_error`: the server itself failed, and a clean one too, so that the call is to blame."""

    @property
    def is_infra(self) -> bool:
        """Whether the failure is the machinery's rather than the agent's."""
        return self.outcome in ("timeout", "crashed")


@dataclass(frozen=True, slots=True)
class Action:
    """One operation that the agent asked for. A message may hold several."""

    kind: ActionKind
    arguments: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    """For `invalid`: what was wrong and what was expected, written for the agent."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of token ids of one label. Concatenated in order they are the whole conversation."""

    label: Label
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    """One log-probability per id, where the policy gave them."""
    trained: bool = False
    """True only for ids that the policy itself sampled: the loss mask."""
    policy_version: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """One `step`: what the agent wrote, what was done, what it saw."""

    index: int
    """1 for the first step."""
    text: str
    """The agent's message, as given."""
    actions: tuple[Action, ...]
    results: tuple[ToolResult, ...]
    """Every tool call of this turn in order, whether made as JSON or inside a cell."""
    observation: str
    segments: tuple[Segment, ...]
    """The agent's piece, then what the environment answered, template markup included."""
    context_used: int
    """Tokens of the whole conversation after this turn."""
    ledger: Mapping[str, int]
    """Tokens per label after this turn; the values sum to `context_used`."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check of the task found when the episode ended."""

    name: str
    passed: bool
    weight: float
    gate: bool
    """A gate earns nothing; when it fails, the whole reward is lost."""
    detail: str = ""
    error: str = ""
    """Not empty when the check itself could not be run: then the reward is invalid."""


@dataclass(frozen=True, slots=True)
class Score:
    """A reward that says where it comes from."""

    value: float
    valid: bool = True
    invalid_reason: InvalidReason = ""
    items: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """An episode so far, or whole. One line of a trace file."""

    task_id: str
    suite: str
    seed: int | None
    settings: Mapping[str, Any]
    """exposure, execution, budget, sandbox, runtime, tokenizer, walls ... as JSON values."""
    prompt: str
    servers: tuple[str, ...]
    """Visible servers: the task's own and the distractors."""
    segments: tuple[Segment, ...]
    """Token ids of the prompt; those of later turns are in the turns."""
    turns: tuple[Turn, ...] = ()
    stop: Stop = ""
    answer: str | None = None
    checks: tuple[CheckResult, ...] = ()
    reward: float = 0.0
    reward_valid: bool = True
    invalid_reason: InvalidReason = ""
    error: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Server name -> package==version, for the servers that were started."""
    context_at_reset: int = 0
    policy: str = ""
    schema: int = TRACE_SCHEMA

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, ready for one line of a trace file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Trajectory:
        """Read what `to_json` wrote.

        Raises:
            TraceError: The schema is another one, or a field is missing.
        """
        if not isinstance(raw, Mapping):
            raise TraceError(f"Not a trajectory: a JSON {type(raw).__name__}.")
        if raw.get("schema") != TRACE_SCHEMA:
            raise TraceError(
                f"Trace schema {raw.get('schema')!r}; this version of atlas-gym reads {TRACE_SCHEMA}. "
                "Record the trace again, or read it with the version that wrote it."
            )
        try:
            fields = dict(raw)
            fields["servers"] = tuple(raw["servers"])
            fields["segments"] = tuple(_segment(s) for s in raw["segments"])
            fields["turns"] = tuple(_turn(t) for t in raw["turns"])
            fields["checks"] = tuple(CheckResult(**c) for c in raw["checks"])
            return cls(**fields)
        except (KeyError, TypeError) as exc:
            raise TraceError(f"Not a trajectory of schema {TRACE_SCHEMA}: {exc}") from exc


def _segment(raw: Mapping[str, Any]) -> Segment:
    logprobs = raw["logprobs"]
    return Segment(**{**raw, "ids": tuple(raw["ids"]), "logprobs": logprobs and tuple(logprobs)})


def _result(raw: Mapping[str, Any]) -> ToolResult:
    return ToolResult(**{**raw, "call": ToolCall(**raw["call"])})


def _turn(raw: Mapping[str, Any]) -> Turn:
    return Turn(
        **{
            **raw,
            "actions": tuple(Action(**a) for a in raw["actions"]),
            "results": tuple(_result(r) for r in raw["results"]),
            "segments": tuple(_segment(s) for s in raw["segments"]),
        }
    )

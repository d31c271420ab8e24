"""The words of every sandbox: limits, results, the one function a cell can call out through.

Owns the records and the protocol that each kind of sandbox keeps. Does not know MCP, tools or
prompts: a host call is an operation's name and a JSON object.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Protocol, TypeAlias

from atlas_gym.errors import AtlasError, ConfigError

CellStatus: TypeAlias = Literal["ok", "error", "timeout", "died", "breach"]
"""`error`: the code raised. `timeout`: stopped by a clock. `died`: the interpreter ended (crash, memory,
hard exit). `breach`: it broke the protocol and was killed. After the last three its variables are lost."""

HostCall: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""Operation and payload -> JSON value. Raise `HostError` to raise one inside the cell."""

REFUSALS: Final = 100
"""Calls over `CellLimits.calls` that are refused politely before the interpreter is killed."""


class HostError(AtlasError):
    """The host refuses a call; its message is raised inside the cell, where it can be caught."""


@dataclass(frozen=True, slots=True)
class CellLimits:
    """What one cell may use."""

    seconds: float = 10.0
    """Seconds a cell may compute. The clock stands still while the host works for it."""
    total_seconds: float = 300.0
    """Seconds from start to end, host calls included."""
    memory_mb: int = 256
    """Megabytes that cells may allocate beyond the interpreter itself."""
    calls: int = 200
    """Host calls in one cell."""
    output_chars: int = 40_000
    """Characters kept of what a cell prints, of its value and of its error; the rest is cut, and says so."""
    frame_bytes: int = 8 << 20
    """Bytes of one message between cell and host, such as a call's arguments or its result."""
    seed: int = 0
    """Seed of the interpreter's `random` module, so that the same cells give the same output."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name != "seed" and not value > 0:
                raise ConfigError(f"CellLimits.{item.name} is {value!r}; give a number above 0.")


@dataclass(frozen=True, slots=True)
class CellResult:
    """What one cell did."""

    status: CellStatus
    stdout: str = ""
    """What the cell printed, on stdout or stderr; first the notice that variables were lost, if they were."""
    value: str | None = None
    """`repr` of the last expression; None when there is none, or its value is None."""
    error: str = ""
    """A traceback that starts at the cell, or why the cell was stopped."""
    error_type: str = ""
    """The exception's class name; "" unless the status is `error`."""
    truncated: bool = False
    """Whether stdout, value or error were cut to `CellLimits.output_chars`."""
    restarted: bool = False
    """Whether this cell ran in a fresh interpreter because an earlier cell lost the old one."""


class Sandbox(Protocol):
    """A Python interpreter whose variables live from cell to cell. One episode, one sandbox."""

    kind: str

    async def run(self, code: str) -> CellResult:
        """Run one cell. Never raises for the code's fault.

        After `timeout`, `died` or `breach` the next call starts a fresh interpreter, and its result says
        that variables were lost.

        Raises:
            SandboxError: No interpreter can be started, the sandbox is closed, or a cell is running.
        """
        ...

    async def close(self) -> None:
        """End the interpreter and everything it holds. Idempotent."""
        ...


_ADDRESS = re.compile(r"(?<= at )0x[0-9a-fA-F]{1,16}(?=>)")


def stable(text: str) -> str:
    """`text` without what differs between equal runs: addresses in default reprs, lone surrogates."""
    return _ADDRESS.sub("0x..", text.encode("utf-8", "replace").decode("utf-8"))


def cut(text: str, limit: int, what: str) -> tuple[str, bool]:
    """`text` within `limit` characters and whether it was cut; a cut text ends by saying so."""
    if len(text) <= limit:
        return text, False
    return f"{text[:limit]}\n[{what} cut: {len(text) - limit} of {len(text)} characters not shown]", True


def lost_notice(reason: str) -> str:
    """The first line of a cell that runs in a fresh interpreter."""
    return f"[Fresh interpreter: {reason}. Variables and imports of earlier cells are lost.]\n"

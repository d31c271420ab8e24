"""Python interpreters for cells: one per episode, its variables live from cell to cell.

`sealed` is CPython behind the kernel's walls, `container` the same inside a container as well, `monty` an
interpreter written in Rust, `local` CPython without walls, for trusted code only. All keep `base.Sandbox`.
Does not know MCP or tools: a sandbox calls out through the one function it is given.
"""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from typing import Final

from atlas_gym.errors import SandboxError, unknown
from atlas_gym.sandbox.base import CellLimits, CellResult, CellStatus, HostCall, HostError, Sandbox

__all__ = [
    "KINDS",
    "CellLimits",
    "CellResult",
    "CellStatus",
    "HostCall",
    "HostError",
    "Sandbox",
    "available",
    "choose",
    "open_sandbox",
]

KINDS: Final = ("sealed", "container", "monty", "local")


def available(kind: str) -> str:
    """Why this kind cannot run here, or "" when it can.

    Raises:
        UnknownNameError: There is no such kind.
    """
    if kind not in KINDS:
        raise unknown("sandbox", kind, KINDS)
    if kind == "monty":
        if importlib.util.find_spec("pydantic_monty") is None:
            return 'pydantic-monty is not installed: pip install "atlas-gym[monty]"'
        return ""
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    if kind == "container":
        from atlas_gym.sandbox import container

        return container.unavailable()
    return _sealing() if kind == "sealed" else ""


def _sealing() -> str:
    from atlas_gym.runtime import kernel

    walls = kernel.probe()
    return "" if walls.seccomp else walls.reason


def choose(kind: str = "auto") -> str:
    """The kind to use: `auto` is `sealed` where the kernel can, else `monty`; never `container` or `local`.

    Raises:
        SandboxError: The kind asked for, or every kind with walls, is unavailable here.
        UnknownNameError: There is no such kind.
    """
    if kind != "auto":
        if kind not in KINDS:
            raise unknown("sandbox", kind, ("auto", *KINDS))
        reason = available(kind)
        if reason:
            raise SandboxError(f"The sandbox {kind!r} cannot run here: {reason}.")
        return kind
    reasons = {walled: available(walled) for walled in ("sealed", "monty")}
    for walled, reason in reasons.items():
        if not reason:
            return walled
    said = "; ".join(f"{walled}: {reason}" for walled, reason in reasons.items())
    raise SandboxError(
        f"No sandbox with walls can run here ({said}). Install one of them, or pass sandbox='local' to run "
        "cells without walls, as your own user: only for code that you trust."
    )


async def open_sandbox(
    kind: str, *, call: HostCall, prelude: str = "", limits: CellLimits | None = None
) -> Sandbox:
    """A started interpreter.

    Args:
        kind: One of `KINDS`, or "auto".
        call: What cells can reach of the host: operation and payload -> JSON value.
        prelude: Python source that runs before the first cell, with `host_call` and `HostError` in its
            namespace; the names in its `__all__` are what cells see.
        limits: What each cell may use.

    Raises:
        SandboxError: It cannot run here, or does not start.
    """
    from atlas_gym.sandbox.process import ProcessSandbox

    # Asking an engine takes a while, and others may be at work on this loop.
    kind = await asyncio.to_thread(choose, kind) if kind == "container" else choose(kind)
    if kind == "monty":
        from atlas_gym.sandbox.monty import MontySandbox

        boxed = MontySandbox(call, prelude, limits or CellLimits())
        await boxed.start()
        return boxed
    sandbox = ProcessSandbox(kind, call, prelude, limits or CellLimits())
    await sandbox.start()
    return sandbox

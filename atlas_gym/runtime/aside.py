"""Blocking work beside the loop: it ends well when it is cancelled, and when the interpreter ends.

Owns what must happen around a thread's work. Does not know what the work is, beyond making and removing
workspaces.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from atlas_gym.errors import AtlasError
from atlas_gym.runtime.workspace import Workspace

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """Run `work` on a thread; on this one where there are none any more: clean-up must still happen."""
    try:
        running = asyncio.get_running_loop().run_in_executor(None, work)
    except RuntimeError:  # the interpreter is ending
        return work()
    return await running


async def made(make: Callable[[], Workspace]) -> Workspace:
    """Make a workspace on a thread; nothing is left of one that was cancelled half-way.

    Raises:
        StorageError: As `make` does.
    """
    guard, found, given_up = threading.Lock(), list[Workspace](), False

    def work() -> Workspace:
        workspace = make()
        with guard:
            found.append(workspace)
            late = given_up
        if late:
            with suppress(AtlasError):
                workspace.close()
        return workspace

    making = asyncio.ensure_future(aside(work))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:  # a thread goes on when it is cancelled: wait, and remove what it made
        await asyncio.wait({making})  # which does not wait where the loop ends and has cancelled that too
        _ = making.cancelled() or making.exception()
        with guard:
            given_up = True
        for workspace in found:
            await removed(workspace)
        raise


async def removed(workspace: Workspace) -> None:
    """Remove a workspace; what cannot be removed now, collection finds later."""
    with suppress(AtlasError):
        await aside(workspace.close)

"""Blocking work beside the loop: it ends well when it is cancelled, and when the interpreter ends.

Owns what must happen around a thread's work. Does not know what the work is, beyond making and removing
workspaces.
"""

from __future__ import annotations

import asyncio
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
    making = asyncio.ensure_future(aside(make))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:  # a thread goes on when it is cancelled: wait, and remove what it made
        with suppress(AtlasError, OSError):
            await removed(await making)
        raise


async def removed(workspace: Workspace) -> None:
    """Remove a workspace; what cannot be removed now, collection finds later."""
    with suppress(AtlasError):
        await aside(workspace.close)

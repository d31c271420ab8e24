"""Where a world's servers live, and for how long: what outlives an episode and what may not.

Owns the choice of the runtime, the pool over it, its end with the last environment or with the loop, and the
laying out of an episode's workspace. Does not know tasks beyond their set-up, tools or turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from atlas_gym.errors import unknown
from atlas_gym.runtime.aside import aside, made
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.link import Runtime
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.mixed import ByServer
from atlas_gym.runtime.pool import Pool
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task.fingerprint import digest
from atlas_gym.task.setup import Setup, lay_out
from atlas_gym.wire.session import Session
from atlas_gym.wire.stock import Key, Stock

OpenSpare: TypeAlias = Callable[[Runtime, str, Workspace], Awaitable[Session]]
RUNTIMES: Final = ("process", "container", "memory")
_MANY: Final = 1 << 16
"""The pool bounds how many servers start at the same time; two bounds would wait for each other."""


def runtime(kind: str, *, prefork: bool) -> Runtime:
    """The runtime of a name; servers of a user's mcp.json that have a url are reached over HTTP in each.

    Args:
        kind: "process" or "container".
        prefork: Whether servers may be forked from a warmed parent.

    Raises:
        UnknownNameError: There is no such runtime.
    """
    if kind == "process":
        return ByServer(ProcessRuntime(prefork=prefork, max_starting=_MANY))
    if kind == "container":
        return ByServer(ContainerRuntime(prefork=prefork, max_starting=_MANY))
    raise unknown("runtime", kind, RUNTIMES)


def laid_out(label: str, setup: Setup) -> Workspace:
    """A new workspace with this set-up in it. Blocks: not for the loop's thread.

    Raises:
        StorageError: It cannot be written.
    """
    workspace = Workspace.create(label)
    try:
        lay_out(setup, workspace.files, workspace.state)
    except BaseException:  # Ctrl-C too: no half-made workspace may stay
        workspace.close()
        raise
    return workspace


class Housing:
    """The pool and the spares of one world, and who still needs them. Its coroutines run on one loop.

    Args:
        inner: Where servers live.
        open_spare: Starts a server in a workspace through a runtime, shakes hands and compares it with its
            lock.
        manifest: That of a server, by name.
    """

    def __init__(self, inner: Runtime, open_spare: OpenSpare, manifest: Callable[[str], Manifest]) -> None:
        self.pool: Final = Pool(inner)
        self.stock: Final = Stock(
            lambda name, workspace: open_spare(self.pool.background, name, workspace),
            manifest,
            taken=self.pool.adopt,
            stats=self.pool.spares,
        )
        self.pool.on_pressure(self.stock.shed)
        self._users: set[object] = set()
        self._guard: asyncio.Task[None] | None = None

    def hold(self, user: object) -> None:
        """Keep warmed parents and spares until `release`; `user` is any token."""
        self._users.add(user)

    async def release(self, user: object) -> None:
        """The last user to go ends what outlives episodes; an episode that still plays keeps it."""
        self._users.discard(user)
        if not self._users and not self.pool.episodes():
            await self.aclose()

    def want(
        self, label: str, setup: Setup, servers: Iterable[str], count: int, *, refill: bool = False
    ) -> None:
        """Prepare workspaces with this set-up and these servers in the background. On the loop.

        Args:
            label: For people, such as a task's id.
            setup: What is laid out in each.
            servers: What is started in each, as far as their manifests allow.
            count: How many.
            refill: Whether each one that is taken is replaced.
        """
        self._stay()
        key = Key(digest(setup), label)
        self.stock.want(key, servers, count, partial(laid_out, "spare", setup), refill=refill)

    async def place(
        self, label: str, setup: Setup, servers: Iterable[str]
    ) -> tuple[Workspace, Mapping[str, Session]]:
        """A workspace with this set-up in it, and the sessions that are open in it already.

        Raises:
            StorageError: It cannot be written.
        """
        self._stay()
        spare = self.stock.take(Key(digest(setup), label), servers) if self.stock.wanted else None
        if spare is None:
            return await made(partial(laid_out, label, setup)), {}
        if not spare.key.setup:
            laying = asyncio.ensure_future(
                aside(partial(lay_out, setup, spare.workspace.files, spare.workspace.state))
            )
            try:
                await asyncio.shield(laying)
            except BaseException:  # a thread goes on when it is cancelled
                await asyncio.wait({laying})
                await spare.close()
                raise
        return spare.workspace, spare.sessions

    async def aclose(self) -> None:
        """End everything of the pool. Idempotent; episodes may follow."""
        guard, self._guard = self._guard, None
        if guard is not None and not guard.done():
            guard.cancel()
            await asyncio.wait({guard})

    def _stay(self) -> None:
        if self._guard is None or self._guard.done():
            self._guard = asyncio.create_task(self._close_with_the_loop())

    async def _close_with_the_loop(self) -> None:
        """What nobody ends is put away when the interpreter ends and the loop with it."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # not when a fork's child collects what is its parent's
            await self.stock.close()
            await self.pool.aclose()

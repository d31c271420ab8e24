"""Spares: workspaces with servers that are started and have shaken hands, waiting for an episode.

Owns which servers may be spares of what, preparing them in the background, handing each out once, and their
end. Does not know tasks, how a workspace is laid out, or where servers live.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from atlas_gym.errors import ConfigError
from atlas_gym.runtime.aside import made, removed
from atlas_gym.runtime.breaker import Breaker, Clock, Policy
from atlas_gym.runtime.stats import SpareStats
from atlas_gym.wire.session import Session

if TYPE_CHECKING:
    from atlas_gym.runtime.manifest import Manifest
    from atlas_gym.runtime.workspace import Workspace

OpenSession: TypeAlias = "Callable[[str, Workspace], Awaitable[Session]]"
Make: TypeAlias = "Callable[[], Workspace]"

_PATIENCE: Final = Policy(failures=1, pause=5.0)
"""A server that failed once is left alone: the next episode will say what is wrong with it."""


@dataclass(frozen=True)
class Key:
    """What a workspace is prepared for."""

    setup: str = ""
    """Digest of the set-up that is laid out in it; "" for an empty one, which any episode may lay out."""
    label: str = field(default="", compare=False)
    """For people, such as a task's id."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """A workspace that is its taker's from now on, servers included."""

    key: Key
    workspace: Workspace
    sessions: Mapping[str, Session]
    """Open, and without a call so far, by server."""

    async def close(self) -> None:
        """End the servers and remove the workspace."""
        await asyncio.gather(*(session.close() for session in self.sessions.values()))
        await removed(self.workspace)


def may_wait(manifest: Manifest, key: Key) -> bool:
    """Whether a server may be started in a workspace of this key before there is an episode.

    One that fixes its paths at each call may always. One that reads them when it starts must find there what
    its episode will, so only in a workspace with the same set-up. A server that runs elsewhere, or must be
    started anew for each episode, never.
    """
    if manifest.respawn or manifest.url:
        return False
    return manifest.state_bound == "call" or bool(key.setup)


class _Shelf:
    """Equal spares."""

    def __init__(self, key: Key, servers: frozenset[str]) -> None:
        self.key = key
        self.servers = servers
        self.make: Make
        self.level = 0
        """How many there shall be."""
        self.refill = False
        self.ready: deque[Prepared] = deque()
        self.preparing = 0

    @property
    def count(self) -> int:
        return len(self.ready) + self.preparing

    def __str__(self) -> str:
        what = self.key.label or self.key.setup[:12] or "any episode"
        return f"{what}: {', '.join(sorted(self.servers)) or 'no server'}"


class Stock:
    """All spares of one process. Everything happens on one event loop; a forked child begins with none.

    Args:
        open_session: Starts a server in a workspace and shakes hands with it, in the background: it must
            leave the machine to episodes (`Pool.background`).
        manifest: That of a server, by name.
        bound: Spares at the most, those being prepared included.
        at_once: How many are prepared at the same time.
        taken: Told the name of each workspace that is handed out (`Pool.adopt`).
        pause: Seconds from taking one to preparing its successor, so that the episode's first step has the
            machine for itself.
        stats: Where to count.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        open_session: OpenSession,
        manifest: Callable[[str], Manifest],
        *,
        bound: int = 8,
        at_once: int = 2,
        pause: float = 0.25,
        taken: Callable[[str], None] = lambda _name: None,
        stats: SpareStats | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        if bound < 0 or at_once < 1:
            raise ConfigError(f"A stock needs bound >= 0 and at_once >= 1, not {bound} and {at_once}.")
        self.stats: Final = stats if stats is not None else SpareStats()
        self._open = open_session
        self._manifest = manifest
        self._bound = bound
        self._at_once = at_once
        self._pause = pause
        self._taken = taken
        self._clock = clock
        self._inherited: list[object] = []
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._shelves: dict[tuple[Key, frozenset[str]], _Shelf] = {}
        """The one that was wanted or used last is the last."""
        self._preparing: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._breakers: dict[str, Breaker] = {}
        self._later: asyncio.TimerHandle | None = None

    def want(
        self, key: Key, servers: Iterable[str], count: int, make: Make, *, refill: bool = False
    ) -> frozenset[str]:
        """Say what will be needed. Returns at once; preparing goes on in the background.

        When there would be more than `bound`, what was wanted or used longest ago is given up. A server that
        does not start is tried again when something is wanted or taken after a pause, not before.

        Args:
            key: What the workspaces are for.
            servers: Which servers to start in each; those that may not wait are left out.
            count: How many there shall be from now on; 0 gives up those that there are.
            make: Makes one workspace, with the set-up of `key` in it. Blocks; called on a thread.
            refill: Whether each one taken is replaced. False for what is needed `count` times.

        Returns:
            The servers that will be started.
        """
        self._here()
        chosen = frozenset(name for name in servers if may_wait(self._manifest(name), key))
        if key.setup or chosen:
            shelf = self._shelves.pop((key, chosen), None) or _Shelf(key, chosen)
            self._shelves[key, chosen] = shelf
            shelf.make, shelf.refill = make, refill
            shelf.level = min(max(0, count), self._bound)
            self._tend()
        return chosen

    @property
    def wanted(self) -> bool:
        """Whether anything was ever wanted that is still kept."""
        return bool(self._shelves)

    def take(self, key: Key, servers: Iterable[str]) -> Prepared | None:
        """A spare for an episode, at once, or None. It is the caller's from now on: `close` it.

        The one with the most servers is preferred, then one with the episode's own set-up. `key.setup` of
        what comes back is "" where the set-up is still to be laid out.

        Args:
            key: What the episode needs.
            servers: Those that it may have; no other one runs in what comes back.
        """
        self._here()
        allowed = frozenset(servers)
        fitting = [s for s in self._shelves.values() if s.key in (key, Key()) and s.servers <= allowed]
        fitting.sort(key=lambda shelf: (len(shelf.servers), shelf.key == key), reverse=True)
        found: Prepared | None = None
        for shelf in fitting:
            while shelf.ready and found is None:
                spare = shelf.ready.popleft()
                if any(session.over or session.calls for session in spare.sessions.values()):
                    self._drop(spare)
                    continue
                found = spare
                shelf.level -= not shelf.refill
                self._shelves[shelf.key, shelf.servers] = self._shelves.pop((shelf.key, shelf.servers))
        if found is None:
            self.stats.misses += 1
        else:
            self.stats.hits += 1
            self._taken(found.workspace.root.name)
        self._count()
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(self._pause, self._tend)
        return found

    async def settled(self) -> None:
        """Wait until nothing is to be prepared or ended any more."""
        self._here()
        if self._later is not None:
            self._tend()
        while running := [*self._preparing, *self._ending]:
            await asyncio.wait(running)

    async def shed(self) -> None:
        """Memory is short: give up every spare and every want. What is wanted later is prepared again."""
        await self.close()

    async def close(self) -> None:
        """End everything. Idempotent; `want` may follow."""
        self._here()
        shelves, self._shelves = self._shelves, {}
        for shelf in shelves.values():
            while shelf.ready:
                self._drop(shelf.ready.popleft())
        self._count()
        doomed = tuple(self._preparing)
        for task in doomed:
            task.cancel()
        if doomed:  # not those that are wanted meanwhile: they may be waiting for whoever called this
            await asyncio.wait(doomed)
        while self._ending:
            await asyncio.wait(tuple(self._ending))

    def _here(self) -> None:
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._inherited.append((self._shelves, self._preparing, self._ending))
            self._begin()
        elif self._loop is not None and self._loop is not loop:
            self._begin()  # the sessions of an earlier loop ended with it
        self._loop = loop

    def _tend(self) -> None:
        """Bring what there is nearer to what is wanted."""
        if self._later is not None:
            self._later.cancel()
            self._later = None
        excess = sum(shelf.level for shelf in self._shelves.values()) - self._bound
        for shelf in self._shelves.values():  # the longest unused first
            less = max(0, min(shelf.level, excess))
            shelf.level -= less
            excess -= less
            while shelf.ready and shelf.count > shelf.level:
                self._drop(shelf.ready.popleft())
        for where, shelf in tuple(self._shelves.items()):
            if not shelf.level and not shelf.count:
                del self._shelves[where]
        for shelf in reversed(tuple(self._shelves.values())):
            while shelf.count < shelf.level and self._may_prepare(shelf):
                shelf.preparing += 1
                task = asyncio.get_running_loop().create_task(self._prepare(shelf), name=f"spare {shelf}")
                self._preparing.add(task)
                task.add_done_callback(self._preparing.discard)
        self._count()

    def _may_prepare(self, shelf: _Shelf) -> bool:
        total = sum(other.count for other in self._shelves.values())
        if len(self._preparing) >= self._at_once or total >= self._bound:
            return False
        for name in shelf.servers:
            state = self._breaker(name).state
            tried = any(other.preparing and name in other.servers for other in self._shelves.values())
            if state == "open" or (state == "half-open" and tried):
                return False
        return True

    async def _prepare(self, shelf: _Shelf) -> None:
        sessions: dict[str, Session] = {}
        spare: Prepared | None = None
        try:
            workspace = await made(shelf.make)
            spare = Prepared(shelf.key, workspace, sessions)
            for name in sorted(shelf.servers):
                sessions[name] = await self._opened(name, workspace)
        except asyncio.CancelledError:
            if spare is not None:
                self._drop(spare)
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the episode that needs this will meet it and say it
            self.stats.failures += 1
            if spare is None:
                shelf.level = 0
            else:
                self._drop(spare)
        else:
            if self._shelves.get((shelf.key, shelf.servers)) is shelf and len(shelf.ready) < shelf.level:
                shelf.ready.append(spare)
            else:
                self._drop(spare)
        finally:
            shelf.preparing -= 1
            self._preparing.discard(asyncio.current_task())
        if self._later is None:  # not after a cancel: the loop may be ending, and nothing may begin on it
            self._tend()

    async def _opened(self, name: str, workspace: Workspace) -> Session:
        breaker = self._breaker(name)
        trial = breaker.begin()
        try:
            session = await self._open(name, workspace)
        except asyncio.CancelledError:
            breaker.abandoned(trial=trial)
            raise
        except Exception as exc:
            breaker.failed(str(exc), trial=trial)
            raise
        breaker.succeeded()
        return session

    def _breaker(self, name: str) -> Breaker:
        if name not in self._breakers:
            self._breakers[name] = Breaker(_PATIENCE, self._clock)
        return self._breakers[name]

    def _drop(self, spare: Prepared) -> None:
        self.stats.dropped += 1
        task = asyncio.get_running_loop().create_task(spare.close(), name="end of a spare")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _count(self) -> None:
        self.stats.ready = {str(shelf): len(shelf.ready) for shelf in self._shelves.values() if shelf.ready}

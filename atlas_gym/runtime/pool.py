"""Servers as leases: started in turn, within bounds, and ended with their episode.

Owns who may start, what a failing server may cost the others, and the register by episode. Is a `Runtime`
over any other one. Does not know MCP, how servers are started, or how memory is measured.
"""

from __future__ import annotations

import asyncio
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from atlas_gym.errors import AtlasError, StartError
from atlas_gym.runtime.breaker import Clock, Policy
from atlas_gym.runtime.fairness import Fairness
from atlas_gym.runtime.gate import Gate, Refused, Ticket, Verdict
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.lease import Lease
from atlas_gym.runtime.link import Link, Runtime
from atlas_gym.runtime.pressure import Gauge
from atlas_gym.runtime.scales import Relief, Scales, Shed
from atlas_gym.runtime.stats import Board, ServerStats, SpareStats, board
from atlas_gym.runtime.workspace import Workspace

_HOLD: Final = 10.0
"""Seconds after which a silent server no longer keeps others from starting."""


@dataclass
class _Episode:
    leases: set[Lease] = field(default_factory=set)
    tickets: set[Ticket] = field(default_factory=set)
    spare: bool = False


class _Room:
    """What belongs to one event loop."""

    def __init__(self, gate: Gate, relief: Relief) -> None:
        self.gate = gate
        self.relief = relief
        self.episodes: dict[str, _Episode] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}


class Pool:
    """A runtime that lends the servers of another one. Meant for one event loop per process.

    Args:
        runtime: Where servers really live.
        starting: Servers of episodes that may be starting at the same time; twice the CPUs when None.
        memory_mb: MiB that all servers, warmed parents and spares may hold; three quarters of the machine or
            of the container around us when None.
        memory_seconds: How long a start may wait for memory.
        breaker: When a server that does not start is left alone for a while; the usual numbers when None.
        gauge: Where numbers about memory come from; the kernel's when None.
        clock: Seconds that only go forward.
        shown: Where the numbers are left for `atlas-gym servers stats`; this process's file when None.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        starting: int | None = None,
        memory_mb: int | None = None,
        memory_seconds: float = 60.0,
        breaker: Policy | None = None,
        gauge: Gauge | None = None,
        clock: Clock = time.monotonic,
        shown: Board | None = None,
    ) -> None:
        self.runtime: Final = runtime
        self.background: Final[Runtime] = _Background(self)
        """The same pool for preparations: no episode waits for one, and none waits for memory."""
        self.spares: Final = SpareStats()
        self._starting = max(1, starting if starting is not None else 2 * len(os.sched_getaffinity(0)))
        self._memory_seconds = memory_seconds
        self._policy = breaker if breaker is not None else Policy()
        self._clock = clock
        self._shown = shown
        self._sheds: list[Shed] = []
        self._inherited: list[object] = []
        self._rooms: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Room]
        self._seen: weakref.WeakKeyDictionary[Workspace, set[str]]
        self._empty()
        self._scales = Scales(
            runtime,
            gauge,
            memory_mb,
            lambda: (lease for _, lease in self._leases()),
            lambda: (ticket for entry in self._entries() for ticket in entry.tickets if ticket.admitted),
        )

    def _empty(self) -> None:
        self._pid = os.getpid()
        self._rooms = weakref.WeakKeyDictionary()
        self._seen = weakref.WeakKeyDictionary()
        self._known = Fairness(self._policy, self._clock, self._starting)
        self._looked: float | None = None

    @property
    def name(self) -> str:
        """That of the runtime inside."""
        return self.runtime.name

    async def start(self, installation: Installation, workspace: Workspace) -> Lease:
        """Start one server for one episode, in turn. It ends with `end(workspace.root.name)` at the latest.

        Raises:
            StartError: It did not start.
            Refused: It was not tried: it has failed too often (says the last reason and when the next attempt
                is allowed), memory stayed short (says what holds it), or its episode has ended.
            StorageError: Its state directory cannot be made.
        """
        return await self.lend(installation, workspace, background=False)

    async def lend(self, installation: Installation, workspace: Workspace, *, background: bool) -> Lease:
        """What `start` and `background.start` do."""
        room, limits = self._room(), installation.server.manifest.limits
        name, episode = installation.server.name, workspace.root.name
        stats = self._known[name].stats
        ticket = Ticket(
            name,
            episode,
            background,
            asked=self._clock(),
            seen=self._seen.setdefault(workspace, set()),
            size=self._scales.expected(name),
        )
        self._screen().add(self.snapshot)
        entry = room.episodes.setdefault(episode, _Episode(spare=background))
        entry.tickets.add(ticket)
        try:
            began = await self._let_in(room, stats, ticket)
            hold = min(limits.start_seconds, _HOLD)
            asyncio.get_running_loop().call_later(hold, room.gate.leave, ticket)
            link = await self._started(ticket, self.runtime.start(installation, workspace))
            lease = Lease(
                link, ticket, self, began=began, start_seconds=limits.start_seconds, clock=self._clock
            )
            entry.leases.add(lease)
            stats.begun()
        finally:
            entry.tickets.discard(ticket)
            self._forget(room, episode, entry)
        if ticket.over:
            await lease.aclose()
            raise _ended(ticket)
        self._look_soon(room)
        return lease

    async def _started(self, ticket: Ticket, starting: Coroutine[Any, Any, Link]) -> Link:
        """Wait for the start in a task of its own, which the end of the episode cancels."""
        task = ticket.task = asyncio.get_running_loop().create_task(starting)
        try:
            link: Link = await task
        except BaseException as exc:
            reason = str(exc) if isinstance(exc, StartError) and not ticket.over else None
            self._over(ticket, reason)
            if isinstance(exc, asyncio.CancelledError):
                if task.done() and not task.cancelled() and task.exception() is None:
                    await task.result().aclose()  # it came in the same moment, and nobody takes it
                elif task.cancelled() and ticket.over:
                    raise _ended(ticket) from None
            raise
        return link

    async def _let_in(self, room: _Room, stats: ServerStats, ticket: Ticket) -> float:
        """Wait for a place. Returns when that was."""
        stats.waiting += 1
        try:
            refusal = self._known.refusal(ticket.server)
            if refusal is not None:
                raise refusal
            await room.gate.enter(ticket)
        except AtlasError:
            stats.refused += 1
            self._changed()
            raise
        except asyncio.CancelledError:
            if ticket.admitted:  # in the same moment
                self._over(ticket, None)
            raise
        finally:
            stats.waiting -= 1
        now = self._clock()
        stats.wait_seconds.add(now - ticket.asked)
        return now

    def adopt(self, episode: str) -> None:
        """What was prepared in the background under this name is an episode's from now on."""
        entry = self._room().episodes.get(episode)
        if entry is not None and entry.spare:
            entry.spare = False
            for lease in entry.leases:
                self._known[lease.ticket.server].stats.starts["spare"] += 1
        self._changed()

    async def end(self, episode: str) -> None:
        """End every lease of an episode, whoever holds it, and every start that is on its way. Idempotent."""
        room = self._room()
        entry = room.episodes.get(episode)
        if entry is None:
            return
        while entry.tickets or entry.leases:
            for ticket in tuple(entry.tickets):
                ticket.over = True
                room.gate.refuse(ticket, _ended(ticket))
                if ticket.task is not None:
                    ticket.task.cancel()
            starting = [t.task for t in entry.tickets if t.task is not None and not t.task.done()]
            if starting:
                await asyncio.wait(starting)
            await asyncio.gather(*(lease.aclose() for lease in tuple(entry.leases)))
            await asyncio.sleep(0)  # those who started them take notice

    async def aclose(self) -> None:
        """End every lease and what the runtime keeps beside them. Idempotent; starts may follow."""
        room = self._room()
        await asyncio.gather(*(self.end(episode) for episode in tuple(room.episodes)))
        tasks = [task for task in room.tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self.runtime.aclose()
        self._scales.parents = {}
        self._screen().finish(self.snapshot)

    def on_pressure(self, shed: Shed) -> None:
        """Have this awaited when memory is short, before a start has to wait: give up what is only spare."""
        self._sheds.append(shed)

    def record(self, server: str, outcome: str) -> None:
        """Count a call's `timeout`, which cannot be seen from outside of its session."""
        if outcome == "timeout":
            self._known[server].stats.timeouts += 1
            self._changed()

    def episodes(self) -> tuple[str, ...]:
        """Workspaces that have leases, or starts on their way, on this loop; spares are nobody's episode."""
        return tuple(name for name, entry in self._room().episodes.items() if not entry.spare)

    def snapshot(self) -> dict[str, Any]:
        """Everything that is counted, as JSON values: for `atlas-gym servers stats`. Bytes, seconds."""
        return {
            "runtime": self.name,
            "leases": sum(not entry.spare for entry, _ in self._leases()),
            "idle": sum(entry.spare for entry, _ in self._leases()),
            "memory": self._scales.held(),
            "ceiling": self._scales.ceiling.bytes if self._scales.weighs else 0,
            "warmed": dict(Counter(server for server, _ in self._scales.parents)),
            "spares": self.spares.to_json(),
            "servers": self._known.snapshot(),
        }

    # What a lease tells.

    def spoke(self, lease: Lease) -> None:
        """Its place is free for the next one."""
        self._room().gate.leave(lease.ticket)

    def ready(self, lease: Lease) -> None:
        """It works."""
        self._known.ready(lease.ticket, lease.how, self._clock() - lease.began)
        self._room().gate.wake()
        self._changed()

    def failed(self, lease: Lease, reason: str, *, late: bool) -> None:
        """It started, and did not get as far as its first answer."""
        self._over(lease.ticket, reason, late=late)

    def abandoned(self, lease: Lease) -> None:
        """Nothing is known about it."""
        self._over(lease.ticket, None)

    def crashed(self, lease: Lease) -> None:
        """Counted only: what an agent made a server do says nothing about its next start."""
        self._known[lease.ticket.server].stats.crashes += 1
        self._changed()

    def closed(self, lease: Lease) -> None:
        """It is gone: there is room for others."""
        self._known[lease.ticket.server].stats.live -= 1
        room = self._room()
        entry = room.episodes.get(lease.ticket.episode)
        if entry is not None:
            entry.leases.discard(lease)
            self._forget(room, lease.ticket.episode, entry)
        room.gate.leave(lease.ticket)
        room.gate.wake()
        self._changed()

    def _over(self, ticket: Ticket, reason: str | None, *, late: bool = False) -> None:
        """A start came to nothing; `reason` is None when that is not the server's fault."""
        room = self._room()
        self._known.failed(ticket, reason, late=late)
        refusal = self._known.refusal(ticket.server)
        for waiting in room.gate.waiting() if refusal is not None else ():
            if waiting.server == ticket.server:
                room.gate.refuse(waiting, Refused(str(refusal)))
        room.gate.leave(ticket)
        room.gate.wake()  # where its place was free already: another one may be the trial now
        self._changed()

    def _judge(self, room: _Room, ticket: Ticket) -> Verdict | AtlasError:
        """Whether the next one may start. "go" is final: a breaker's trial has begun then."""
        refusal = self._known.refusal(ticket.server)
        if refusal is not None:
            return refusal
        if self._known.crowds(ticket, room.gate.inside):
            return "skip"
        lacking = self._scales.lacks(ticket.size)
        if lacking and ticket.background:
            return Refused(f"Server {ticket.server!r} was not prepared: {lacking}.")
        if lacking:
            room.relief.short = lacking
            self._do(room, "relief", room.relief.run)
            return "stop"
        ticket.trial = self._known[ticket.server].breaker.begin()
        return "go"

    def _room(self) -> _Room:
        """This loop's; a forked child finds everything empty, and leaves its parent's servers alone."""
        if self._pid != os.getpid():
            self._inherited.append((self._rooms, self._seen))
            self._empty()
            self._scales.parents = {}
        loop = asyncio.get_running_loop()
        room = self._rooms.get(loop)
        if room is None:
            gate = Gate(self._starting, lambda ticket: self._judge(made, ticket))
            relief = Relief(gate, self._scales, self._sheds, self._look, self._memory_seconds, self._clock)
            room = made = self._rooms[loop] = _Room(gate, relief)
        return room

    def _entries(self) -> Iterator[_Episode]:
        for room in tuple(self._rooms.values()):
            yield from tuple(room.episodes.values())

    def _leases(self) -> Iterator[tuple[_Episode, Lease]]:
        for entry in self._entries():
            for lease in tuple(entry.leases):
                yield entry, lease

    def _forget(self, room: _Room, episode: str, entry: _Episode) -> None:
        if not entry.leases and not entry.tickets and room.episodes.get(episode) is entry:
            del room.episodes[episode]

    def _screen(self) -> Board:
        return self._shown if self._shown is not None else board()

    def _changed(self) -> None:
        self._screen().changed()

    def _do(self, room: _Room, what: str, how: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = room.tasks.get(what)
        if task is None or task.done():
            room.tasks[what] = asyncio.get_running_loop().create_task(how(), name=f"atlas-gym pool {what}")

    def _look_soon(self, room: _Room) -> None:
        due = self._looked is None or self._clock() - self._looked >= self._scales.interval
        if self._scales.weighs and due:
            self._do(room, "look", self._look)

    async def _look(self) -> None:
        self._known.weighed(await self._scales.look())
        self._looked = self._clock()
        self._changed()


class _Background:
    """The pool as those see it who only prepare."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @property
    def name(self) -> str:
        return self._pool.name

    async def start(self, installation: Installation, workspace: Workspace) -> Lease:
        return await self._pool.lend(installation, workspace, background=True)

    async def aclose(self) -> None:
        """The pool is not this one's to close."""


def _ended(ticket: Ticket) -> Refused:
    return Refused(f"The episode {ticket.episode!r} ended before its server {ticket.server!r} had started.")

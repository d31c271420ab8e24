"""What a pool's servers weigh, and what is done when there is no room for one more.

Owns looking at their memory now and then, what is expected of those not yet seen, and the order of relief:
spares, warmed parents, then waiting. Does not know who is let in first.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from atlas_gym.runtime.breaker import Clock
from atlas_gym.runtime.gate import Gate, Refused, Ticket
from atlas_gym.runtime.lease import Lease
from atlas_gym.runtime.link import Runtime
from atlas_gym.runtime.prefork import Hosts
from atlas_gym.runtime.pressure import MIB, Ceiling, Gauge, Proc

UNKNOWN: Final = 64 * MIB
"""What a server is expected to hold before one of its kind was seen."""
_EVERY: Final = 1.0
"""Seconds between two looks; more where a look is dear."""
_SHARE: Final = 0.05
"""Of one CPU, at most, that looking may take."""
_WEIGHTLESS: Final = ("memory", "http")
"""Runtimes whose servers are no processes of this machine."""

Shed = Callable[[], Awaitable[None]]


class Scales:
    """The memory of one pool.

    Args:
        runtime: Where servers live; asked for its warmed parents if it has any.
        gauge: Where numbers come from; the kernel's when None.
        memory_mb: See `Ceiling`.
        leases: All live leases.
        starting: All tickets that were let in and have no lease yet.
    """

    def __init__(
        self,
        runtime: Runtime,
        gauge: Gauge | None,
        memory_mb: int | None,
        leases: Callable[[], Iterable[Lease]],
        starting: Callable[[], Iterable[Ticket]],
    ) -> None:
        self.weighs: Final = gauge is not None or runtime.name not in _WEIGHTLESS
        self.parents: dict[tuple[str, int], int] = {}
        """Warmed parents by server and process id: bytes."""
        self.interval = _EVERY
        self._gauge: Gauge = gauge if gauge is not None else Proc()
        self.ceiling: Final = Ceiling(self._gauge, memory_mb)
        self._inside = getattr(runtime, "started", runtime)  # where there are servers of several sorts
        self._leases = leases
        self._starting = starting
        self._expected: dict[str, int] = {}

    @property
    def _hosts(self) -> Hosts | None:
        hosts = getattr(self._inside, "hosts", None)  # a container runtime has them from its first start on
        return hosts if isinstance(hosts, Hosts) else None

    def expected(self, server: str) -> int:
        """Bytes that one more of these will hold."""
        return self._expected.get(server, UNKNOWN) if self.weighs else 0

    def held(self) -> int:
        """Bytes of all together; what was not looked at yet counts as expected."""
        return sum(self.parents.values()) + sum(map(self._weight, self._leases())) + self._pending()

    def lacks(self, more: int) -> str:
        """Why `more` bytes do not fit, or ""."""
        if not self.weighs:
            return ""
        unseen = sum(self._weight(lease) for lease in self._leases() if lease.size is None)
        return self.ceiling.over(self.held(), unseen + self._pending(), more)

    def holders(self) -> str:
        """What holds the memory, the largest first, for people."""
        by_server: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for lease in self._leases():
            by_server[lease.ticket.server] += self._weight(lease)
            count[lease.ticket.server] += 1
        parts = [f"{count[name]} x {name!r} {size // MIB} MiB" for name, size in by_server.most_common(4)]
        if self.parents:
            parts.append(f"{len(self.parents)} warmed parents {sum(self.parents.values()) // MIB} MiB")
        episodes = len({lease.ticket.episode for lease in self._leases()})
        return f"{', '.join(parts) or 'none of its own servers'} ({episodes} episodes and spares)"

    async def look(self) -> dict[str, list[int]]:
        """Weigh every server now, in a thread. Returns server -> bytes of each that is live."""
        began = time.monotonic()
        leases = {str(number): lease for number, lease in enumerate(self._leases())}
        roots = {key: lease.pid for key, lease in leases.items()}
        warmed: dict[str, tuple[str, int]] = {}
        hosts = self._hosts
        if hosts is not None:
            for host in await asyncio.to_thread(hosts.hosts):
                warmed[host.name] = host.server, host.pid
        sizes = await asyncio.to_thread(self._gauge.trees, {**roots, **{k: v[1] for k, v in warmed.items()}})
        self.interval = max(_EVERY, (time.monotonic() - began) / _SHARE)
        self.parents = {key: sizes.get(name, 0) for name, key in warmed.items()}
        found: dict[str, list[int]] = defaultdict(list)
        for number, lease in leases.items():
            lease.size = sizes.get(number) or None  # nothing weighs nothing: it could not be seen
            if lease.size and lease.phase != "over":
                found[lease.ticket.server].append(lease.size)
        self._expected |= {name: sum(some) // len(some) for name, some in found.items()}
        return dict(found)

    async def trim(self) -> None:
        """End the warmed parents that have no child at the moment."""
        if self._hosts is not None:
            await asyncio.to_thread(_trim, self._hosts)

    def _weight(self, lease: Lease) -> int:
        return self.expected(lease.ticket.server) if lease.size is None else lease.size

    def _pending(self) -> int:
        return sum(ticket.size for ticket in self._starting())


def _trim(hosts: Hosts) -> None:
    for host in hosts.hosts():
        if not host.children:
            hosts.end(host.name)


class Relief:
    """Making room on one event loop, while a ticket waits for memory at its gate.

    Args:
        gate: Who waits. Its judge sets `short` when the next one does not fit.
        scales: What there is.
        sheds: Give up what is only spare.
        look: Weighs everything.
        seconds: How long a start may wait for memory.
        clock: Seconds that only go forward.
    """

    def __init__(
        self,
        gate: Gate,
        scales: Scales,
        sheds: Iterable[Shed],
        look: Callable[[], Awaitable[None]],
        seconds: float,
        clock: Clock,
    ) -> None:
        self.short = ""
        """Why the first one in the queue does not fit; "" when it does."""
        self._gate = gate
        self._scales = scales
        self._sheds = sheds
        self._look = look
        self._seconds = seconds
        self._clock = clock

    async def run(self) -> None:
        """Until nobody waits for memory any more: they were let in, or refused when their time was over."""
        try:
            while await self._once():  # noqa: ASYNC110 - what other programs give back sets no event
                await asyncio.sleep(min(self._scales.interval, self._left()))
        except BaseException:
            for ticket in self._gate.waiting():
                if ticket.short_since is not None:
                    self._gate.refuse(ticket, self._error(ticket))
            raise

    async def _once(self) -> bool:
        for ticket in self._gate.waiting(background=False):
            if ticket.short_since is None:
                ticket.short_since = self._clock()
        for shed in self._sheds:
            await shed()
        await self._scales.trim()
        await self._look()
        while True:
            self.short = ""
            self._gate.wake()
            if not self.short:
                break
            late = [t for t in self._gate.waiting(background=False) if self._time_left(t) <= 0]
            if not late:
                return True
            for ticket in late:
                self._gate.refuse(ticket, self._error(ticket))
        for ticket in self._gate.waiting():
            ticket.short_since = None
        return False

    def _time_left(self, ticket: Ticket) -> float:
        return self._seconds - (self._clock() - (ticket.short_since or 0.0))

    def _left(self) -> float:
        return min((self._time_left(t) for t in self._gate.waiting(background=False)), default=0.0)

    def _error(self, ticket: Ticket) -> Refused:
        return Refused(
            f"Server {ticket.server!r} was not started: {self.short or 'memory is short'}, held by "
            f"{self._scales.holders()}, and none was given back within {self._seconds:g} s. Run fewer "
            "episodes at the same time, or allow the pool more with memory_mb."
        )

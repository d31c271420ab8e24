"""What servers are to each other: how many places each may take, and who is left alone for a while.

Owns each server's breaker and counters, and the rules. Does not know queues, links or memory.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from atlas_gym.runtime.breaker import Breaker, Clock, Policy
from atlas_gym.runtime.gate import Refused, Ticket
from atlas_gym.runtime.stats import ServerStats


class Known:
    """What is known about one server."""

    def __init__(self, policy: Policy, clock: Clock) -> None:
        self.breaker = Breaker(policy, clock)
        self.stats = ServerStats()


class Fairness:
    """Every server of a pool, by name.

    Args:
        policy: When a server that does not start is left alone.
        clock: Seconds that only go forward.
        width: Places for starting servers.
    """

    def __init__(self, policy: Policy, clock: Clock, width: int) -> None:
        self.servers: dict[str, Known] = {}
        self._policy = policy
        self._clock = clock
        self._width = width

    def __getitem__(self, name: str) -> Known:
        known = self.servers.get(name)
        if known is None:
            known = self.servers[name] = Known(self._policy, self._clock)
        return known

    def refusal(self, name: str) -> Refused | None:
        """The error with which a start is refused while the server's breaker is open."""
        breaker = self[name].breaker
        if breaker.state != "open":
            return None
        return Refused(
            f"Server {name!r} is not started: {breaker.failures} starts in a row failed. The next attempt is "
            f"allowed in {breaker.wait:.1f} s. The last failure: {breaker.reason}"
        )

    def crowds(self, ticket: Ticket, inside: Collection[Ticket]) -> bool:
        """Whether a server has to wait although there is a place: it must not keep others from starting.

        One that works may have every place. An unknown one may have half of them, and all unknown ones
        together leave one to those that work. After a failure it is one at a time.
        """
        breaker = self[ticket.server].breaker
        if breaker.trying:
            return True
        if breaker.proven:
            return False
        own = sum(other.server == ticket.server for other in inside)
        unknown = sum(not self[other.server].breaker.proven for other in inside)
        most = 1 if breaker.failures else max(1, self._width // 2)
        return own >= most or unknown >= max(1, self._width - 1)

    def failed(self, ticket: Ticket, reason: str | None, *, late: bool) -> None:
        """A start came to nothing; `reason` is None when that says nothing about the server.

        In a workspace where servers worked before, an agent may have written what keeps this one from
        starting. That is no reason to refuse it to others, as long as it works elsewhere.
        """
        known = self[ticket.server]
        if reason is not None:
            known.stats.failures += 1
            known.stats.timeouts += late
        theirs = ticket.server in ticket.seen or (bool(ticket.seen) and known.breaker.proven)
        if reason is None or theirs:
            known.breaker.abandoned(trial=ticket.trial)
        else:
            known.breaker.failed(reason, by=ticket.episode, trial=ticket.trial)

    def ready(self, ticket: Ticket, how: str, seconds: float) -> None:
        """A start went well."""
        known = self[ticket.server]
        known.breaker.succeeded()
        known.stats.starts[how] += 1
        known.stats.start_seconds.add(seconds)
        ticket.seen.add(ticket.server)

    def weighed(self, found: dict[str, list[int]]) -> None:
        """Take note of the bytes of each live server."""
        for name, known in self.servers.items():
            sizes = found.get(name, [])
            known.stats.resident = sum(sizes)
            known.stats.largest = max(known.stats.largest, *sizes, 0)

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Server -> its counters and the state of its breaker, as JSON values."""
        return {
            name: {
                **known.stats.to_json(),
                "breaker": known.breaker.state,
                "breaker_wait": round(known.breaker.wait, 3),
                "reason": known.breaker.reason,
            }
            for name, known in sorted(self.servers.items())
        }

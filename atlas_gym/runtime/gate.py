"""Who may start a server now: first come, first served, with episodes before preparations.

Owns the two queues and the places. Does not know servers, memory or breakers: whoever owns the gate judges
each ticket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from atlas_gym.errors import AtlasError, StartError

Verdict: TypeAlias = Literal["go", "skip", "stop"]


class Refused(StartError):
    """A server was not even tried to start: this says nothing about what its episode did."""


@dataclass(eq=False)
class Ticket:
    """One start that was asked for."""

    server: str
    episode: str
    background: bool
    """Only a preparation: it takes nobody's place, and goes behind those who wait for one."""
    asked: float
    seen: set[str]
    """Servers that worked in this workspace before."""
    size: int = 0
    """Bytes that the server is expected to hold."""
    short_since: float | None = None
    """Since when it waits for memory."""
    trial: bool = False
    """Whether a breaker's state depends on it."""
    over: bool = False
    """Whether its episode ended while it was being started."""
    admitted: bool = False
    """Whether it was let in, ever."""
    task: asyncio.Task[Any] | None = field(default=None, repr=False)
    """The start itself, once it was let in."""
    _answer: asyncio.Future[None] | None = field(default=None, repr=False)


class Gate:
    """A bounded number of places.

    Args:
        width: Places for episodes; preparations only get what these leave, and episodes never wait for them.
        judge: Asked about the next ticket when there is a place: "go", "skip" (let those behind it pass),
            "stop" (nobody passes), or the error with which it is refused.
    """

    def __init__(self, width: int, judge: Callable[[Ticket], Verdict | AtlasError]) -> None:
        self.inside: set[Ticket] = set()
        """Those who have a place."""
        self._width = width
        self._judge = judge
        self._waiting: dict[bool, list[Ticket]] = {False: [], True: []}

    def waiting(self, *, background: bool | None = None) -> Iterator[Ticket]:
        """Those who wait, in order; of both kinds when None."""
        for kind in (False, True):
            if background is None or background == kind:
                yield from tuple(self._waiting[kind])

    async def enter(self, ticket: Ticket) -> None:
        """Wait for a place. `leave` must follow.

        Raises:
            AtlasError: It was refused.
        """
        answer = ticket._answer = asyncio.get_running_loop().create_future()
        self._waiting[ticket.background].append(ticket)
        self.wake()
        try:
            await answer
        except BaseException:
            if ticket in self.inside:  # cancelled in the moment in which it was let in
                self.leave(ticket)
            elif ticket in self._waiting[ticket.background]:
                self._waiting[ticket.background].remove(ticket)
                self.wake()
            raise

    def leave(self, ticket: Ticket) -> None:
        """Give the place back. Idempotent."""
        if ticket in self.inside:
            self.inside.discard(ticket)
            self.wake()

    def refuse(self, ticket: Ticket, error: AtlasError) -> None:
        """Send one away that waits."""
        if ticket in self._waiting[ticket.background]:
            self._waiting[ticket.background].remove(ticket)
            if ticket._answer is not None and not ticket._answer.done():
                ticket._answer.set_exception(error)

    def wake(self) -> None:
        """Look again: something has changed for the better."""
        for background in (False, True):
            for ticket in tuple(self._waiting[background]):
                taken = sum(background or not other.background for other in self.inside)
                if taken >= self._width:
                    break
                if ticket._answer is None or ticket._answer.done():
                    continue  # cancelled; it is about to take itself out
                verdict = self._judge(ticket)
                if isinstance(verdict, AtlasError):
                    self.refuse(ticket, verdict)
                elif verdict == "go":
                    self._waiting[background].remove(ticket)
                    self.inside.add(ticket)
                    ticket.admitted = True
                    ticket._answer.set_result(None)
                elif verdict == "stop":
                    return

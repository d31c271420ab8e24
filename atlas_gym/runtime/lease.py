"""One started server, lent to one episode, watched from the outside.

Owns telling a start that worked from one that did not by what passes over the link: the first bytes of the
server, and that its client went on after them. Does not know what the bytes mean, nor what follows from it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from atlas_gym.runtime.gate import Ticket
    from atlas_gym.runtime.link import Link

_LINES: Final = 3
_TOLERANCE: Final = 0.05
"""Seconds by which a timer may fire before its time."""


class Watcher(Protocol):
    """Who lends servers."""

    def spoke(self, lease: Lease) -> None:
        """The server has said its first words: starting no longer takes its share of the machine."""

    def ready(self, lease: Lease) -> None:
        """Its first answer was good: its client went on."""

    def failed(self, lease: Lease, reason: str, *, late: bool) -> None:
        """It never got that far."""

    def abandoned(self, lease: Lease) -> None:
        """Its client went away before anything could be known."""

    def crashed(self, lease: Lease) -> None:
        """It had started, and ended by itself."""

    def closed(self, lease: Lease) -> None:
        """It and everything it started are gone."""


class Lease:
    """A `Link` that ends with its episode and is never used again."""

    def __init__(
        self,
        link: Link,
        ticket: Ticket,
        watcher: Watcher,
        *,
        began: float,
        start_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.link: Final = link
        self.ticket: Final = ticket
        self.began: Final = began
        """When its start began, waiting not included."""
        self.phase: Literal["silent", "spoke", "ready", "over"] = "silent"
        self.size: int | None = None
        """Bytes that it held when last looked at."""
        self._watcher = watcher
        self._limit = start_seconds
        self._clock = clock
        self._pid = os.getpid()
        self._asked = False
        self._closing = False
        self._gone = False

    @property
    def name(self) -> str:
        """Name of the server."""
        return self.link.name

    @property
    def walls(self) -> str:
        """What holds it, for traces."""
        return self.link.walls

    @property
    def how(self) -> str:
        """How it was started."""
        return self.link.how

    @property
    def own_paths(self) -> bool:
        """Whether the agent's paths are real to this server."""
        return self.link.own_paths

    @property
    def command(self) -> str:
        """A shell line that starts the same server by hand, for error messages."""
        return self.link.command

    @property
    def exit_status(self) -> int | None:
        """Exit status, negative for the signal that ended it; None while it runs."""
        return self.link.exit_status

    @property
    def pid(self) -> int:
        """Process id of the server as this machine counts; 0 where there is none to be seen."""
        return int(getattr(self.link, "pid", 0) or 0)

    def stderr_tail(self) -> str:
        """Its last lines of standard error, secrets replaced."""
        return self.link.stderr_tail()

    async def send(self, data: bytes) -> None:
        """Write all of `data`, waiting while the server does not read.

        Raises:
            WireError: The server is gone.
        """
        self._asked = True
        if self.phase == "spoke" and not self._closing:
            self.phase = "ready"
            self._watcher.ready(self)
        await self.link.send(data)

    async def receive(self) -> bytes:
        """The next bytes; `b""` at the end of the stream."""
        data = await self.link.receive()
        if data:
            # What it says before it is asked anything (a banner) is no answer.
            if self.phase == "silent" and self._asked and not self._closing:
                self.phase = "spoke"
                self._watcher.spoke(self)
        elif not self._closing:
            self._ended()
        return data

    async def aclose(self) -> None:
        """End it and everything it started. Idempotent; never hangs; nothing in a forked child."""
        if os.getpid() != self._pid:
            return
        first, self._closing = not self._closing, True
        if first:
            self._judge()
        try:
            await self.link.aclose()
        finally:
            if not self._gone:
                self._gone = True
                self._watcher.closed(self)

    def _ended(self) -> None:
        if self.phase == "ready":
            self.phase = "over"
            self._watcher.crashed(self)
        elif self.phase != "over":
            self._failed(f"it ended before its first answer{self._status()}")

    def _judge(self) -> None:
        """What a link says about its server that is closed before it was ready."""
        if self.phase in ("ready", "over"):
            self.phase = "over"
        elif self.exit_status is not None:
            self._ended()
        elif self._clock() - self.began >= self._limit - _TOLERANCE:
            self._failed(f"it did not answer within {self._limit:g} s", late=True)
        elif self.phase == "spoke":
            self._failed("the handshake was refused or not understood")
        else:
            self.phase = "over"
            self._watcher.abandoned(self)

    def _failed(self, what: str, *, late: bool = False) -> None:
        self.phase = "over"
        lines = self.stderr_tail().strip().splitlines()[-_LINES:]
        tail = "; its last lines: " + " | ".join(lines) if lines else ""
        self._watcher.failed(self, what + tail, late=late)

    def _status(self) -> str:
        status = self.exit_status
        return "" if status is None else f" (exit status {status})"

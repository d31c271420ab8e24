"""The clocks of one running cell, and a look at its worker now and then.

Owns computing time (which stands still during host calls and while other processes have the processor),
total time, and the number of threads. Does not know frames.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeVar

from atlas_gym.sandbox.base import CellLimits

T = TypeVar("T")

MAX_THREADS: Final = 256
"""Threads of one worker. Small ones cost little memory, and the machine's process ids are everybody's."""
_LOOK_SECONDS: Final = 0.1
_CREDIT: Final = 4
"""How many times its computing time a cell may wait for the processor beside it."""


class Late(Exception):
    """A clock ran out; the message says which."""


class Clock:
    """The clocks of one cell. `stop` it at the cell's end.

    Args:
        limits: What the cell may use.
        pid: Its worker.
        kill: Called when the worker has too many threads; `excess` says so then.
    """

    def __init__(self, limits: CellLimits, pid: int, kill: Callable[[], None]) -> None:
        self.excess = ""
        self.deadline = asyncio.get_running_loop().time() + limits.total_seconds
        self._limits = limits
        self._pid = pid
        self._kill = kill
        self._loop = asyncio.get_running_loop()
        self._left = limits.seconds
        self._credit = _CREDIT * limits.seconds
        self._waited = _waited(pid)
        self._running: asyncio.Timeout | None = None
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """No more looks."""
        self._timer.cancel()

    async def timed(self, work: Awaitable[T]) -> T:
        """Await the worker while both clocks run.

        Raises:
            Late: One ran out.
        """
        begun = self._loop.time()
        try:
            async with asyncio.timeout_at(min(begun + self._left, self.deadline)) as self._running:
                return await work
        except TimeoutError:
            raise self.late() from None
        finally:
            self._running = None
            self._left -= self._loop.time() - begun

    def late(self) -> Late:
        """What ran out just now."""
        if self._loop.time() + 1e-3 >= self.deadline:
            return Late(f"The cell took more than {self._limits.total_seconds:g} s in all, calls included")
        return Late(f"The cell computed for more than {self._limits.seconds:g} s")

    def _look(self) -> None:
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)
        threads = _threads(self._pid)
        if threads > MAX_THREADS:
            self.excess = f"it had {threads} threads, at most {MAX_THREADS} are allowed"
            self._kill()
        waited = _waited(self._pid)
        extra = min(max(0.0, waited - self._waited), self._credit)
        self._waited = waited
        if self._running is not None and not self._running.expired():
            self._credit -= extra
            self._left += extra
            when = self._running.when()
            assert when is not None
            self._running.reschedule(min(when + extra, self.deadline))


def _threads(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}/task").st_nlink - 2
    except OSError:  # gone, or hidden from us
        return 0


def _waited(pid: int) -> float:
    """Seconds in which a process wanted to run and could not; its first thread stands for all."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):  # gone, hidden, or a kernel that does not count
        return 0.0

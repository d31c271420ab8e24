"""What became of servers' starts, in numbers, and where a process leaves them for others to read.

Owns the counters, the one file per process under `<run>/stats/`, and reading those files. Does not know
what is counted, nor how it is shown.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from atlas_gym import settings
from atlas_gym.errors import StorageError
from atlas_gym.runtime.owner import Owner, Verdict, start_time

KEPT: Final = 20
"""Files of finished processes that stay."""
SCHEMA: Final = 1
_WINDOW: Final = 512
_EVERY: Final = 1.0
"""Seconds between two writings of one process's file, at the least."""
_FINISHED: Final = 8
"""Pools of one process whose numbers are kept after their end."""
_MAX_BYTES: Final = 4 << 20


class Window:
    """Count and largest of all values; percentiles of the latest 512."""

    def __init__(self) -> None:
        self.count = 0
        self.largest = 0.0
        self._latest: deque[float] = deque(maxlen=_WINDOW)

    def add(self, value: float) -> None:
        """One more."""
        self.count += 1
        self.largest = max(self.largest, value)
        self._latest.append(value)

    def quantile(self, share: float) -> float | None:
        """The smallest value that `share` of the latest values do not exceed; None when there are none."""
        if not self._latest:
            return None
        ordered = sorted(self._latest)
        return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]

    def to_json(self) -> dict[str, float | int | None]:
        """`count`, `p50`, `p95`, `max`, rounded to a millionth."""
        values = (self.quantile(0.5), self.quantile(0.95), self.largest if self.count else None)
        p50, p95, largest = (None if v is None else round(v, 6) for v in values)
        return {"count": self.count, "p50": p50, "p95": p95, "max": largest}


@dataclass
class ServerStats:
    """One server of one pool. Memory is in bytes, time in seconds."""

    starts: Counter[str] = field(default_factory=Counter)
    """Servers that answered their handshake, by how they were started; `spare`: of those, how many an
    episode found ready."""
    start_seconds: Window = field(default_factory=Window)
    """From the start itself, not from when it was asked for, to the answered handshake."""
    wait_seconds: Window = field(default_factory=Window)
    """How long starts waited for their turn."""
    failures: int = 0
    """Starts that came to nothing."""
    timeouts: int = 0
    """Of those, the ones that did not answer in time; and calls that did not, where they are reported."""
    crashes: int = 0
    """Ends, by itself, of a server that had started."""
    refused: int = 0
    """Starts that were not even tried: the breaker was open or memory short."""
    live: int = 0
    peak: int = 0
    """Most that were live at the same time."""
    waiting: int = 0
    resident: int = 0
    """Of all live ones together, when last looked at."""
    largest: int = 0
    """Of the largest single one ever seen."""

    def begun(self) -> None:
        """One more is live."""
        self.live += 1
        self.peak = max(self.peak, self.live)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        plain = {
            name: getattr(self, name)
            for name in (
                *("failures", "timeouts", "crashes", "refused", "live", "peak", "waiting"),
                *("resident", "largest"),
            )
        }
        return {
            "starts": dict(sorted(self.starts.items())),
            "start_seconds": self.start_seconds.to_json(),
            "wait_seconds": self.wait_seconds.to_json(),
            **plain,
        }


@dataclass
class SpareStats:
    """Prepared workspaces."""

    ready: dict[str, int] = field(default_factory=dict)
    """By what they are prepared for."""
    hits: int = 0
    """Times that an episode found one."""
    misses: int = 0
    dropped: int = 0
    """Prepared for nothing: too many, too old, dead, or memory short."""
    failures: int = 0
    """Preparations that failed."""

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `hit_rate` is None when nothing was asked for."""
        asked = self.hits + self.misses
        return {
            "ready": dict(sorted(self.ready.items())),
            "hits": self.hits,
            "misses": self.misses,
            "hit_rate": round(self.hits / asked, 4) if asked else None,
            "dropped": self.dropped,
            "failures": self.failures,
        }


Source: TypeAlias = Callable[[], Mapping[str, Any]]


class Board:
    """What this process leaves for others to read: one file with every pool in it.

    Args:
        clock: Seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.pid = os.getpid()
        self._owner = Owner.current()
        self._clock = clock
        self._sources: list[Source] = []
        self._finished: deque[Mapping[str, Any]] = deque(maxlen=_FINISHED)
        self._written: float | None = None
        self._timer: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        self._began = time.time()

    @property
    def path(self) -> Path:
        """The file."""
        return folder() / f"{self._owner.pid}-{self._owner.start}.json"

    def add(self, source: Source) -> None:
        """Show these numbers too, from the next writing on."""
        if source not in self._sources:
            self._sources.append(source)

    def finish(self, source: Source) -> None:
        """These numbers are final: write them, and forget where they came from."""
        if source in self._sources:
            self._sources.remove(source)
            self._finished.append(source())
            self.write()

    def changed(self) -> None:
        """Something is different: write now or, where less than a second has passed, when it has.

        To be called on an event loop, which a writing blocks for a fraction of a millisecond.
        """
        if self._timer is not None and not self._timer[0].is_closed():
            return
        due = 0.0 if self._written is None else self._written + _EVERY - self._clock()
        if due <= 0:
            self.write()
        else:
            loop = asyncio.get_running_loop()
            self._timer = loop, loop.call_later(due, self.write)

    def write(self) -> None:
        """Write now. A disk that is full loses the numbers, not the episodes."""
        if self._timer is not None:
            self._timer[1].cancel()
            self._timer = None
        if self.pid != os.getpid():
            return
        self._written = self._clock()
        record = {
            "schema": SCHEMA,
            "owner": json.loads(self._owner.to_json()),
            "began": round(self._began, 3),
            "written": round(time.time(), 3),
            "pools": [*self._finished, *(source() for source in self._sources)],
        }
        target = self.path
        part = target.with_suffix(".part")
        with suppress(OSError, StorageError):
            if not target.exists():
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                prune(KEPT - 1)
            part.write_text(json.dumps(record), encoding="utf-8")
            part.replace(target)


_board: Board | None = None


def board() -> Board:
    """This process's; a forked child gets its own."""
    global _board
    if _board is None or _board.pid != os.getpid():
        _board = Board()
    return _board


def folder() -> Path:
    """Where the files are."""
    return settings.run_dir() / "stats"


@dataclass(frozen=True)
class Report:
    """One process's file."""

    path: Path
    owner: Owner
    verdict: Verdict
    """Whether its process still lives."""
    began: float
    """Unix time of its start, and below of its last writing."""
    written: float
    pools: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "pid": self.owner.pid,
            "node": self.owner.node,
            "owner": self.verdict,
            "began": self.began,
            "written": self.written,
            "pools": [dict(pool) for pool in self.pools],
        }


def reports() -> list[Report]:
    """Every readable file, the latest written first.

    Raises:
        StorageError: The folder is there and cannot be listed.
    """
    with settings.storage(f"Looking for statistics in {folder()}"):
        try:
            paths = [p for p in folder().iterdir() if p.suffix == ".json"]
        except FileNotFoundError:
            return []
    found = [report for path in paths if (report := _read(path)) is not None]
    return sorted(found, key=lambda report: (report.written, report.path.name), reverse=True)


def prune(keep: int = KEPT) -> list[Path]:
    """Remove the files of dead processes, all but the `keep` latest, and half-written ones.

    Raises:
        StorageError: The folder cannot be listed, or a file not be removed.
    """
    dead = [report.path for report in reports() if report.verdict == "dead"][keep:]
    with settings.storage(f"Removing old statistics in {folder()}"):
        if folder().is_dir():
            dead += [p for p in folder().glob("*.part") if not _maker_lives(p)]
        for path in dead:
            path.unlink(missing_ok=True)
    return dead


def _maker_lives(path: Path) -> bool:
    pid, _, start = path.stem.partition("-")
    return not (pid.isdigit() and start.isdigit()) or start_time(int(pid)) == int(start)


def _read(path: Path) -> Report | None:
    """None for what is no such file, or of another version: it is somebody else's or half there."""
    try:
        if path.is_symlink() or path.stat().st_size > _MAX_BYTES:
            return None
        raw = json.loads(path.read_text(encoding="utf-8"))
        owner = Owner.from_json(json.dumps(raw["owner"]))
        if raw["schema"] != SCHEMA or owner is None or not isinstance(raw["pools"], list):
            return None
        pools = tuple(pool for pool in raw["pools"] if isinstance(pool, dict))
        return Report(path, owner, owner.verdict(), float(raw["began"]), float(raw["written"]), pools)
    except (OSError, ValueError, TypeError, KeyError):
        return None

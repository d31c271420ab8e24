"""How much memory servers hold, and how much this machine, or the container around us, still has.

Owns reading /proc and both kinds of control groups, and the ceiling. Does not know what is done when memory
runs short.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from atlas_gym.errors import ConfigError

MIB: Final = 1 << 20

_SHARE: Final = 0.75
_RESERVE: Final = 512 * MIB
_RESERVE_SHARE: Final = 0.05
_NO_LIMIT: Final = 1 << 60
"""What cgroup v1 writes for "none" is near 2^63."""


@dataclass(frozen=True)
class Machine:
    """Bytes that may be used here at all, and that are still free. 0 and 0 where nobody can tell."""

    limit: int = 0
    available: int = 0

    def __bool__(self) -> bool:
        return self.limit > 0


class Gauge(Protocol):
    """Where the numbers come from; tests bring their own."""

    def machine(self) -> Machine:
        """Quick enough for the event loop."""

    def trees(self, roots: Mapping[str, int]) -> dict[str, int]:
        """Bytes held by the process trees of these process ids, by the same names. Slow: for a thread."""


class Proc:
    """The numbers of Linux.

    Args:
        proc: Where the proc filesystem is.
        cgroup: Where the control groups are.
    """

    def __init__(self, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        self._proc = proc
        self._groups = _groups(proc, cgroup)

    def machine(self) -> Machine:
        """The tightest of the machine and the control groups that we are in."""
        found = [m for m in (_meminfo(self._proc), *map(_group, self._groups)) if m]
        if not found:
            return Machine()
        return Machine(min(m.limit for m in found), max(0, min(m.available for m in found)))

    def trees(self, roots: Mapping[str, int]) -> dict[str, int]:
        """Proportional set size, in which memory that forked processes share counts once.

        A server's launcher (its parent, where that has no other server) and whatever it adopted count with
        it; a warmed parent counts without the servers forked from it. Processes that end meanwhile or cannot
        be read count nothing.
        """
        parents = self._parents()
        children: dict[int, list[int]] = {}
        for pid, parent in parents.items():
            children.setdefault(parent, []).append(pid)
        of = Counter(parents.get(root, 0) for root in roots.values())
        tops = {}
        for name, root in roots.items():
            above = parents.get(root, 0)
            own = of[above] == 1 and above not in roots.values() and _descends(above, os.getpid(), parents)
            tops[name] = above if own else root
        ends = set(tops.values())
        return {name: sum(map(self._pss, _tree(top, children, ends))) for name, top in tops.items()}

    def _parents(self) -> dict[int, int]:
        found = {}
        for entry in os.listdir(self._proc):
            if entry.isdigit():
                with suppress(OSError, ValueError, IndexError):
                    stat = (self._proc / entry / "stat").read_bytes()
                    found[int(entry)] = int(stat[stat.rindex(b")") + 2 :].split()[1])
        return found

    def _pss(self, pid: int) -> int:
        with suppress(OSError, ValueError, IndexError):
            for line in (self._proc / str(pid) / "smaps_rollup").read_bytes().splitlines():
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) << 10
        return 0


class Ceiling:
    """What may be held at most: by the servers together, and of what the machine has left.

    Args:
        gauge: Where numbers come from.
        memory_mb: MiB for all servers together; three quarters of what there is when None.
    """

    def __init__(self, gauge: Gauge, memory_mb: int | None = None) -> None:
        if memory_mb is not None and memory_mb < 1:
            raise ConfigError(
                f"memory_mb must be at least 1 MiB, not {memory_mb!r}; None for three quarters."
            )
        machine = gauge.machine()
        self.bytes = memory_mb * MIB if memory_mb is not None else int(machine.limit * _SHARE)
        """0: nobody can tell, so nothing is refused."""
        self.reserve = min(_RESERVE, int(machine.limit * _RESERVE_SHARE))
        """Bytes of the machine that stay free."""
        self._gauge = gauge

    def over(self, held: int, unseen: int, more: int) -> str:
        """Why `more` bytes do not fit, or "".

        Args:
            held: Bytes of everything that is there, as measured or expected.
            unseen: Those of them that the machine's own count cannot show yet, because they are being taken.
            more: Bytes to be added.
        """
        if self.bytes and held and held + more > self.bytes:  # the first one fits, else nobody ever would
            return f"the pool's servers hold {held // MIB} of at most {self.bytes // MIB} MiB"
        machine = self._gauge.machine()
        if machine and machine.available - unseen - more < self.reserve:
            return (
                f"this machine has {machine.available // MIB} of {machine.limit // MIB} MiB left, and "
                f"{self.reserve // MIB} MiB stay free"
            )
        return ""


def _tree(top: int, children: Mapping[int, Sequence[int]], ends: Collection[int]) -> Iterator[int]:
    """A process and all below it, but nothing below another one of `ends`."""
    stack, seen = [top], {0}
    while stack:
        pid = stack.pop()
        if pid not in seen and (pid == top or pid not in ends):
            seen.add(pid)
            yield pid
            stack += children.get(pid, ())


def _descends(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    if pid == ancestor:
        return False
    for _ in range(64):
        pid = parents.get(pid, 0)
        if pid == ancestor:
            return True
        if pid <= 1:
            return False
    return False


def _meminfo(proc: Path) -> Machine | None:
    values = {}
    with suppress(OSError, ValueError, IndexError):
        for line in (proc / "meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            values[name] = int(rest.split()[0]) << 10
    if "MemTotal" not in values or "MemAvailable" not in values:
        return None
    return Machine(values["MemTotal"], values["MemAvailable"])


def _groups(proc: Path, cgroup: Path) -> list[Path]:
    """Directories of every memory control group that holds this process, limits of parents included."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            tops = [cgroup, cgroup / "unified"]
        elif "memory" in controllers.split(","):
            tops = [cgroup / "memory"]
        else:
            continue
        # Inside a container the path is often the host's and leads nowhere here: then its top is ours.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for top in tops:
            found += [top.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]
    return [p for p in found if (p / "memory.max").is_file() or (p / "memory.limit_in_bytes").is_file()]


def _group(directory: Path) -> Machine | None:
    """What one group allows; None when it sets no limit."""
    newer = (directory / "memory.max").is_file()
    names = ("memory.max", "memory.current") if newer else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    try:
        limit, used = ((directory / name).read_text().strip() for name in names)
        if limit == "max" or int(limit) >= _NO_LIMIT:
            return None
        # Cached pages of files are given up before anything fails.
        cache = 0
        for line in (directory / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == ("inactive_file" if newer else "total_inactive_file"):
                cache = int(value)
        return Machine(int(limit), int(limit) - max(0, int(used) - cache))
    except (OSError, ValueError):
        return None

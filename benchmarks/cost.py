"""What processes cost: CPU of a tree with what has ended in it, and memory that is really theirs.

Only the standard library: the drivers load this file by its path in the peers' own environments.
CPU of a live process is read from its CPU clock (nanoseconds, all its threads); that of its ended and
waited-for children from /proc in clock ticks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK")
_PROCESS_CLOCK: Final = 2
"""Of a process number, as the kernel packs it into a clock number: the scheduler's count, of all threads."""


def clock(pid: int) -> float:
    """CPU seconds of one live process; 0 when it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | _PROCESS_CLOCK)
    except OSError:
        return 0.0


def _fields(pid: int) -> list[bytes]:
    """Of /proc/<pid>/stat, from the state on; empty when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return []
    return text[text.rindex(b")") + 2 :].split()


def ended_children(pid: int) -> float:
    """CPU seconds of the children that this process has waited for, and of theirs."""
    fields = _fields(pid)
    return (int(fields[13]) + int(fields[14])) / _TICK if fields else 0.0


def descendants(pid: int) -> list[int]:
    """Every live process below this one, parents first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _fields(int(name))) and fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [pid]
    for parent in found:
        found += children.get(parent, [])
    return found[1:]


def children_cpu(pid: int) -> float:
    """CPU seconds of everything below a process, ended or not."""
    return ended_children(pid) + sum(clock(p) + ended_children(p) for p in descendants(pid))


def tree_cpu(pid: int) -> float:
    """CPU seconds of a process and of everything below it, ended or not."""
    return clock(pid) + children_cpu(pid)


def memory(pids: Iterable[int]) -> dict[str, float]:
    """MiB of these processes together: `pss` (shared pages divided among their users) and `private`."""
    total = {"pss": 0, "private": 0}
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:  # it has ended
            continue
        for line in text.splitlines()[1:]:
            name, _, value = line.partition(":")
            if name == "Pss":
                total["pss"] += int(value.split()[0])
            elif name in ("Private_Clean", "Private_Dirty"):
                total["private"] += int(value.split()[0])
    return {name: round(kib / 1024, 2) for name, kib in total.items()}


def available() -> float:
    """MiB that the machine can still give without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    return 0.0

"""CPU of this process and of all that it has started, whoever waits for it, and of a container engine.

The exact way is a control group of its own for this process (cgroup v1 `cpuacct`, else v2 `cpu.stat`): every
descendant is in it and keeps its share when it ends. Where no group may be made, the process tree is added
up, and what a stranger has waited for is missing. Containers and their engine are other trees.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from benchmarks import cost

_V1: Final = Path("/sys/fs/cgroup/cpuacct")
_V2: Final = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
_SHIM: Final = "containerd-shim"
_ENGINE: Final = ("dockerd", "containerd")


class Meter:
    """Counts from when it is made. Use it as a context manager, and end what you started within."""

    def __init__(self) -> None:
        self.how = "process tree"
        """For the result file."""
        self._group: Path | None = None
        self._parent: Path | None = None

    def __enter__(self) -> Meter:
        """Move this process into a group of its own, where that may be done."""
        places = [(_V1, "cpuacct.usage", "cpuacct")] if (_V1 / "cpuacct.usage").exists() else []
        places += [(base, "cpu.stat", "") for base in _V2 if (base / "cgroup.controllers").exists()]
        for base, file, controller in places:
            parent = base / _own_group(controller).lstrip("/")
            group = parent / f"atlas-bench-{os.getpid()}"
            try:
                group.mkdir()
                (group / "cgroup.procs").write_text(str(os.getpid()))
            except OSError:
                with contextlib.suppress(OSError):
                    group.rmdir()
                continue
            self._group, self._parent, self.how = group / file, parent, f"control group, {file}"
            break
        return self

    def __exit__(self, *_: object) -> None:
        """Move back, and remove the group if it is empty."""
        if self._group is not None and self._parent is not None:
            for pid in (self._group.parent / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (self._parent / "cgroup.procs").write_text(pid)
            with contextlib.suppress(OSError):
                self._group.parent.rmdir()
            self._group = None

    def ours(self) -> float:
        """CPU seconds of this process and of everything it started."""
        if self._group is None:
            return cost.tree_cpu(os.getpid())
        return _usage(self._group)

    def engine(self) -> float:
        """CPU seconds of the container engine on this machine and of all its containers, without their shims.

        0 where they cannot be told.
        """
        total = sum(cost.clock(pid) + cost.ended_children(pid) for pid in _named(*_ENGINE))
        containers = _V1 / "docker" / "cpuacct.usage"
        return total + (_usage(containers) if containers.exists() else 0.0)

    def shims(self) -> dict[int, float]:
        """CPU seconds of each living container's shim and of what it has run (`runc`), by process id."""
        return {pid: cost.clock(pid) + cost.ended_children(pid) for pid in _named(_SHIM)}


def _usage(file: Path) -> float:
    text = file.read_text()
    if file.name == "cpuacct.usage":
        return int(text) / 1e9
    return int(dict(line.split() for line in text.splitlines())["usage_usec"]) / 1e6


def _own_group(controller: str) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == controller or (controller and controller in controllers.split(",")):
            return path
    return "/"


def _named(*names: str) -> list[int]:
    """Processes with one of these names, as far as the kernel keeps them."""
    kept = {name[:15] for name in names}
    found = []
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                name = Path(f"/proc/{pid}/comm").read_text().strip()
            except OSError:
                continue
            if name in kept:
                found.append(int(pid))
    return found

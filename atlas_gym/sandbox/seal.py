"""Seals one warmed-up interpreter for good: no file opens, no exec, no fork, no network, little memory.

Runs in the forked worker; standard library only, loaded by path and given `runtime.kernel` as a module.
Does not know cells.
"""

from __future__ import annotations

import errno
from typing import Any, Final

_SLACK: Final = 64 << 20
"""Bytes of addresses that threads and libraries reserve without using them."""
_STACK: Final = 8 << 20


def limit_memory(kernel: Any, memory_mb: int) -> None:
    """Let this process have so many megabytes more than it holds now.

    RLIMIT_AS stands beside RLIMIT_DATA because a stack that is moved and grown counts as no data.
    """
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        fields = dict(line.split(":", 1) for line in status)
    data, addresses = (int(fields[name].split()[0]) << 10 for name in ("VmData", "VmSize"))
    more = memory_mb << 20
    kernel.set_limits(data=data + more, as_=addresses + more + _SLACK, stack=_STACK)


def seal(kernel: Any, *, memory_mb: int, cpu_seconds: int, open_files: int = 64, threads: bool = True) -> Any:
    """Put up every wall. Import everything before, and call it with one thread: Landlock covers that only.

    Args:
        kernel: The module `atlas_gym.runtime.kernel`.
        memory_mb: Private memory that may be added to what the process holds now.
        cpu_seconds: CPU time of the whole process from its start; SIGXCPU, then SIGKILL.
        open_files: Limit on file descriptors, those already open included.
        threads: Whether `threading` works.

    Returns:
        What was put up.

    Raises:
        OSError: The kernel lacks seccomp or refused. The process must not run untrusted code then.
    """
    walls = kernel.probe()
    if not walls.seccomp:
        raise OSError(errno.ENOSYS, f"this process cannot be sealed: {walls.reason}")
    limit_memory(kernel, memory_mb)
    kernel.set_limits(fsize=0, core=0, nofile=open_files, cpu=cpu_seconds)
    kernel.hide_memory()
    kernel.drop_capabilities()
    kernel.no_new_privileges()
    if walls.landlock_abi:
        kernel.landlock(walls.landlock_abi)
    kernel.install(kernel.cell_filter(threads=threads))
    return walls

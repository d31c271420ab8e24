"""One warmed parent, seen from its owner: what launching it takes, its process, its connection, its end.

Does not know which servers have one, nor what it is told (`prefork`).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from atlas_gym.errors import AtlasError, StartError
from atlas_gym.runtime.workspace import Workspace


class HostGone(Exception):
    """The host ended before it forked: the start may be tried on another."""


def pid_here(pidfd: int) -> int:
    """The process's number on this machine: its parent may count in a container. -1 when it has ended."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as fields:
        return next((int(line[4:]) for line in fields if line.startswith("Pid:")), -1)


class HostProcess(Protocol):
    """A launched host. Nothing here waits long or fails when it has ended."""

    @property
    def pid(self) -> int:
        """Its process id as this machine sees it; 0 where that cannot be known."""

    def running(self) -> bool:
        """Whether it has not ended."""

    def end(self) -> None:
        """Kill and collect it; its children end by themselves when it does."""


@dataclass(frozen=True)
class HostPlan:
    """What launching one host takes. Paths are those that the host sees."""

    server: str
    workspace: Workspace
    """The host's own directory, `<run>/host-<server>-<random>`: the socket and the log lie in its root, and
    its `files` and state stand for an episode's while modules are imported."""
    command: tuple[str, ...]
    """Interpreter of the server, its flags, `forkhost.py`, and the socket. Standard input, output and error
    are best pipes; nothing is read or written there."""
    env: Mapping[str, str]
    """The whole environment, with `launch.MARKER`."""
    config: Mapping[str, Any]
    """What the host is told when it has connected."""
    start_seconds: float


@dataclass(frozen=True)
class HostInfo:
    """One living host."""

    name: str
    """Name of its directory; what `Hosts.end` takes."""
    server: str
    pid: int
    children: int
    """Servers that were forked from it and not closed yet."""
    resident: int
    """Bytes of memory that the host itself holds; its children share most of them."""
    idle: float
    """Seconds since it was last asked."""


@dataclass
class Host:
    """One running host. `ask` may be called from any thread; no other method waits for anything."""

    plan: HostPlan
    process: HostProcess
    channel: socket.socket
    modules: int = 0
    """Modules that it has imported."""
    links: set[int] = field(default_factory=set)
    """Identities of the links to servers that were forked from it and are not closed yet."""
    used: float = field(default_factory=time.monotonic)

    def ask(self, fds: tuple[int, int, int, int]) -> None:
        """Ask for a fork; the answer comes over the control socket.

        Args:
            fds: Its standard input, output and error, and its end of the control socket.

        Raises:
            HostGone: The host has ended.
        """
        self.used = time.monotonic()
        try:
            socket.send_fds(self.channel, [b"fork"], list(fds), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError as exc:
            raise HostGone(f"the warmed parent of {self.plan.server!r} is gone: {exc}") from exc

    def alive(self) -> bool:
        """Whether it would answer."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        return not poll.poll(0) and self.process.running()

    def died(self) -> bool:
        """Of one that is not alive: whether it has ended otherwise than because it was idle."""
        try:
            return self.channel.recv(64, socket.MSG_DONTWAIT) != b"idle"
        except OSError:
            return True

    def info(self) -> HostInfo:
        """What there is to say about it now."""
        return HostInfo(
            name=self.plan.workspace.root.name,
            server=self.plan.server,
            pid=self.process.pid,
            children=len(self.links),
            resident=_resident(self.process.pid),
            idle=time.monotonic() - self.used,
        )

    def end(self) -> None:
        """End it, its children and its directory."""
        self.channel.close()
        self.process.end()
        with contextlib.suppress(AtlasError):  # gc finds it
            self.plan.workspace.close()


class LocalProcess:
    """A host as a child of this process."""

    def __init__(self, host: HostPlan) -> None:
        ends = [os.pipe() for _ in range(3)]
        try:
            self._process = subprocess.Popen(
                host.command,
                stdin=ends[0][0],
                stdout=ends[1][1],
                stderr=ends[2][1],
                start_new_session=True,  # Ctrl-C in a terminal is for the owner
                cwd="/",
                env=dict(host.env),
            )
        finally:
            for end in ends:
                os.close(end[0])
                os.close(end[1])
        self.pid = self._process.pid

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def end(self) -> None:
        """Kill and collect it."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


def accepted(listener: socket.socket, process: HostProcess, deadline: float) -> socket.socket:
    """The host's connection."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while time.monotonic() < deadline:
        if poll.poll(100):
            return listener.accept()[0]
        if not process.running():
            raise StartError("its interpreter ended at once. Try its command by hand")
    raise StartError("its interpreter did not come up in time. Raise `start_seconds` in its manifest")


def _resident(pid: int) -> int:
    """Resident bytes of a process; 0 when it is gone or not known."""
    try:
        return int(Path(f"/proc/{pid or -1}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0

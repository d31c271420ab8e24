"""The host's side of the zygote: starting one per process and place, asking it for workers, ending it.

Owns process ids, descriptors and fork-safety: a forked owner starts its own zygote and never touches
its parent's. Does not know cells or frames, or how a container is made (`container`).
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from atlas_gym.errors import SandboxError
from atlas_gym.runtime.host import pid_here

Place: TypeAlias = Literal["process", "container"]
"""Where a zygote lives: a process of this machine, or one in a container."""

HERE: Final = Path(__file__).resolve().parent
KERNEL: Final = HERE.parent / "runtime" / "kernel.py"
FLAGS: Final = ("-s", "-S", "-P", "-B")
ENVIRONMENT: Final = {"PYTHONHASHSEED": "0", "LANG": "C.UTF-8", "TZ": "UTC0", "MALLOC_ARENA_MAX": "1"}
"""Equal cells print equal sets and times; one malloc arena, or every thread would reserve 64 MB."""
_START_SECONDS: Final = 180.0
_SPAWN_SECONDS: Final = 120.0
"""Both are for what hangs, not for what is slow on a busy machine."""
_KEPT: Final = ("LD_LIBRARY_PATH",)
"""What some builds of Python need to start. The zygote forgets its environment once it has."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Spawned:
    """One forked worker, as its owner holds it."""

    pid: int
    pidfd: int
    data: socket.socket
    """Frames, in both directions."""
    status: socket.socket
    """Gives the exit status as decimal text when the worker has ended, then closes."""

    def signal(self, number: int) -> None:
        """Send a signal to the worker; nothing happens when it is gone, whoever has its pid now."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        """Give the descriptors back. The worker ends when its socket closes, if it has not yet."""
        self.data.close()
        self.status.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


class Refused(SandboxError):
    """The zygote is well, and says why it cannot fork now."""


class Parent:
    """A running zygote: here, a process. Not thread-safe; belongs to the process that started it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.pid = 0
        """Of the zygote, as this process sees it."""
        self._control = self._launch()
        try:
            ready = self._packet(_START_SECONDS, "start")[0]
        except SandboxError:
            self._kill()
            self.close()
            raise
        if "ready" not in ready:
            self.close()
            raise SandboxError(f"The interpreter's parent process did not start: {ready.get('error', ready)}")

    def _launch(self) -> socket.socket:
        """Start the zygote; returns this end of its control socket."""
        control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with inner:
            self.pid = os.posix_spawn(
                sys.executable,
                [sys.executable, *FLAGS, str(HERE / "zygote.py"), str(self.owner), str(KERNEL)],
                {**ENVIRONMENT, **{name: os.environ[name] for name in _KEPT if name in os.environ}},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, inner.fileno(), 3),
                ],
            )
        return control

    def _kill(self) -> None:
        """End a zygote that does not answer."""
        os.kill(self.pid, signal.SIGKILL)

    def _wait(self) -> None:
        """Wait until a zygote that was told to end has ended."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _packet(self, seconds: float, what: str) -> tuple[dict[str, Any], list[int]]:
        self._control.settimeout(seconds)
        try:
            message, fds, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
        except TimeoutError:
            raise SandboxError(
                f"The interpreter's parent process gave no answer within {seconds:g} s ({what})."
            ) from None
        if not message:
            raise SandboxError(
                f"The interpreter's parent process ended ({what}); the next cell starts another."
            )
        return json.loads(message), list(fds)

    def spawn(self, *, sealed: bool, memory_mb: int) -> Spawned:
        """Fork one worker. Blocks for some milliseconds.

        Raises:
            SandboxError: The zygote is gone or does not answer.
            Refused: It cannot fork.
        """
        data, inner_data = socket.socketpair()
        status, inner_status = socket.socketpair()
        request = json.dumps({"sealed": sealed, "memory_mb": memory_mb}).encode()
        try:
            with inner_data, inner_status:
                socket.send_fds(self._control, [request], [inner_data.fileno(), inner_status.fileno()])
                reply, fds = self._packet(_SPAWN_SECONDS, "fork")
            if "pid" not in reply:
                raise Refused(f"No interpreter could be forked: {reply.get('error')}.")
        except OSError as exc:
            data.close()
            status.close()
            raise SandboxError(f"No interpreter could be forked: {exc.strerror or exc}.") from exc
        except BaseException:
            data.close()
            status.close()
            raise
        data.setblocking(False)
        status.setblocking(False)
        return Spawned(pid_here(fds[0]), fds[0], data, status)

    def close(self) -> None:
        """End the zygote and all its workers, and wait for it. In a forked owner: only let go of it."""
        if os.getpid() == self.owner:
            with contextlib.suppress(OSError):  # closing alone says nothing while a fork of ours has a copy
                self._control.shutdown(socket.SHUT_RDWR)
            self._wait()
        self._control.close()


_current: dict[Place, Parent] = {}
_guard = threading.Lock()
"""Held while a zygote is asked, and while this process forks: no fork then holds half of an answer."""
_living: weakref.WeakSet[Spawned] = weakref.WeakSet()


def _parent(place: Place) -> Parent:
    if place not in _current:
        if place == "process":
            _current[place] = Parent()
        else:
            from atlas_gym.sandbox.container import ContainerParent

            _current[place] = ContainerParent()
    return _current[place]


def _discard(place: Place) -> None:
    dead = _current.pop(place, None)
    if dead is not None:
        dead.close()


def parent(place: Place = "process") -> Parent:
    """This process's zygote of a place, started at the first call.

    Raises:
        SandboxError: It does not start; the message holds its traceback.
    """
    with _guard:
        return _parent(place)


def running(place: Place) -> bool:
    """Whether this process has a zygote in this place."""
    return place in _current


def spawn(place: Place = "process", *, sealed: bool, memory_mb: int) -> Spawned:
    """Fork a worker, from a new zygote if the old one is gone.

    Raises:
        SandboxError: No zygote starts, or it cannot fork.
    """
    with _guard:
        try:
            worker = _parent(place).spawn(sealed=sealed, memory_mb=memory_mb)
        except Refused:  # every other worker lives on
            raise
        except SandboxError:
            if place not in _current:  # none could be started: a second try would say the same
                raise
            _discard(place)
            worker = _parent(place).spawn(sealed=sealed, memory_mb=memory_mb)
        _living.add(worker)
        return worker


def shut_down() -> None:
    """End this process's zygotes, and with them every worker. The next sandbox starts another."""
    with _guard:
        for place in list(_current):
            _discard(place)


def _after_fork() -> None:
    """In a fork: let go of the descriptors of the parent's zygotes and workers, and of nothing else."""
    global _guard, _living
    _guard = threading.Lock()
    for zygote in _current.values():
        zygote.close()
    for worker in list(_living):
        worker.close()
    _current.clear()
    _living = weakref.WeakSet()


os.register_at_fork(
    before=lambda: _guard.acquire() and None,
    after_in_parent=lambda: _guard.release(),
    after_in_child=_after_fork,
)
atexit.register(shut_down)

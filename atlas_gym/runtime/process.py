"""The `process` runtime: each server a process tree of its own, behind the kernel's walls.

Owns the owner's end of a server's life: spawning, its streams, its orderly end. Does not know MCP, what is
allowed to a server (`launch`), how walls are built (`kernel`) or who kills the tree (`launcher`).
"""

from __future__ import annotations

import asyncio
import contextlib
import marshal
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from atlas_gym.errors import StartError, WireError
from atlas_gym.runtime import kernel
from atlas_gym.runtime.aside import aside
from atlas_gym.runtime.host import Host, HostGone, pid_here
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.launch import MARKER, Launch, plan
from atlas_gym.runtime.prefork import Hosts
from atlas_gym.runtime.streams import Reader, Tail, Writer
from atlas_gym.runtime.workspace import Workspace

_LAUNCHER: Final = (
    # A module rather than a script, because only modules are compiled once and kept.
    "import sys; sys.path.append(sys.argv[1]); import launcher; launcher.main(int(sys.argv[2]))",
    str(Path(__file__).parent),
)
GRACE: Final = 0.25
"""Seconds from SIGTERM to SIGKILL. A server has written what it had to when it answered its last call."""
_HOSTS: Final = 2
"""Warmed parents that may die under one start before the server is started without one."""
_PATIENCE: Final = 8.0
"""Seconds after which the launcher itself is killed; it gives up after 5."""


class ProcessLink:
    """One started server. Made by `ProcessRuntime.start`, on the loop that it stays with."""

    def __init__(
        self,
        launch: Launch,
        started: Callable[[], None] = lambda: None,
        host: Host | None = None,
        how: str = "",
    ) -> None:
        """Spawn the launcher, or ask for its fork; nothing is known about the server before `begin`.

        Args:
            launch: What to start.
            started: Called once, when the server has said its first words or ended.
            host: Warmed parent to fork it from; None starts a new interpreter.
            how: What `how` will say; "spawn" or "fork" by default.

        Raises:
            StartError: No process could be made.
            HostGone: The warmed parent has ended.
        """
        self.name = launch.name
        self.walls = launch.walls
        self.how = how or ("fork" if host else "spawn")
        self.own_paths = False
        self.command = launch.command
        self.pid = 0
        """Process id of the server."""
        self._launch = launch
        self._on_started: Callable[[], None] | None = started
        self._status: int | None = None
        self._why = ""
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._heard: asyncio.Future[str] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._host = host
        self._keeps: object = None
        self._exited = -1
        """Handle of the launcher; of a forked one once it has answered."""
        # Pipes, not socket pairs, for the server: /dev/stdout can be opened, and every language knows them.
        stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        self._control, theirs = socket.socketpair()
        try:
            if host is not None:
                host.ask((stdin[0], stdout[1], stderr[1], theirs.fileno()))
                host.links.add(id(self))
            else:
                self._spawn(stdin[0], stdout[1], stderr[1], theirs.fileno())
        except (OSError, HostGone) as exc:
            self._control.close()
            for fd in (stdin[1], stdout[0], stderr[0]):
                os.close(fd)
            if isinstance(exc, HostGone):
                raise
            raise StartError(
                f"Server {self.name!r} cannot be started: no process could be made: {exc}."
            ) from exc
        finally:
            theirs.close()
            for fd in (stdin[0], stdout[1], stderr[1]):
                os.close(fd)
        self._stdin, self._stdout = Writer(stdin[1]), Reader(stdout[0])
        self._stderr = Tail(stderr[0], launch.secrets)
        self._control.setblocking(False)
        self._loop.add_reader(self._control, self._listen)

    def _spawn(self, stdin: int, stdout: int, stderr: int, control: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-E", "-c", *_LAUNCHER, str(control)],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=[control],
            start_new_session=True,  # Ctrl-C in a terminal is for the owner
            cwd="/",
            env={MARKER: self._launch.spec["env"][MARKER]},
        )
        self._exited = os.pidfd_open(self._process.pid)

    def keep(self, hosts: object) -> None:
        """Hold what its parent ends with, also when the runtime is dropped before the link."""
        self._keeps = hosts

    async def begin(self) -> None:
        """Wait until the server's program runs.

        Raises:
            StartError: The program could not be executed or the walls not be put up.
            HostGone: The warmed parent ended before it had forked; the link is closed.
        """
        try:
            async with asyncio.timeout(self._launch.start_seconds):
                spec = marshal.dumps(self._launch.spec, 4)  # a forked launcher's Python may be another
                await self._loop.sock_sendall(self._control, len(spec).to_bytes(4, "big") + spec)
                failure = await asyncio.shield(self._heard)
        except TimeoutError:
            failure = f"its launcher did not answer within {self._launch.start_seconds} s"
        except OSError as exc:
            failure = f"its launcher died: {exc}"
        except BaseException:  # a cancelled start too: its process may not stay
            await self.aclose()
            raise
        if failure:
            unborn = self._host is not None and self._exited < 0
            await self.aclose()
            if unborn:
                raise HostGone(f"the warmed parent of {self.name!r} ended before it forked")
            raise StartError(
                f"Server {self.name!r} did not start: {failure}.{self._last_lines()} "
                f"Try it by hand: {self.command}"
            )

    def _listen(self) -> None:
        """Take what the launcher says."""
        try:
            data, fds, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if fds:
            self._exited = fds[0]
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            kind, _, text = line.decode("utf-8", "replace").partition(" ")
            if kind == "exit":
                status, _, self._why = text.partition(" ")
                self._status = int(status)
                self._ended.set()
            elif kind != "forked" and not self._heard.done():
                self.pid = int(text) if kind == "started" else 0
                self._heard.set_result("" if self.pid else text)
                if self.pid and self.how == "container-fork":  # its number in there is another process's here
                    self.pid = max(0, pid_here(self._exited))
        if not data:
            self._loop.remove_reader(self._control)
            self._ended.set()
            if self._status is None:
                self._status = -signal.SIGKILL
            if not self._heard.done():
                self._heard.set_result("its launcher died")

    @property
    def exit_status(self) -> int | None:
        """Exit status, negative for the signal that ended it; None while it runs."""
        return self._status

    def stderr_tail(self) -> str:
        """Its last lines of standard error, secrets replaced; and why it was ended, where we did that."""
        return "\n".join(filter(None, (self._stderr.text(), self._why and f"[ended: {self._why}]")))

    def _last_lines(self) -> str:
        tail = self.stderr_tail()
        return f" Its last lines:\n{tail}\n" if tail else ""

    async def send(self, data: bytes) -> None:
        """Write all of `data`, waiting while the server does not read.

        Raises:
            WireError: The server is gone.
        """
        try:
            await self._stdin.send(data)
        except WireError as exc:
            end = "" if self._status is None else f" (exit status {self._status})"
            raise WireError(f"Server {self.name!r} is gone{end}.{self._last_lines()}") from exc

    async def receive(self) -> bytes:
        """The next bytes; `b""` at the end of the stream."""
        data = await self._stdout.receive()
        self._starting_is_over()
        if not data:  # the status is on its way, and whoever reports this end wants it
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._ended.wait()
        return data

    def _starting_is_over(self) -> None:
        if self._on_started is not None:
            call, self._on_started = self._on_started, None
            call()

    async def aclose(self) -> None:
        """End the server and everything it started. Idempotent; bounded; leaves no zombie."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._starting_is_over()
        self._stdin.close()
        with contextlib.suppress(OSError):  # it has ended by itself
            self._control.send(b"%f\n" % GRACE)
        if self._exited >= 0:
            if not await self._launcher_ended(_PATIENCE):
                signal.pidfd_send_signal(self._exited, signal.SIGKILL)  # the kernel then kills the server
                await self._launcher_ended(_PATIENCE)
            os.close(self._exited)
        if self._status is None:
            self._listen()
        if self._host is not None:
            self._host.links.discard(id(self))  # who has forked it collects it
        else:
            self._process.wait()
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control)
            self._control.close()
        self._stderr.drain()
        self._stderr.close()
        self._stdout.close()

    async def _launcher_ended(self, seconds: float) -> bool:
        ended = asyncio.Event()
        self._loop.add_reader(self._exited, ended.set)
        try:
            async with asyncio.timeout(seconds):
                await ended.wait()
        except TimeoutError:
            return False
        finally:
            self._loop.remove_reader(self._exited)
        return True


class ProcessRuntime:
    """Starts servers as local processes.

    Args:
        walls: "auto" puts up what the kernel has; "off" nothing (for debugging a server).
        max_starting: Servers that may be starting at the same time, per event loop. A server is starting
            until its first bytes, its end, or its manifest's `start_seconds`.
        prefork: Fork Python servers from a parent that has imported them, where that is safe; the first start
            then takes longer. False for single starts. `Hosts` of your own are used as they are.
    """

    name: str = "process"

    def __init__(
        self,
        *,
        walls: Literal["auto", "off"] = "auto",
        max_starting: int = 4,
        prefork: bool | Hosts | None = True,
    ) -> None:
        self._walls = kernel.probe() if walls == "auto" else kernel.NO_WALLS
        self._max_starting = max_starting
        self._slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._slots = weakref.WeakKeyDictionary()
        self.hosts: Final = (
            (Hosts(self._walls) if prefork else None) if isinstance(prefork, bool) else prefork
        )
        """The warmed parents: what lives, why a server has none, how to end one."""

    async def start(self, installation: Installation, workspace: Workspace) -> ProcessLink:
        """Start one server for one episode.

        The launcher watches this process, not this thread, so that any thread's loop may start servers; the
        server's own death signal is tied to the launcher, which has one thread.

        Raises:
            StartError: It cannot run here, or its program cannot be executed; holds the command to try.
            StorageError: Its state directory cannot be made.
        """
        launch = plan(installation, workspace, self._walls)
        loop = asyncio.get_running_loop()
        slots = self._slots.setdefault(loop, asyncio.Semaphore(self._max_starting))
        await slots.acquire()
        slot = _Slot(slots, loop, launch.start_seconds)
        try:
            for _ in range(_HOSTS):
                host = await self.hosts.get(installation) if self.hosts else None
                try:
                    link = ProcessLink(launch, slot.free, host)
                    link.keep(self.hosts)
                    await link.begin()
                except HostGone:
                    if host and self.hosts and host.alive():  # one that does not answer
                        await asyncio.to_thread(self.hosts.end, host.plan.workspace.root.name)
                    continue
                return link
            link = ProcessLink(launch, slot.free)
        except BaseException:  # cancelled too: the place is given back
            slot.free()
            raise
        await link.begin()
        return link

    async def aclose(self) -> None:
        """End the warmed parents and the servers forked from them; later starts make new ones."""
        if self.hosts:
            await aside(self.hosts.close)


class _Slot:
    """One of the places for starting servers, given back once and at the latest after `seconds`."""

    def __init__(self, slots: asyncio.Semaphore, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._slots: asyncio.Semaphore | None = slots
        self._timer = loop.call_later(seconds, self.free)

    def free(self) -> None:
        if self._slots is not None:
            self._slots.release()
            self._slots = None
            self._timer.cancel()

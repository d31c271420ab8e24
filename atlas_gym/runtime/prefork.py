"""Warmed parents of Python servers, seen from their owner: one host process per installation.

Owns when a host starts, what it is told, how a fork is asked for, and its end. `forkhost` is the other side.
How a host's process is launched, and which paths it sees, are two methods of `Hosts` that a container
overrides. Does not know what servers say, except for a client's first words (`REHEARSAL`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atlas_gym import settings
from atlas_gym.runtime.host import Host, HostInfo, HostPlan, HostProcess, LocalProcess, accepted
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.kernel import Walls
from atlas_gym.runtime.launch import Launch, plan
from atlas_gym.runtime.workspace import Workspace

FILES: Final = ("forkhost.py", "preload.py", "bound.py", "launcher.py", "kernel.py")
"""What a host runs, all of it, side by side in one directory."""
SOCKET: Final = "host.sock"
IDLE: Final = 300.0
"""Seconds after which a host ends that nobody has asked and that has no children."""
REHEARSAL: Final = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    '"capabilities":{},"clientInfo":{"name":"atlas-gym","version":"0"}}}',
    '{"jsonrpc":"2.0","method":"notifications/initialized"}',
    '{"jsonrpc":"2.0","id":2,"method":"tools/list"}',
)
"""Said to one throw-away child: modules that servers import only when they run are then imported ahead."""
_REHEARSAL_SECONDS: Final = 20.0
_DEATHS: Final = 3
"""Hosts of one installation that may die before it is spawned from then on."""
_FLAGS: Final = frozenset(("-I", "-S", "-E", "-s", "-u", "-B", "-P", "-O", "-OO"))


@dataclass(frozen=True)
class Entry:
    """A Python command line, taken apart."""

    flags: tuple[str, ...]
    script: str
    module: str
    skip: int
    """Parts of the command before `sys.argv`."""


def entry_of(command: tuple[str, ...]) -> Entry | None:
    """Take `python [flags] script ...` or `python [flags] -m module ...` apart; None for anything else."""
    for index, part in enumerate(command[1:], 1):
        if part in _FLAGS:
            continue
        if part == "-m" and index + 1 < len(command):
            return Entry(command[1:index], "", command[index + 1], index + 1)
        return None if part.startswith("-") else Entry(command[1:index], part, "", index)
    return None


def refusal(installation: Installation) -> str:
    """Why this server is never forked, from what its manifest says; "" when it may be."""
    manifest = installation.server.manifest
    if manifest.respawn:
        return manifest.respawn
    if manifest.registry == "user" or manifest.language != "python":
        return "only Python servers of a known package are forked"
    if manifest.walls == "required":
        return "it runs code of others and must not share a parent"
    if entry_of(installation.command) is None:
        return "its command is not a Python script or module"
    return ""


class Hosts:
    """The hosts of one runtime, made when first needed.

    A fork of the process that made them makes its own, and leaves those of its parent alone. To launch hosts
    elsewhere, override `launch`; to show them other paths, `prepare`.

    Args:
        walls: What is put up around a host (it may write below the run directory) and its children.
        idle: Seconds after which an unused host ends.
        rehearsal: Lines said to a throw-away child of each new host; none to leave that out.
        again: Seconds after which a host that could not be started is tried again: that may have been the
            machine's fault. One whose server may not be forked is not.
    """

    def __init__(
        self,
        walls: Walls,
        *,
        idle: float = IDLE,
        rehearsal: tuple[str, ...] = REHEARSAL,
        again: float = 60.0,
    ) -> None:
        self.walls = walls
        self.idle = idle
        self.rehearsal = rehearsal
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._hosts: dict[str, concurrent.futures.Future[Host | str]] = {}
        """Key -> the host, or why there is none."""
        self._reasons: dict[str, str] = {}
        self._again = again
        self._failed: dict[str, float] = {}
        """Key -> when its host could not be started."""
        self._deaths: dict[str, int] = {}
        """Key -> hosts that died although nobody had ended them."""
        self._starting: list[HostProcess] = []
        """Processes of hosts that are not ready yet."""
        self._inherited: list[object] = []
        weakref.finalize(self, _end_all, self._pid, self._lock, self._hosts, self._starting)

    async def get(self, installation: Installation) -> Host | None:
        """The installation's host, started if need be; None when the server must be started anew.

        A host that has died is replaced. `why_not` holds the reason for a None.
        """
        name = installation.server.name
        reason = refusal(installation)
        if reason:
            self._reasons[name] = reason
            return None
        key = self._key(installation)
        future = self._future(key, installation)
        found = await asyncio.shield(asyncio.wrap_future(future))
        if isinstance(found, Host):
            return found
        self._reasons[name] = found
        return None

    def why_not(self, server: str) -> str:
        """Why this server is not forked; "" when it is, or was not asked for yet."""
        return self._reasons.get(server, "")

    def hosts(self) -> list[HostInfo]:
        """Those that live; the remains of others are put away."""
        found = []
        for key, future, host in self._running():
            if host.alive():
                found.append(host.info())
            else:
                self._forget(key, future, host)
        return found

    def end(self, name: str) -> bool:
        """End the host with this name, and its children; whether there was one."""
        for key, future, host in self._running():
            if host.plan.workspace.root.name == name:
                self._forget(key, future, host)
                return True
        return False

    def close(self) -> None:
        """End all of them, and their children; give up those that start. Idempotent; starts may follow."""
        self._own()
        _end_all(self._pid, self._lock, self._hosts, self._starting)

    # -- what a container overrides

    def prepare(self, installation: Installation, workspace: Workspace) -> HostPlan:
        """Put together what launching takes, for a host whose directory is `workspace`."""
        manifest = installation.server.manifest
        entry = entry_of(installation.command)
        assert entry is not None
        launch: Launch = plan(installation, workspace, self.walls)
        spec = launch.spec
        argv = spec["argv"]
        here = Path(__file__).parent
        first = os.path.dirname(argv[entry.skip]) if entry.script else None
        config = {
            "spec": spec,
            "script": argv[entry.skip] if entry.script else "",
            "module": entry.module,
            "skip": entry.skip,
            # What a new interpreter has at the front of sys.path; "" when it is told not to. None: where it
            # is started, known to each fork only.
            "sys_path": "" if {"-I", "-P"} & set(entry.flags) else first,
            "own": manifest.state_bound == "import",
            "package": manifest.package,
            "scratch": str(workspace.root),
            "write": [str(workspace.root.parent)],
            "idle": self.idle,
            "rehearsal": self.rehearsal,
            "answers": sum('"id"' in line for line in self.rehearsal),
            "rehearsal_seconds": min(_REHEARSAL_SECONDS, launch.start_seconds),
        }
        command = (argv[0], *entry.flags, str(here / "forkhost.py"), str(workspace.root / SOCKET))
        return HostPlan(manifest.name, workspace, command, spec["env"], config, launch.start_seconds)

    def launch(self, host: HostPlan) -> HostProcess:
        """Start the process of a host.

        Raises:
            OSError: It cannot be started.
        """
        return LocalProcess(host)

    # -- starting

    def _key(self, installation: Installation) -> str:
        manifest = installation.server.manifest
        secrets = {name: settings.secret(name) for name in manifest.env_allow}
        where = str(settings.run_dir())  # behind its walls a host writes only below the one it was made in
        return json.dumps(
            [installation.command, sorted(manifest.env.items()), secrets, where], sort_keys=True
        )

    def _future(self, key: str, installation: Installation) -> concurrent.futures.Future[Host | str]:
        self._own()
        with self._lock:
            future = self._hosts.get(key)
            if future is not None and future.done():
                host = future.result()
                if isinstance(host, Host) and not host.alive():
                    self._deaths[key] = self._deaths.get(key, 0) + host.died()
                    # May ask an engine to remove it: not on the loop, and not while others wait for the lock.
                    threading.Thread(target=host.end, name="atlas-gym-host-end", daemon=True).start()
                    future = None
                    if self._deaths[key] >= _DEATHS:
                        future = self._hosts[key] = concurrent.futures.Future()
                        future.set_result(f"its warmed parent has died {_DEATHS} times")
                elif key in self._failed and time.monotonic() - self._failed[key] >= self._again:
                    future = None
            if future is None:
                self._failed.pop(key, None)
                future = self._hosts[key] = concurrent.futures.Future()
                threading.Thread(
                    target=self._start, args=(key, installation, future), name="atlas-gym-host", daemon=True
                ).start()
            return future

    def _start(
        self, key: str, installation: Installation, future: concurrent.futures.Future[Host | str]
    ) -> None:
        try:
            future.set_result(self._started(installation, lambda: self._hosts.get(key) is future))
        except Exception as exc:  # noqa: BLE001 - whoever waits must go on, and starts the server anew
            self._failed[key] = time.monotonic()
            future.set_result(f"its warmed parent could not be started: {type(exc).__name__}: {exc}")

    def _started(self, installation: Installation, wanted: Callable[[], bool]) -> Host | str:
        workspace = Workspace.create(installation.server.name, kind="host")
        with contextlib.ExitStack() as undo:
            undo.callback(workspace.close)
            host_plan = self.prepare(installation, workspace)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                place = os.open(workspace.root, os.O_PATH)
                try:  # a socket's path may have 107 bytes, and run directories may lie deep
                    listener.bind(f"/proc/self/fd/{place}/{SOCKET}")
                finally:
                    os.close(place)
                listener.listen(1)
                process = self.launch(host_plan)
                undo.callback(process.end)
                with self._lock:
                    if not wanted():
                        return "its warmed parent was given up while it started"
                    self._starting.append(process)
                undo.callback(self._starting.remove, process)
                deadline = time.monotonic() + host_plan.start_seconds
                channel = undo.enter_context(accepted(listener, process, deadline))
            owner = os.pidfd_open(os.getpid())
            try:
                socket.send_fds(channel, [json.dumps(dict(host_plan.config)).encode()], [owner])
            finally:
                os.close(owner)
            channel.settimeout(max(0.1, deadline - time.monotonic()))
            report = json.loads(channel.recv(1 << 16) or b'{"unsafe": ["ended its interpreter"]}')
            channel.settimeout(None)
            if report["unsafe"]:
                return "when imported, it " + "; it ".join(report["unsafe"])
            undo.pop_all()
            self._starting.remove(process)
            return Host(host_plan, process, channel, report["modules"])

    def _running(self) -> list[tuple[str, concurrent.futures.Future[Host | str], Host]]:
        self._own()
        with self._lock:
            done = [(key, future) for key, future in self._hosts.items() if future.done()]
        found = [(key, future, future.result()) for key, future in done]
        return [(key, future, host) for key, future, host in found if isinstance(host, Host)]

    def _forget(self, key: str, future: concurrent.futures.Future[Host | str], host: Host) -> None:
        with self._lock:
            if self._hosts.get(key) is future:
                del self._hosts[key]
        host.end()

    def _own(self) -> None:
        """In a fork of the process that made these hosts: begin anew."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._lock = threading.Lock()
            self._inherited.append(dict(self._hosts))  # never collected: that would close and warn
            self._hosts, self._starting = {}, []
            weakref.finalize(self, _end_all, self._pid, self._lock, self._hosts, self._starting)


def _end_all(
    pid: int,
    lock: threading.Lock,
    hosts: dict[str, concurrent.futures.Future[Host | str]],
    starting: list[HostProcess],
) -> None:
    if pid != os.getpid():
        return

    def end(future: concurrent.futures.Future[Host | str]) -> None:
        host = future.result()
        if isinstance(host, Host):
            host.end()

    with lock:
        futures, unborn = list(hosts.values()), list(starting)
        hosts.clear()
    for process in unborn:
        process.end()
    # Their threads put their directories away: the interpreter's end would cut them off.
    concurrent.futures.wait(futures, timeout=_REHEARSAL_SECONDS)
    for future in futures:
        future.add_done_callback(end)  # at once where it is done

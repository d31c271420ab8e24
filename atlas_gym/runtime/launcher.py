"""Starts one server behind walls and stays as its parent: in an interpreter of its own, or in a host's fork.

Owns the server's process tree: adopts its orphans, watches its size, and kills all of it when the server
ends, when told to, or when the owner dies. Does not know what a server is. Stdlib only, and the small part
of it: what is imported here is paid for at every start (no json, re, typing, signal, socket).

Control socket. In: 4 bytes of length and the marshalled spec, then lines, each a number of seconds in which
the server may end by itself after SIGTERM. Out: lines `started PID`, `failed WHY`, `exit STATUS WHY`. The end
of the stream means that the owner is gone.
"""

from __future__ import annotations

import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

# Beside this file: the command that starts this interpreter has put the folder at the end of sys.path, and a
# host has loaded the module by its path.
kernel: Any = __import__("kernel")

SIGKILL, SIGPIPE, SIGTERM, SIGSTOP = 9, 13, 15, 19
TICK = 0.5
"""Seconds between two looks at the server's size."""
SCAN = 2.0
"""Seconds between two looks at its whole tree and its files, more where that look is expensive."""


def _tree() -> list[int]:
    """Every process below this one. Orphans are included, because this process adopts them.

    One that is born or dies meanwhile may be missed: whoever must have all of them looks again.
    """
    me = os.getpid()
    if not os.path.exists(f"/proc/{me}/task/{me}/children"):
        return _tree_of_parents(me)
    found: list[int] = []
    waiting = [me]
    while waiting:
        pid = waiting.pop()
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    below = [int(child) for child in file.read().split()]
                found += below
                waiting += below
        except OSError:
            continue  # ended meanwhile
    return found


def _tree_of_parents(root: int) -> list[int]:
    """The same where the kernel lists no children: from the parents of every process of the machine."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue  # ended meanwhile
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _use(pid: int) -> tuple[int, int]:
    """Threads and resident bytes of one process; zeros when it is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            pages = int(file.read().split()[1])
        return len(os.listdir(f"/proc/{pid}/task")), pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0, 0


def _machine() -> int:
    """Processes and threads of the whole machine, cheaply; 0 where the kernel does not say."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[3].split(b"/")[1])
    except (OSError, ValueError, IndexError):
        return 0


def _files(folders: list[str], most: int) -> tuple[int, int]:
    """Entries below some directories, `most` at most, and bytes that they fill."""
    entries = size = 0
    waiting = list(folders)
    while waiting and entries < most:
        try:
            with os.scandir(waiting.pop()) as found:
                for entry in found:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        size += _filled(entry)
                    if entries >= most:
                        break
        except OSError:
            continue  # gone meanwhile, or closed to us
    return entries, size


def _filled(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except OSError:
        return 0


def _removed(pid: int) -> int:
    """Bytes of files that a process holds open although they have no name any more."""
    size = 0
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            found = os.stat(f"/proc/{pid}/fd/{fd}")
            if found.st_nlink == 0:
                size += found.st_blocks * 512
    except OSError:
        return size
    return size


def _kill(send: Callable[[int, int], None], pid: int, number: int) -> None:
    try:
        send(pid, number)
    except ProcessLookupError:
        return


def _become(
    spec: dict[str, Any], parent: int, report: int, run: Callable[[dict[str, Any]], NoReturn] | None
) -> NoReturn:
    """In the child: put up the walls and turn into the server. Reports a failure and exits."""
    try:
        os.setsid()
        os.umask(0o077)
        if run is None:
            # Python ignores two. SIGXFSZ stays ignored: a file too large is then an error, not death.
            kernel.default_signal(SIGPIPE)
        os.closerange(3, report)
        os.closerange(report + 1, 4096)
        kernel.set_limits(**spec["limits"])
        os.chdir(spec["directory"])
        walls = kernel.Walls(*spec["walls"])
        if walls.landlock_abi or walls.seccomp:
            own = f"/proc/{os.getpid()}"  # /proc/self, of this process only
            kernel.seal_server(
                walls,
                read=[*spec["read"], own],
                write=spec["write"],
                devices=spec["devices"],
                network=spec["network"],
            )
        kernel.die_with_parent(parent)  # last: a change of credentials would clear it
        if run is not None:
            os.close(report)
            run(spec)
        os.execve(spec["argv"][0], spec["argv"], spec["env"])
    except BaseException as exc:  # noqa: BLE001 - nothing may return into the parent's code
        os.write(report, f"{type(exc).__name__}: {exc}".encode("utf-8", "replace")[:2000])
    finally:
        os._exit(127)


class Supervisor:
    """The loop around one server.

    Args:
        control: Our end of the control socket.
        run: What the child does in place of executing the spec's `argv`; never returns.
    """

    def __init__(self, control: int, run: Callable[[dict[str, Any]], NoReturn] | None = None) -> None:
        self.control = control
        self.run = run
        self.server = 0
        self.status: int | None = None
        """Wait status of the server."""
        self.ended = -1
        """Handle of the server, readable when it has ended."""

    def hear(self, size: int) -> bytes:
        """Up to `size` bytes from the owner; nothing when it is gone."""
        try:
            return os.read(self.control, size)
        except OSError:
            return b""

    def say(self, text: str) -> None:
        """Tell the owner; it may be gone."""
        try:
            os.write(self.control, text.replace("\n", " ").encode("utf-8", "replace") + b"\n")
        except OSError:
            return

    def spec(self) -> dict[str, Any]:
        """Wait for the first message."""
        data = b""
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            size = 4 - len(data) if len(data) < 4 else 4 + int.from_bytes(data[:4], "big") - len(data)
            more = self.hear(size)
            if not more:
                sys.exit(0)
            data += more
        found: dict[str, Any] = marshal.loads(data[4:])
        return found

    def start(self, spec: dict[str, Any]) -> int:
        """Fork the server; its pid once the exec has succeeded, 0 otherwise."""
        reading, writing = os.pipe()  # both close at exec
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _become(spec, parent, writing, self.run)
        os.close(writing)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):  # only the server holds its streams: their end is its end
            os.dup2(null, fd)
        why = b""
        while chunk := os.read(reading, 4096):
            why += chunk
        os.close(reading)
        if why:
            os.waitpid(pid, 0)
            self.say("failed " + why.decode("utf-8", "replace"))
            return 0
        self.ended = os.pidfd_open(pid)
        self.say(f"started {pid}")
        return pid

    def watch(self, spec: dict[str, Any], server: int, owners: tuple[int, ...]) -> None:
        """Until the server ends, is told to, grows too large, or loses an owner; then nothing is left.

        Args:
            spec: The limits.
            server: Its pid.
            owners: Handles of processes without which it may not live on.
        """
        self.server = server
        poll = select.poll()
        for fd in (self.ended, *owners, self.control):
            poll.register(fd, select.POLLIN)
        why = ""
        deadline = float("inf")
        next_scan = time.monotonic() + SCAN
        calm = _machine()
        while self.reap() and self.status is None:
            seconds = max(0.0, min(TICK, deadline - time.monotonic()))
            ready = {fd for fd, _ in poll.poll(int(seconds * 1000) + 1)}
            if not ready.isdisjoint(owners):
                break
            if self.control in ready:
                orders = self.hear(4096)
                if not orders:
                    break
                deadline = time.monotonic() + float(orders.split()[-1])
                _kill(os.killpg, server, SIGTERM)
            now = time.monotonic()
            if now >= deadline:
                break
            if ready:
                continue
            tree, busy = [server], _machine()
            if now >= next_scan or busy - calm > spec["pids"]:
                tree = _tree()
                why = _too_much(tree, spec)
                next_scan = time.monotonic() + max(SCAN, 50 * (time.monotonic() - now))
                calm = busy
            why = why or _too_large(tree, spec)
            if why:
                break
        self.kill()
        code = -SIGKILL if self.status is None else os.waitstatus_to_exitcode(self.status)
        self.say(f"exit {code} {why}")

    def reap(self) -> bool:
        """Collect what has ended; whether any child, own or adopted, is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.server:
                self.status = status

    def kill(self) -> None:
        """Kill the whole tree and collect it."""
        poll = select.poll()
        poll.register(self.ended, select.POLLIN)
        if self.status is None:  # else the number of its group may be somebody else's
            _kill(os.killpg, self.server, SIGKILL)
        give_up = time.monotonic() + 5.0  # a process in an uninterruptible wait must not keep us
        while self.reap() and time.monotonic() < give_up:
            if self.status is not None:  # what is left are descendants that went into other groups
                tree = _tree()
                for number in (SIGSTOP, SIGKILL):  # stopped, a tree cannot outrun the killing
                    for pid in tree:
                        _kill(os.kill, pid, number)
                time.sleep(0.001)  # between looks at a tree that is dying: poll has nothing to wait on
            else:
                poll.poll(100)


def _too_large(tree: list[int], spec: dict[str, Any]) -> str:
    use = [_use(pid) for pid in tree]
    threads, resident = sum(u[0] for u in use), sum(u[1] for u in use)
    if threads > spec["pids"]:
        return f"it had {threads} processes and threads, its limit is {spec['pids']}"
    if resident > spec["memory"]:
        return f"it held {resident >> 20} MiB of memory, its limit is {spec['memory'] >> 20}"
    return ""


def _too_much(tree: list[int], spec: dict[str, Any]) -> str:
    entries, size = _files(spec["write"], spec["files"])
    size += sum(map(_removed, tree))
    if size > spec["disk"]:
        return f"its files filled {size >> 20} MiB, the limit is {spec['disk'] >> 20}"
    if entries >= spec["files"]:
        return f"it made {entries} files or more, the limit is {spec['files']}"
    return ""


def main(control: int) -> None:
    """Read the spec, start the server, watch it.

    Args:
        control: Descriptor of our end of the control socket.
    """
    os.set_inheritable(control, False)
    kernel.adopt_orphans()
    supervisor = Supervisor(control)
    spec = supervisor.spec()
    try:
        owner = os.pidfd_open(spec["owner"])
    except ProcessLookupError:
        return
    if os.getppid() == spec["owner"]:  # else the number may already be somebody else's
        server = supervisor.start(spec)
        if server:
            supervisor.watch(spec, server, (owner,))


def fork_main(control: int, owners: tuple[int, ...], run: Callable[[dict[str, Any]], NoReturn]) -> None:
    """The same in the fork of a warmed parent; returns when the server and all it started are gone.

    Args:
        control: Descriptor of our end of the control socket.
        owners: Handles of the owner and of the warmed parent.
        run: Runs the server's program in the child, after its walls are up.
    """
    kernel.adopt_orphans()
    supervisor = Supervisor(control, run)
    spec = supervisor.spec()
    server = supervisor.start(spec)
    if server:
        supervisor.watch(spec, server, owners)

"""A warmed parent: imports one Python server once, then forks a walled child per episode.

The same file in a container and outside, run by the server's own interpreter (3.11 or newer) as `python
[flags] forkhost.py <socket>`; stdlib only. Connects to the socket, whose other end is the owner's, and is
told the rest there (`prefork` writes it). Each later packet carries four descriptors (standard input, output,
error, control socket): a supervisor is forked, whose handle goes back over the control socket, and which
then speaks as `launcher` does. Ends with its owner, and its children with it. Does not know what servers say.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import marshal
import os
import select
import signal
import socket
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any, NoReturn

_LOOK = 0.5
"""Seconds between two looks at the owner while importing."""
HERE = os.path.dirname(os.path.abspath(__file__))


def _load(name: str) -> ModuleType:
    """A module beside this file, by path: the folder itself must not be on the server's sys.path."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, name + ".py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}.py is not beside {__file__}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


class Host:
    """What is warmed, and the loop that forks it.

    Args:
        channel: The connection to the owner.
        owner: A handle of the owner's process.
        config: What `prefork.Hosts` wrote: entry, walls, scratch directories, rehearsal, idle seconds.
    """

    def __init__(self, channel: socket.socket, owner: int, config: dict[str, Any]) -> None:
        self.channel = channel
        self.owner = owner
        self.config = config
        self.kernel, self.launcher = _load("kernel"), _load("launcher")
        self.preload, self.bound = _load("preload"), _load("bound")
        for name in ("kernel", "launcher", "preload", "bound"):  # a server may have modules of these names
            sys.modules.pop(name, None)
        self.me = os.pidfd_open(os.getpid())
        self.supervisors: dict[int, int] = {}
        """Handle -> pid."""

    def owner_is_gone(self) -> bool:
        """Whether the owner has ended."""
        poll = select.poll()
        poll.register(self.owner, select.POLLIN)
        return bool(poll.poll(0))

    def prepare(self) -> dict[str, Any]:
        """Import what may be shared; the report for the owner."""
        spec = self.config["spec"]
        walls = self.kernel.Walls(*spec["walls"])
        if walls.landlock_abi or walls.seccomp:
            self.kernel.seal_server(
                walls,
                read=[*spec["read"], HERE, "/proc"],
                write=self.config["write"],
                devices=spec["devices"],
                network=spec["network"],
            )
        os.chdir(spec["directory"])
        first = self.config["sys_path"]
        if first != "":
            sys.path[:1] = [first] if first else []
        sys.argv = list(spec["argv"][self.config["skip"] :])
        self.server = self.preload.Server(self.config, self.bound)
        report: dict[str, Any] = self.server.warm_up(self.rehearse)
        gc.collect()
        gc.freeze()
        return report

    def rehearse(self) -> list[str]:
        """Start the server once as every later one, say a client's first words, end it; what it imported."""
        lines = self.config["rehearsal"]
        if not lines:
            return []
        stdin, stdout, stderr = os.pipe(), os.pipe(), os.pipe()
        mine, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            self.supervise([stdin[0], stdout[1], stderr[1], theirs.fileno()], self.server.rehearse)
        theirs.close()
        for fd in (stdin[0], stdout[1], stderr[1]):
            os.close(fd)
        try:
            spec = marshal.dumps(self.config["spec"])
            mine.sendall(len(spec).to_bytes(4, "big") + spec)
            os.write(stdin[1], "".join(line + "\n" for line in lines).encode())
            seconds = float(self.config["rehearsal_seconds"])
            names: list[str] = self.preload.listen(self.config["answers"], stdout[0], stderr[0], seconds)
            return names
        except OSError:  # it has ended before it listened
            return []
        finally:
            mine.close()  # its supervisor ends it
            os.waitpid(pid, 0)
            for fd in (stdin[1], stdout[0], stderr[0]):
                os.close(fd)

    def serve(self) -> None:
        """Fork until the owner is gone, or for `idle` seconds nothing has lived."""
        poll = select.poll()
        poll.register(self.owner, select.POLLIN)
        poll.register(self.channel, select.POLLIN)
        idle = float(self.config["idle"])
        until = time.monotonic() + idle
        while True:
            if self.supervisors:
                until = time.monotonic() + idle
            left = until - time.monotonic()
            if left <= 0:
                self.channel.send(b"idle")
                return
            ready = {fd for fd, _ in poll.poll(int(left * 1000) + 1)}
            if self.owner in ready:
                return
            for handle in ready & self.supervisors.keys():
                os.waitpid(self.supervisors.pop(handle), 0)
                poll.unregister(handle)
                os.close(handle)
            if self.channel.fileno() in ready:
                message, fds, _, _ = socket.recv_fds(self.channel, 4096, 4)
                if not message:
                    return
                until = time.monotonic() + idle
                try:
                    handle = self.fork(fds)
                    poll.register(handle, select.POLLIN)
                except OSError as exc:  # no more processes: those that run live on
                    os.write(fds[3], f"failed no process could be forked: {exc}\n".encode())
                finally:
                    for fd in fds:
                        os.close(fd)

    def fork(self, fds: list[int]) -> int:
        """Fork a supervisor for four descriptors; its handle, which is also sent over the last of them."""
        pid = os.fork()
        if pid == 0:
            self.supervise(fds, self.server.run)
        handle = os.pidfd_open(pid)
        self.supervisors[handle] = pid
        # An owner that has given up: the supervisor sees that too.
        with socket.socket(fileno=os.dup(fds[3])) as control, contextlib.suppress(OSError):
            socket.send_fds(control, [b"forked %d\n" % pid], [handle])
        return handle

    def supervise(self, fds: list[int], run: Callable[[dict[str, Any]], NoReturn]) -> NoReturn:
        """In the fork: be the supervisor of one server, which `run` runs."""
        try:
            os.setsid()
            for target, fd in enumerate(fds[:3]):
                os.dup2(fd, target)
            keep = sorted((self.owner, self.me, fds[3]))
            start = 3
            for fd in (*keep, 1 << 16):
                os.closerange(start, fd)
                start = fd + 1
            self.launcher.fork_main(fds[3], (self.owner, self.me), run)
            os._exit(0)
        finally:
            os._exit(70)


def main() -> None:
    """Connect, warm up, serve."""
    if not all(stat.S_ISFIFO(os.fstat(fd).st_mode) for fd in range(3)):
        # What Python notes about its streams at start (are they seekable, terminals?) the children inherit,
        # whose streams are pipes.
        for mine in (0, 1, 2):
            ends = os.pipe()
            os.dup2(ends[mine != 0], mine)
        os.execv(sys.executable, sys.orig_argv)
    folder, name = os.path.split(sys.argv[1])
    null = os.open(os.devnull, os.O_RDWR)
    log = os.open(os.path.join(folder, "host.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for target, fd in enumerate((null, null, log)):
        os.dup2(fd, target)
    os.umask(0o077)
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    place = os.open(folder, os.O_PATH)  # a socket's path may have 107 bytes, and folders lie deep
    channel.connect(f"/proc/self/fd/{place}/{name}")
    message, fds, _, _ = socket.recv_fds(channel, 1 << 20, 1)
    for fd in (null, log, place):
        os.close(fd)
    host = Host(channel, fds[0], json.loads(message))
    signal.signal(signal.SIGALRM, lambda *_: host.owner_is_gone() and _end())
    signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)  # imports may take longer than the owner lives
    try:
        report = host.prepare()
    except BaseException as exc:  # noqa: BLE001 - the owner must hear why
        report = {"unsafe": [f"raised {type(exc).__name__}: {exc}"[:500]]}
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    channel.send(json.dumps(report).encode())
    if not report["unsafe"]:
        host.serve()
    _end()


def _end() -> NoReturn:
    """Exit without the server's own clean-up, which is for those that ran; end what imports have started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    main()

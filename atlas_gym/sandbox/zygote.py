"""The warmed parent: one process per owner that forks a worker per sandbox.

Run by path as `python -s -S -P -B zygote.py <owner pid> <kernel.py>` with the control socket as fd 3
(not `-I`: that would ignore PYTHONHASHSEED, and sets would print in another order each time), or in a
container with the path of the owner's socket for the pid. Standard library only. It ends when the control
socket closes or the owner dies, and its workers with it. Does not know cells: `interpreter.serve` does.
"""

from __future__ import annotations

import builtins
import gc
import importlib.util
import json
import os
import resource
import selectors
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any, Final

CONTROL: Final = 3
CPU_SECONDS: Final = 3600
"""Of one worker's whole life. The host's clocks come first; this ends what nobody watches any more."""
_THREAD_STACK: Final = 1 << 20


def load(path: str, *, private: bool = False) -> types.ModuleType:
    """A sibling module by its path; `private` gives it builtins that cells cannot replace."""
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(f"_atlas_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    if private:
        vars(module)["__builtins__"] = dict(vars(builtins))
    spec.loader.exec_module(module)
    return module


class Zygote:
    """Forks workers on request and reports how each ended.

    A request is one packet: JSON `{"sealed": bool, "memory_mb": int}` with two descriptors, the worker's
    socket and the socket for its exit status. The reply is `{"pid": int}` with a pidfd.
    """

    def __init__(self, owner: int, kernel: str) -> None:
        """Import everything. `owner` is a handle of the owner's process (a pidfd)."""
        here = os.path.dirname(os.path.abspath(__file__))
        load(os.path.join(here, "stdlib.py")).preload()
        self._frames, console, report, self._interpreter = (
            load(os.path.join(here, f"{name}.py"), private=True)
            for name in ("frames", "console", "report", "interpreter")
        )
        self._tools = self._interpreter.Tools(self._frames, console, report)
        self._kernel = load(kernel)
        self._seal = load(os.path.join(here, "seal.py"))
        self._pid = os.getpid()
        self._control = socket.socket(fileno=CONTROL)
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, tuple[int, socket.socket]] = {}
        self._owner = owner

    def serve(self) -> None:
        """Answer until the owner is gone."""
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._owner, selectors.EVENT_READ)
        threading.stack_size(_THREAD_STACK)
        gc.collect()
        gc.freeze()
        self._control.send(b'{"ready":true}')
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == self._owner:
                    return
                if key.fileobj is self._control:
                    if not self._request():
                        return
                else:
                    self._reap(int(key.fd))

    def _request(self) -> bool:
        message, fds, _, _ = socket.recv_fds(self._control, 4096, 2)
        if not message:
            return False
        received = [socket.socket(fileno=fd) for fd in fds]
        try:
            data, status = received
            with data:
                pid = os.fork()
                if pid == 0:
                    self._become_worker(data, json.loads(message))
            self._watch(pid, status)
        except (OSError, ValueError) as exc:  # no more processes, no more descriptors: others live on
            for end in received:
                end.close()
            self._control.send(json.dumps({"error": f"{type(exc).__name__}: {exc}"}).encode())
        return True

    def _watch(self, pid: int, status: socket.socket) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._workers[pidfd] = (pid, status)
        self._selector.register(pidfd, selectors.EVENT_READ)
        socket.send_fds(self._control, [json.dumps({"pid": pid}).encode()], [pidfd])

    def _reap(self, pidfd: int) -> None:
        pid, status = self._workers.pop(pidfd)
        self._selector.unregister(pidfd)
        _, code = os.waitpid(pid, 0)
        os.close(pidfd)
        with status:
            try:
                status.send(str(os.waitstatus_to_exitcode(code)).encode())
            except OSError:  # nobody waits for it any more
                return

    def end(self) -> None:
        """Kill and reap every worker."""
        for pid, _ in self._workers.values():
            os.kill(pid, signal.SIGKILL)
        for pid, _ in self._workers.values():
            os.waitpid(pid, 0)

    def _become_worker(self, data: socket.socket, request: dict[str, Any]) -> None:
        """In the fork: drop every descriptor but the worker's socket, put up the walls, serve cells."""
        try:
            self._control.detach()
            os.dup2(data.detach(), CONTROL)
            os.closerange(CONTROL + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            self._kernel.die_with_parent(self._pid)
            if request["sealed"]:
                self._seal.seal(self._kernel, memory_mb=request["memory_mb"], cpu_seconds=CPU_SECONDS)
            else:
                self._seal.limit_memory(self._kernel, request["memory_mb"])
                self._kernel.set_limits(core=0)
            self._interpreter.serve(CONTROL, self._tools)
        except BaseException:  # noqa: BLE001 - the fork must end here; the host reads why
            os.write(CONTROL, self._frames.pack({"t": "failed", "error": traceback.format_exc()}))
        finally:
            os._exit(70)


def owner_handle(owner: str) -> int:
    """A pidfd of the owner: of our parent, or as it comes over the owner's socket, which becomes CONTROL."""
    if owner.isdigit():
        os.setsid()
        handle = os.pidfd_open(int(owner))
        if os.getppid() != int(owner):
            raise ProcessLookupError(f"owner {owner} is gone")
        return handle
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel.connect(owner)
    _, fds, _, _ = socket.recv_fds(channel, 64, 1)
    # Descriptors 1 and 2 lead to the engine's log; the owner hears of errors over the socket.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(CONTROL):
        os.dup2(nowhere, number)
    handle = os.dup(fds[0])
    os.dup2(channel.detach(), CONTROL)
    return handle


def main() -> None:
    """Warm up, then fork workers until the owner is gone."""
    os.chdir("/")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 1 << 16)), hard))
    os.closerange(CONTROL + 1, 1 << 16)
    owner = owner_handle(sys.argv[1])
    try:
        zygote = Zygote(owner, sys.argv[2])
        os.environ.clear()
    except BaseException:  # noqa: BLE001 - the owner must hear why no sandbox can start
        os.write(CONTROL, json.dumps({"error": traceback.format_exc()[-3000:]}).encode())
        os._exit(1)
    sys.argv[:] = [""]
    try:
        zygote.serve()
    finally:
        zygote.end()
        os._exit(0)


if __name__ == "__main__":
    main()

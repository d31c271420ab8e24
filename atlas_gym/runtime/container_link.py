"""One server in a container of its own.

Owns a container's life as its owner sees it: making, streams, orderly end, removal. Does not know MCP, what a
container may do (`container_spec`), how images are made (`image`) or what the engine's bytes mean (`attach`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar

from atlas_gym.errors import StartError, WireError, boundary
from atlas_gym.runtime import engine
from atlas_gym.runtime.attach import Attached, attach
from atlas_gym.runtime.container_files import Identity, give, measure
from atlas_gym.runtime.container_spec import Container
from atlas_gym.runtime.streams import Tail

T = TypeVar("T")

GRACE: Final = 0.25
"""Seconds from SIGTERM to SIGKILL, as for processes."""
_PATIENCE: Final = 10.0
"""Seconds that one answer of the engine may take while a container is ended."""
_LOOK: Final = 2.0
"""Seconds between two looks at the files of a server, more where that look is expensive."""


_ASKING: Final = 8
"""Questions that one process puts to the engine at the same time."""

_pool: tuple[int, concurrent.futures.ThreadPoolExecutor] | None = None


async def ask(what: str, question: Callable[[Any], T]) -> T:
    """Put a question to the engine, in a thread with a client of its own (docker-py #3229).

    A cancelled call is still answered: the thread goes on.

    Args:
        what: What is asked for, as the start of the message.
        question: Called in that thread with the SDK's low-level client.

    Raises:
        StartError: No engine answers, or it refuses.
    """

    def in_thread() -> T:
        with boundary(StartError, f"{what}: the engine failed"):
            # First of our own: the SDK forgets the socket of a connection that was refused.
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(socket_path())
            return question(engine.client().api)

    try:
        running = asyncio.get_running_loop().run_in_executor(_threads(), in_thread)
    except RuntimeError:  # the interpreter is ending: what runs must still be removed
        return in_thread()
    return await running


def _threads() -> concurrent.futures.ThreadPoolExecutor:
    """Threads of this process for the engine alone: a long build must keep no container alive."""
    global _pool
    if _pool is None or _pool[0] != os.getpid():
        _pool = os.getpid(), concurrent.futures.ThreadPoolExecutor(_ASKING, "atlas-gym-engine")
    return _pool[1]


class ContainerLink:
    """One server in a container of its own. Made by `ContainerRuntime.start`, on the loop that it stays with.

    Args:
        container: What to make.
        who: Whom it runs as.
        started: Called once, when the server has said its first words or ended.
    """

    how: str = "container"
    own_paths: bool = True

    def __init__(
        self, container: Container, who: Identity, started: Callable[[], None] = lambda: None
    ) -> None:
        self.name = container.server
        self.walls = container.walls
        self.command = container.shown
        self.pid = 0
        """Process id of its container's init on this machine; 0 before it runs."""
        self._container = container
        self._who = who
        self._on_started: Callable[[], None] | None = started
        self._loop = asyncio.get_running_loop()
        self._tail = Tail(-1, container.secrets)
        self._stream: Attached | None = None
        self._status: int | None = None
        self._why = ""
        self._running = False
        self.removed = False
        """Whether the engine has said that its container is gone."""
        self._ended = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None
        self._verdict: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._removing: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Make the container, take hold of its streams, start it.

        Raises:
            StartError: The engine refuses, or the program cannot be executed.
            StorageError: The episode's directories cannot be given to the container's user.
        """
        self._starting = self._loop.create_task(self._start())
        try:
            async with asyncio.timeout(self._container.start_seconds):
                await asyncio.shield(self._starting)
        except TimeoutError:
            failure = f"the engine did not start it within {self._container.start_seconds} s"
        except StartError as exc:
            failure = str(exc).rstrip(".")
        except BaseException:  # a cancelled start too: its container may not stay
            await self.aclose()
            raise
        else:
            return
        await self.aclose()
        raise StartError(
            f"Server {self.name!r} did not start: {failure}.{self._last_lines()} "
            f"Try it by hand: {self.command}"
        )

    async def _start(self) -> None:
        made = self._container
        await asyncio.to_thread(give, made.folders + made.parts, self._who)
        await ask("making a container", self._make)
        self._stream = await attach(socket_path(), made.name, self._tail.feed, self._streams_ended)
        await ask("starting a container", lambda api: api.start(made.name))
        self._running = True
        state = (await ask("looking at a container", lambda api: api.inspect_container(made.name)))["State"]
        self.pid = int(state["Pid"])
        self._watching = self._loop.create_task(self._watch())

    def _make(self, api: Any) -> None:
        host = api.create_host_config(**self._container.host)
        api.create_container(name=self._container.name, host_config=host, **self._container.config)

    def _streams_ended(self) -> None:
        if self._status is None:
            self._verdict = self._loop.create_task(self._judge())

    async def _judge(self) -> None:
        """Ask how it ended."""
        try:
            async with asyncio.timeout(_PATIENCE):
                status, why = await ask("waiting for a container", self._how_it_ended)
        except (TimeoutError, StartError):
            status = -signal.SIGKILL
            why = (self._stream and self._stream.failure) or "the engine does not say how"
        self._settle(status, why)

    def _how_it_ended(self, api: Any) -> tuple[int, str]:
        from docker.errors import NotFound

        try:
            code = int(api.wait(self._container.name, timeout=_PATIENCE)["StatusCode"])
            state = api.inspect_container(self._container.name)["State"]
        except NotFound:
            return -signal.SIGKILL, "its container was removed"
        why = f"it ran out of memory, its limit is {self._container.memory_mb} MiB"
        # The engine's init says 128 + N for a server that signal N ended.
        return (128 - code if 128 < code < 193 else code), (why if state.get("OOMKilled") else "")

    def _settle(self, status: int, why: str) -> None:
        if self._status is None:
            self._status = status
            self._why = self._why or why
        self._ended.set()

    async def _watch(self) -> None:
        """End it when its files grow too large; the engine bounds everything else."""
        made = self._container
        seconds = _LOOK
        while not self._ended.is_set():
            await asyncio.sleep(seconds)
            began = self._loop.time()
            entries, size = await asyncio.to_thread(measure, made.folders, made.files)
            seconds = max(_LOOK, 50 * (self._loop.time() - began))
            if size > made.disk:
                self._why = f"its files filled {size >> 20} MiB, the limit is {made.disk >> 20}"
            elif entries >= made.files:
                self._why = f"it made {entries} files or more, the limit is {made.files}"
            if self._why:
                with contextlib.suppress(StartError):  # it has ended meanwhile
                    await ask("ending a container", lambda api: api.kill(made.name))
                return

    @property
    def exit_status(self) -> int | None:
        """Exit status, negative for the signal that ended it; None while it runs."""
        return self._status

    def stderr_tail(self) -> str:
        """Its last lines of standard error, secrets replaced; and why it was ended, where that is known."""
        return "\n".join(filter(None, (self._tail.text(), self._why and f"[ended: {self._why}]")))

    def _last_lines(self) -> str:
        tail = self.stderr_tail()
        return f" Its last lines:\n{tail}\n" if tail else ""

    async def send(self, data: bytes) -> None:
        """Write all of `data`, waiting while the server does not read.

        Raises:
            WireError: The server is gone.
        """
        try:
            if self._stream is None:
                raise WireError("It was never started.")
            await self._stream.send(data)
        except WireError as exc:
            end = "" if self._status is None else f" (exit status {self._status})"
            raise WireError(f"Server {self.name!r} is gone{end}.{self._last_lines()}") from exc

    async def receive(self) -> bytes:
        """The next bytes; `b""` at the end of the stream."""
        data = await self._stream.receive() if self._stream is not None else b""
        self._starting_is_over()
        if not data:  # the status is on its way, and whoever reports this end wants it
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    await self._ended.wait()
        return data

    def _starting_is_over(self) -> None:
        if self._on_started is not None:
            call, self._on_started = self._on_started, None
            call()

    async def aclose(self) -> None:
        """End the server and remove its container. Idempotent; bounded; a killed owner's is `gc`'s."""
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._starting_is_over()
        if self._watching is not None:
            self._watching.cancel()
        if self._starting is not None:  # what a thread is asking for now must be there before it is removed
            done, late = await asyncio.wait({self._starting}, timeout=_PATIENCE)
            _ = [task.cancelled() or task.exception() for task in done]
            for task in late:  # the engine hangs: what it makes in the end is removed then
                task.add_done_callback(self._remove_late)
                task.cancel()
        if self._stream is not None:
            self._stream.close_stdin()
        if self._running and self._status is None:
            await self._terminate()
        if self._verdict is not None:
            await asyncio.wait({self._verdict}, timeout=_PATIENCE)
        with contextlib.suppress(StartError, TimeoutError):  # the engine is gone: `gc` removes what it left
            async with asyncio.timeout(2 * _PATIENCE):
                await ask("removing a container", lambda api: remove(api, self._container.name))
                self.removed = True
        self._settle(-signal.SIGKILL, "")
        if self._stream is not None:
            self._stream.abort()

    def _remove_late(self, task: asyncio.Task[None]) -> None:
        async def gone() -> None:
            with contextlib.suppress(StartError):
                await ask("removing a container", lambda api: remove(api, self._container.name))

        self._removing = self._loop.create_task(gone())

    async def _terminate(self) -> None:
        """SIGTERM, and a moment to obey it."""
        with contextlib.suppress(StartError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await ask("ending a container", lambda api: api.kill(self._container.name, signal.SIGTERM))
            async with asyncio.timeout(GRACE):
                await self._ended.wait()


def remove(api: Any, name: str) -> None:
    """Kill and remove a container, if it is there; with the SDK's low-level client."""
    from docker.errors import APIError, NotFound

    with contextlib.suppress(NotFound):
        try:
            api.remove_container(name, v=True, force=True)
        except APIError as exc:
            if exc.status_code != 409:
                raise
            api.wait(name, condition="removed", timeout=_PATIENCE)  # somebody else is removing it


def socket_path() -> str:
    """The engine's Unix socket.

    Raises:
        StartError: The engine is elsewhere: it could not mount this machine's directories.
    """
    where = engine.address()
    if not where.startswith("unix://"):
        raise StartError(
            f"The Docker engine at {where} cannot be used: containers mount directories of this machine. "
            "Set DOCKER_HOST to the Unix socket of an engine on it."
        )
    return where.removeprefix("unix://")

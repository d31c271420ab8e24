"""The process's one background event loop, and the way into it from plain code.

Owns the thread, its end at interpreter exit and what happens after a fork: a child never touches the
loop of its parent but gets its own at first use. Does not know what runs on the loop.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import time
from collections.abc import Coroutine
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

_CLEANUP_SECONDS: Final = 10.0
"""How long a cancelled coroutine may take to put things away before `run` stops waiting for it."""


class _Errand(Generic[T]):
    """One coroutine on the loop, and the plain thread that waits for it.

    What `concurrent.futures` does for many waiters and states, for one of each: this is on the way of every
    step of an environment. The result is handed over from within the task, a turn of the loop before the
    task's own callbacks would.
    """

    def __init__(self, coro: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
        self._coro = coro
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._value: T
        self._error: BaseException | None = None
        self._over = False
        self._done = threading.Lock()
        self._done.acquire()

    def begin(self) -> None:
        """Start; on the loop's thread, as are all but `wait` and `result`."""
        if not self._over:
            self._task = self._loop.create_task(self._run())
            self._task.add_done_callback(self._end)

    async def _run(self) -> None:
        try:
            self._value = await self._coro
        except asyncio.CancelledError:
            self._error = concurrent.futures.CancelledError()
            raise
        except BaseException as exc:  # noqa: BLE001 - raised again in the thread that waits
            self._error = exc
        finally:
            self._finish()

    def _end(self, task: asyncio.Task[None]) -> None:
        if not self._over:  # cancelled before it ran at all
            self._coro.close()
            self._error = concurrent.futures.CancelledError()
            self._finish()

    def _finish(self) -> None:
        self._over = True
        self._done.release()

    def cancel(self) -> None:
        """Cancel the coroutine, begun or not; nothing when it has ended."""
        if self._task is not None:
            self._task.cancel()
        elif not self._over:
            self._coro.close()
            self._error = concurrent.futures.CancelledError()
            self._finish()

    def wait(self, timeout: float | None) -> bool:
        """Whether it ended in time, its clean-up included."""
        ended = self._done.acquire(timeout=-1 if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        if ended:
            self._done.release()
        return ended

    def result(self) -> T:
        """What the coroutine returned; raises what it raised."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # else the error and its traceback would hold each other
        return self._value


class Portal:
    """A running event loop in a daemon thread of this process."""

    def __init__(self) -> None:
        self.pid: Final = os.getpid()
        self.loop: Final = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name="atlas-gym-wire", daemon=True)
        self._thread.start()

    def run(self, coro: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop and wait for it, from any other thread.

        An interrupt (Ctrl-C) or the timeout cancels the coroutine, waits for its clean-up, and raises.

        Args:
            coro: The coroutine. It is closed unrun if it cannot be started.
            timeout: Seconds to wait, or None to wait for ever.

        Raises:
            TimeoutError: It took longer than `timeout`.
            RuntimeError: Called from the loop's own thread, where waiting would never end.
        """
        if threading.current_thread() is self._thread:
            coro.close()
            raise RuntimeError(
                "Portal.run was called from the loop's own thread, where waiting would block for ever: "
                "`await` the coroutine instead."
            )
        self._demand_alive(coro)
        errand = _Errand(coro, self.loop)
        try:  # around the start too: an interrupt right after it must not leave the coroutine running
            self.loop.call_soon_threadsafe(errand.begin)
            if not errand.wait(timeout):
                raise TimeoutError
        except BaseException:
            self.loop.call_soon_threadsafe(errand.cancel)
            errand.wait(_CLEANUP_SECONDS)
            raise
        return errand.result()

    def submit(self, coro: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start a coroutine on the loop without waiting. Cancelling the future cancels it."""
        self._demand_alive(coro)
        future: concurrent.futures.Future[T] = concurrent.futures.Future()

        def begin() -> None:
            task = self.loop.create_task(coro)
            task.add_done_callback(finish)
            future.add_done_callback(lambda f: f.cancelled() and self.loop.call_soon_threadsafe(task.cancel))

        def finish(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                future.cancel()
            elif future.set_running_or_notify_cancel():
                error = task.exception()
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(task.result())
            else:
                task.exception()  # retrieved, so that asyncio does not log it: nobody waits any more

        self.loop.call_soon_threadsafe(begin)
        return future

    def close(self) -> None:
        """Cancel what still runs, stop the loop, end the thread. Idempotent; nothing in a fork's child."""
        if self.pid != os.getpid() or self.loop.is_closed():
            return
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(_CLEANUP_SECONDS)

    def _demand_alive(self, coro: Coroutine[Any, Any, Any]) -> None:
        if self.pid != os.getpid() or self.loop.is_closed():
            coro.close()
            raise RuntimeError(
                "This portal belongs to another process or is closed: call portal() again for a live one."
            )

    def _main(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            give_up = time.monotonic() + _CLEANUP_SECONDS / 2
            while tasks and (left := give_up - time.monotonic()) > 0:  # their clean-up may begin others
                self.loop.run_until_complete(asyncio.wait(tasks, timeout=left))
                tasks = asyncio.all_tasks(self.loop)
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            self.loop.close()


_lock = threading.Lock()
_current: Portal | None = None
_inherited: list[Portal | None] = []
"""Portals of ancestors. Kept for ever: collecting one would close its loop, and with it unregister
descriptors in the epoll instance that the parent still uses."""


def portal() -> Portal:
    """The portal of this process; made at the first call, and anew in the child of a fork."""
    global _current
    with _lock:
        if _current is None or _current.pid != os.getpid() or _current.loop.is_closed():
            _inherited.append(_current)
            _current = Portal()
        return _current


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # another thread may have held it at the fork


def _at_exit() -> None:
    if _current is not None:
        _current.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)

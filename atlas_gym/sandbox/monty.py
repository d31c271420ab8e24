"""`monty`: cells in pydantic-monty, a Python interpreter in Rust that runs in worker processes of its own.

Owns one pool per process and the translation of limits, errors and values. Portable and walled, but a
subset of Python: no inheritance, `yield`, `del`, nor much of the standard library. The synchronous pool
is used, in threads: the asynchronous one aborts some interpreters at exit. Does not know tools.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import dataclasses
import os
import re
import threading
import time
from typing import Any, Final

from atlas_gym.errors import SandboxError
from atlas_gym.sandbox.base import (
    CellLimits,
    CellResult,
    CellStatus,
    HostCall,
    HostError,
    cut,
    lost_notice,
    stable,
)
from atlas_gym.sandbox.frames import pack

_MAX_WORKERS: Final = 1024
_GRACE: Final = 1.0
_MAX_SUSPENSIONS: Final = 1_000_000
_NO_TIME: Final = "The cell's time is up."
_BASE: Final = "def exit(code=None):\n    raise SystemExit(str(code))\n\n\nquit = exit\n"
_PRELUDE_FRAMES: Final = re.compile(r'^  File "<python-input-0>".*\n(?:    .*\n)*', re.MULTILINE)
_FEED: Final = re.compile(r"<python-input-(\d+)>")

_pool: Any = None
_abandoned: list[Any] = []
_guard = threading.Lock()


def _open_pool() -> Any:
    """This process's pool, started at the first call."""
    global _pool
    import pydantic_monty

    with _guard:
        if _pool is None:
            _pool = pydantic_monty.Monty(
                max_processes=_MAX_WORKERS, feed_duration_limit_grace=_GRACE
            ).__enter__()
        return _pool


def shut_down() -> None:
    """End this process's pool and its workers."""
    global _pool
    with _guard:
        pool, _pool = _pool, None
    if pool is not None:
        pool.__exit__(None, None, None)


def _after_fork() -> None:
    global _pool, _guard
    _guard = threading.Lock()
    if _pool is not None:
        _abandoned.append(_pool)  # its workers are the parent's: never end them from here
    _pool = None


os.register_at_fork(after_in_child=_after_fork)
atexit.register(shut_down)


class _Calls:
    """One cell's calls out: from the worker's thread to the loop and back."""

    def __init__(self, call: HostCall, limits: CellLimits) -> None:
        self._call = call
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._deadline = time.monotonic() + limits.total_seconds
        self._count = 0
        self._pending: concurrent.futures.Future[Any] | None = None
        self._stopped = False
        self.bug: BaseException | None = None
        """What the host raised that is no refusal: the caller of `run` gets it."""

    @property
    def late(self) -> bool:
        return time.monotonic() >= self._deadline

    def stop(self) -> None:
        """Cut the cell off from the host: nobody waits for it any more."""
        self._stopped = True
        if self._pending is not None:
            self._pending.cancel()

    def __call__(self, op: str, payload: dict[str, Any]) -> Any:
        self._count += 1
        if self._count > self._limits.calls:
            raise RuntimeError(f"More than {self._limits.calls} calls in one cell; split the work up.")
        self._fits("arguments", payload)
        if self._stopped or self.late or self.bug:
            raise RuntimeError(_NO_TIME)
        self._pending = asyncio.run_coroutine_threadsafe(self._answer(op, payload), self._loop)
        try:
            value = self._pending.result()
        except HostError as exc:
            raise RuntimeError(str(exc)) from None
        except (TimeoutError, concurrent.futures.CancelledError):
            raise RuntimeError(_NO_TIME) from None
        except BaseException as exc:  # noqa: BLE001 - whatever it is, the caller of `run` gets it
            self.bug = exc
            raise RuntimeError(_NO_TIME) from None
        self._fits("result", {"value": value})
        return value

    def _fits(self, what: str, value: dict[str, Any]) -> None:
        """Hold monty to what the other sandboxes can pass: JSON within the limit."""
        try:
            size = len(pack(value))
        except (TypeError, ValueError, RecursionError) as exc:
            raise TypeError(
                f"{what} must be JSON values (str, int, float, bool, None, list, dict): {exc}"
            ) from None
        if size > self._limits.frame_bytes:
            raise RuntimeError(
                f"The {what} is {size} bytes as JSON; at most {self._limits.frame_bytes} can be passed."
            )

    async def _answer(self, op: str, payload: dict[str, Any]) -> Any:
        async with asyncio.timeout(max(self._deadline - time.monotonic(), 0)):
            return await self._call(op, payload)


def _exit_session(session: Any) -> None:
    session.__exit__(None, None, None)


class MontySandbox:
    """One monty session; see `sandbox.base.Sandbox`."""

    kind = "monty"

    def __init__(self, call: HostCall, prelude: str, limits: CellLimits) -> None:
        self._call = call
        self._prelude = prelude
        self._limits = limits
        self._owner = os.getpid()
        self._session: Any = None
        self._running: _Calls | None = None
        self._feeds: list[int] = []
        self._count = 0
        self._lost = ""
        self._busy = False
        self._closed = False

    async def start(self) -> None:
        """Take a worker and run the prelude in it.

        Raises:
            SandboxError: No worker starts, or the prelude fails.
        """
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        import pydantic_monty

        limits = self._limits
        try:
            session = _open_pool().checkout(
                limits={
                    "max_feed_duration_secs": limits.seconds,
                    "max_memory": limits.memory_mb << 20,
                    "max_suspensions": _MAX_SUSPENSIONS,
                    "max_total_sleep_secs": limits.total_seconds,
                },
                os_policy={"random_start": {"seed": limits.seed}, "sleep_system_max": limits.seconds},
            )
            session.__enter__()
        except (pydantic_monty.MontyError, OSError, RuntimeError) as exc:
            raise SandboxError(f"The monty interpreter did not start: {exc}") from exc
        try:
            session.feed_run(_BASE + self._prelude, print_callback=pydantic_monty.CollectString())
        except pydantic_monty.MontyError as exc:
            session.__exit__(None, None, None)
            raise SandboxError(f"The monty interpreter cannot run its prelude: {exc}") from exc
        self._session, self._feeds, self._count = session, [0], 0

    async def run(self, code: str) -> CellResult:
        """Run one cell; see `Sandbox.run`."""
        if self._closed or os.getpid() != self._owner:
            raise SandboxError("This sandbox is closed, or belongs to another process; open a new one.")
        if self._busy:
            raise SandboxError("A cell is still running in this sandbox; wait for it, or open another one.")
        self._busy = True
        try:
            lost, result = await self._run(code)
        finally:
            self._busy, self._running = False, None
            if self._closed:
                await self._leave()
        return dataclasses.replace(result, stdout=lost + result.stdout, restarted=True) if lost else result

    async def _run(self, code: str) -> tuple[str, CellResult]:
        lost = lost_notice(self._lost) if self._lost else ""
        if self._session is None:
            await self.start()
        self._lost = ""
        calls = self._running = _Calls(self._call, self._limits)
        work = asyncio.get_running_loop().run_in_executor(None, self._feed, self._session, code, calls)
        try:
            result = await asyncio.shield(work)
        except asyncio.CancelledError:
            calls.stop()
            session, self._session, self._lost = self._session, None, "the cell before was broken off"
            work.add_done_callback(lambda _: _exit_session(session))
            raise
        if calls.bug is not None:
            self._lost = "the host failed in the cell before"
            await self._leave()
            raise calls.bug
        if result.status not in ("ok", "error"):
            reason = result.error.split(". ")[0]
            self._lost = reason[0].lower() + reason[1:]
            await self._leave()
        return lost, result

    async def close(self) -> None:
        """End the session; see `Sandbox.close`."""
        self._closed = True
        if self._running is not None:
            self._running.stop()  # a worker cannot be ended in mid-cell: its limits do, and `run` then leaves
        else:
            await self._leave()

    async def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None and os.getpid() == self._owner:
            await asyncio.to_thread(_exit_session, session)

    def _feed(self, session: Any, code: str, calls: _Calls) -> CellResult:
        """Run one snippet, in a thread."""
        import pydantic_monty

        limit = self._limits.output_chars
        printed = _Printed(limit)
        value: str | None = None
        status: CellStatus = "ok"
        error = error_type = ""
        begun = time.monotonic()
        self._count += 1
        self._feeds.append(self._count)
        try:
            result = session.feed_run(code, external_lookup={"host_call": calls}, print_callback=printed)
            value = None if result is None else self._repr(session, result)
        except pydantic_monty.MontyCrashedError as exc:
            status, error = self._crash(exc)
        except pydantic_monty.MontyError as exc:
            inner = exc.exception()
            computed = time.monotonic() - begun
            if calls.late:
                status, error = (
                    "timeout",
                    _lost(f"The cell took more than {self._limits.total_seconds:g} s in all"),
                )
            elif isinstance(inner, TimeoutError) and computed >= self._limits.seconds:
                status, error = (
                    "timeout",
                    _lost(f"The cell computed for more than {self._limits.seconds:g} s"),
                )
            elif session.worker_pid is None:
                status, error = "died", _lost(f"The interpreter ended ({inner})")
            else:
                status, error_type = "error", type(inner).__name__
                error = self._of_cells(exc.display() if hasattr(exc, "display") else f"{error_type}: {exc}")
        texts, truncated = {}, printed.cut > 0
        for name, text in (("value", value or ""), ("error", error)):
            texts[name], shortened = cut(stable(text), limit, name)
            truncated = truncated or shortened
        shown = None if value is None else texts["value"]
        return CellResult(status, stable(printed.text()), shown, texts["error"], error_type, truncated)

    def _repr(self, session: Any, value: Any) -> str:
        """`repr` as the sandbox itself writes it: a value may be an object of a cell's class."""
        if isinstance(value, str | int | float | bool | list | tuple | dict | set):
            return repr(value)
        self._feeds.append(self._count)
        return str(session.feed_run("repr(last_value)", inputs={"last_value": value}))

    def _of_cells(self, error: str) -> str:
        """A traceback without frames of the prelude, its cells numbered as in the other sandboxes."""

        def numbered(hit: re.Match[str]) -> str:
            feed = int(hit[1])
            return f"<cell {self._feeds[feed] if feed < len(self._feeds) else self._count}>"

        return _FEED.sub(numbered, _PRELUDE_FRAMES.sub("", error))

    def _crash(self, exc: Any) -> tuple[CellStatus, str]:
        if exc.timed_out:
            return "timeout", _lost(f"The cell computed for more than {self._limits.seconds:g} s")
        return "died", _lost(f"The interpreter ended ({exc})")


class _Printed:
    """Collects what a cell prints, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._left = limit
        self._parts: list[str] = []
        self.cut = 0

    def __call__(self, stream: str, text: str) -> None:
        kept = text[: max(self._left, 0)]
        self._parts.append(kept)
        self._left -= len(kept)
        self.cut += len(text) - len(kept)

    def text(self) -> str:
        text = "".join(self._parts)
        return text + (
            f"\n[output cut: {self.cut} of {len(text) + self.cut} characters not shown]" if self.cut else ""
        )


def _lost(why: str) -> str:
    return f"{why}. Its variables are lost: the next cell starts in a fresh interpreter."

"""`sealed`, `container` and `local`: cells in a worker process, driven from asyncio.

Owns the clocks, the counting of calls, and the judgement of every frame: what the worker sends is
untrusted, and anything unexpected ends it. Does not know what the cells or the host's operations do.
"""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, Final

from atlas_gym.errors import SandboxError
from atlas_gym.sandbox import parent
from atlas_gym.sandbox.base import (
    REFUSALS,
    CellLimits,
    CellResult,
    CellStatus,
    HostCall,
    HostError,
    cut,
    lost_notice,
    stable,
)
from atlas_gym.sandbox.clock import Clock, Late
from atlas_gym.sandbox.frames import Decoder, FrameError, pack

_READY_SECONDS: Final = 120.0
_STATUS_SECONDS: Final = 60.0
"""Both are for what hangs, not for what is slow on a busy machine."""
_EXIT_NO_MEMORY: Final = 71
_ENVELOPE: Final = 1 << 16
_TRAFFIC: Final = 4
"""Frames of the largest size that the calls of one cell may fill together: the host keeps its calls."""


class _Gone(Exception):
    """The worker closed its socket."""


class _Breach(Exception):
    """The worker sent what it must not."""


class ProcessSandbox:
    """One interpreter in a forked worker; see `sandbox.base.Sandbox`."""

    def __init__(self, kind: str, call: HostCall, prelude: str, limits: CellLimits) -> None:
        self.kind = kind
        self._call = call
        self._prelude = prelude
        self._limits = limits
        self._owner = os.getpid()
        self._worker: parent.Spawned | None = None
        self._decoder = Decoder(0)
        self._lost = ""
        self._cells = 0
        self._busy = False
        self._closed = False

    async def start(self) -> None:
        """Fork the worker and wait until its prelude has run.

        Raises:
            SandboxError: It cannot be forked, sealed, or its prelude fails.
        """
        self._worker = await asyncio.to_thread(
            parent.spawn,
            "container" if self.kind == "container" else "process",
            sealed=self.kind != "local",
            memory_mb=self._limits.memory_mb,
        )
        limits = self._limits
        # The largest honest frames: a call, and an end whose every character is escaped as two surrogates.
        self._decoder = Decoder(max(limits.frame_bytes, 36 * limits.output_chars) + _ENVELOPE)
        setup = {
            "prelude": self._prelude,
            "seed": limits.seed,
            "output_chars": limits.output_chars,
            "frame_bytes": limits.frame_bytes,
            "memory_mb": limits.memory_mb,
            "sealed": self.kind != "local",
        }
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await self._send(self._worker, setup)
                message = await self._receive(self._worker)
        except (TimeoutError, _Gone, _Breach) as exc:
            status = await self._end()
            raise SandboxError(
                f"The {self.kind} interpreter did not start ({_ending(status)}). {exc}"
            ) from exc
        except BaseException:
            self._drop()
            raise
        if message.get("t") != "ready":
            await self._end()
            raise SandboxError(f"The {self.kind} interpreter did not start: {message.get('error', message)}")
        self._worker.signal(signal.SIGSTOP)

    async def run(self, code: str) -> CellResult:
        """Run one cell; see `Sandbox.run`."""
        if self._closed or os.getpid() != self._owner:
            raise SandboxError("This sandbox is closed, or belongs to another process; open a new one.")
        if self._busy:
            raise SandboxError("A cell is still running in this sandbox; wait for it, or open another one.")
        self._busy = True
        try:
            return await self._run(code)
        finally:
            self._busy = False

    async def close(self) -> None:
        """End the worker; see `Sandbox.close`."""
        self._closed = True
        if self._busy and self._worker is not None:
            self._worker.signal(signal.SIGKILL)  # the running cell sees it die, and gives everything back
        else:
            await self._end()

    async def _run(self, code: str) -> CellResult:
        lost = await self._fresh()
        worker = self._worker
        assert worker is not None
        clock = Clock(self._limits, worker.pid, lambda: worker.signal(signal.SIGKILL))
        try:
            worker.signal(signal.SIGCONT)
            done = await self._converse(worker, code, clock)
            worker.signal(signal.SIGSTOP)
        except Late as exc:
            await self._end()
            return self._stopped("timeout", str(exc), lost)
        except _Breach as exc:
            await self._end()
            return self._stopped("breach", f"The interpreter broke its protocol: {exc}", lost)
        except _Gone:
            status = await self._end()
            if clock.excess:
                return self._stopped("breach", f"The interpreter was ended: {clock.excess}", lost)
            return self._stopped("died", f"The interpreter {_ending(status)}", lost)
        except BaseException:
            self._drop()
            self._lost = "the cell before was broken off"
            raise
        finally:
            clock.stop()
        return self._result(done, lost)

    async def _fresh(self) -> str:
        """A worker that waits for a cell; returns the notice for the agent when it is a new one."""
        if self._worker is not None and not self._lost and not await self._quiet(self._worker):
            self._lost = "the interpreter ended or spoke out of turn between two cells"
            await self._end()
        if self._worker is None:
            await self.start()
        notice, self._lost = lost_notice(self._lost) if self._lost else "", ""
        return notice

    async def _quiet(self, worker: parent.Spawned) -> bool:
        if self._decoder.pending:
            return False
        try:
            worker.data.recv(1)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    async def _converse(self, worker: parent.Spawned, code: str, clock: Clock) -> dict[str, Any]:
        self._cells += 1
        await clock.timed(self._send(worker, {"code": code, "id": self._cells}))
        calls = received = 0
        while True:
            message: dict[str, Any] = await clock.timed(self._receive(worker))
            match message:
                case {"t": "done", "id": self._cells}:  # another id: an earlier cell had forged its end
                    return message
                case {"t": "call", "id": int(ticket), "op": str(op), "payload": dict(payload)}:
                    calls += 1
                    received += self._decoder.size
                    if calls > self._limits.calls + REFUSALS:
                        raise _Breach(f"{calls} calls in one cell; {self._limits.calls} are allowed")
                    if received > _TRAFFIC * self._limits.frame_bytes:
                        reply = {"error": f"The calls of this cell carry {received} bytes; split it up."}
                    else:
                        reply = await self._answer(op, payload, calls, clock)
                    await clock.timed(self._send(worker, {"id": ticket, **reply}))
                case _:
                    raise _Breach(f"an unexpected message of the fields {sorted(message)[:9]!r:.200}")

    async def _answer(self, op: str, payload: dict[str, Any], calls: int, clock: Clock) -> dict[str, Any]:
        """Do what the cell asked, while only the total clock runs."""
        if calls > self._limits.calls:
            return {"error": f"More than {self._limits.calls} calls in one cell; split the work up."}
        try:
            async with asyncio.timeout_at(clock.deadline) as deadline:
                value = await self._call(op, payload)
        except HostError as exc:
            return {"error": str(exc)}
        except TimeoutError:
            if deadline.expired():
                raise clock.late() from None
            raise
        size = len(pack({"value": value}))
        if size > self._limits.frame_bytes:
            return {
                "error": f"The result is {size} bytes as JSON; at most {self._limits.frame_bytes} can pass."
            }
        return {"value": value}

    async def _send(self, worker: parent.Spawned, message: dict[str, Any]) -> None:
        try:
            await asyncio.get_running_loop().sock_sendall(worker.data, pack(message))
        except (BrokenPipeError, ConnectionResetError):
            raise _Gone from None

    async def _receive(self, worker: parent.Spawned) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        try:
            while (message := self._decoder.next()) is None:
                chunk = await loop.sock_recv(worker.data, 1 << 18)
                if not chunk:
                    raise _Gone
                self._decoder.feed(chunk)
        except FrameError as exc:
            raise _Breach(str(exc)) from None
        except ConnectionResetError:
            raise _Gone from None
        return message

    async def _end(self) -> str:
        """Kill the worker, wait for it, give everything back. Returns its exit status, "" if unknown."""
        worker, self._worker = self._worker, None
        if worker is None:
            return ""
        try:
            if os.getpid() != self._owner:
                return ""
            worker.signal(signal.SIGKILL)
            async with asyncio.timeout(_STATUS_SECONDS):
                return (await asyncio.get_running_loop().sock_recv(worker.status, 64)).decode("ascii")
        except (TimeoutError, OSError):  # the zygote is gone too; its kernel death signal does the rest
            return ""
        finally:
            worker.close()

    def _drop(self) -> None:
        """Kill without waiting, for when the caller itself is being cancelled."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.signal(signal.SIGKILL)
            worker.close()

    def _stopped(self, status: CellStatus, why: str, lost: str) -> CellResult:
        self._lost = why[0].lower() + why[1:]
        error = f"{why}. Its variables are lost: the next cell starts in a fresh interpreter."
        return CellResult(status, stdout=lost, error=error, restarted=bool(lost))

    def _result(self, done: dict[str, Any], lost: str) -> CellResult:
        """Believe a `done` frame as far as the cell could have printed it."""
        limit = self._limits.output_chars + 200
        status: CellStatus = "error" if done.get("status") == "error" else "ok"
        texts, truncated = {}, bool(done.get("truncated"))
        for name in ("stdout", "value", "error", "error_type"):
            text = done.get(name)
            text, shortened = cut(stable(text[: 2 * limit] if isinstance(text, str) else ""), limit, name)
            texts[name], truncated = text, truncated or shortened
        value = texts["value"] if isinstance(done.get("value"), str) else None
        return CellResult(
            status, lost + texts["stdout"], value, texts["error"], texts["error_type"], truncated, bool(lost)
        )


def _ending(status: str) -> str:
    """How a worker ended, in words."""
    if not status:
        return "ended, its exit status unknown"
    code = int(status)
    if code == _EXIT_NO_MEMORY:
        return "ran out of memory"
    if code >= 0:
        return f"ended with exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"was ended by {name}"

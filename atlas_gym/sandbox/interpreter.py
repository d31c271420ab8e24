"""The worker: a Python interpreter that runs cells one after another and can call its host.

Runs inside the forked worker, after the walls are up; standard library only, loaded by path with
builtins of its own, so that cells which replace `len` or `print` break themselves and not the worker.
Nothing it reports is believed beyond what the cell could have printed anyway: the host checks every
frame. Does not know tools: the prelude that the host sends defines what cells see.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import collections
import contextlib
import inspect
import io
import linecache
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, Final

_VALUE: Final = "__atlas_value__"
_BALLAST: Final = 2 << 20
_FIRST_FRAMES, _LAST_FRAMES = 5, 10
EXIT_NO_MEMORY: Final = 71
"""Exit status of a worker that had no memory left to say so."""

_write, _read, _exit = os.write, os.read, os._exit
_format = traceback.format_exception


class HostError(Exception):
    """The host refused a call. Cells can catch it."""


HostError.__module__ = "builtins"


class Channel:
    """The worker's end of the socket: one frame out, one frame back, one thread at a time."""

    def __init__(self, fd: int, frames: types.ModuleType) -> None:
        self._fd = fd
        self._pack: Callable[[dict[str, Any]], bytes] = frames.pack
        self._decoder = frames.Decoder(1 << 31)  # the host is trusted, and keeps its own limit
        self.limit = 0
        self._lock = threading.Lock()
        self._calls = 0
        self._running = False

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        self._send(self._pack(message))

    def _send(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view:
            view = view[_write(self._fd, view) :]

    def receive(self) -> dict[str, Any]:
        """The next message; ends the process when the host is gone."""
        while (message := self._decoder.next()) is None:
            chunk = _read(self._fd, 1 << 16)
            if not chunk:
                _exit(0)
            self._decoder.feed(chunk)
        return dict(message)

    def begin(self) -> None:
        """A cell runs now, and may call out."""
        self._running = True

    def end(self, message: dict[str, Any]) -> None:
        """Report a cell's end. Threads it left behind cannot call out afterwards."""
        with self._lock:
            self._running = False
            self.send(message)

    def call(self, op: str, payload: dict[str, Any]) -> Any:
        """Ask the host to do something for the cell.

        Raises:
            HostError: The host refused, or the request is over the limit.
            TypeError: The payload is not JSON.
        """
        try:
            body = self._pack(payload)
        except (TypeError, ValueError, RecursionError) as exc:
            raise TypeError(
                f"arguments must be JSON values (str, int, float, bool, None, list, dict): {exc}"
            ) from None
        if len(body) > self.limit:
            raise HostError(f"The arguments are {len(body)} bytes as JSON; at most {self.limit} can be sent.")
        with self._lock:
            if not self._running:
                raise HostError("No cell is running: a thread of an earlier cell cannot call out.")
            self._calls += 1
            ticket = self._calls
            self.send({"t": "call", "id": ticket, "op": op, "payload": payload})
            reply = self.receive()
            while reply.get("id") != ticket:  # the reply to a call that a signal handler broke off
                reply = self.receive()
        if "error" in reply:
            raise HostError(reply["error"])
        return reply.get("value")


class Output(io.TextIOBase):
    """`sys.stdout` and `sys.stderr` of all cells: keeps the first characters, counts the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.reset()

    def reset(self) -> None:
        """Forget what was written."""
        self._parts: list[str] = []
        self._left = self._limit
        self._total = 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Keep as much of `text` as the limit leaves."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self._left > 0:
            self._parts.append(text[: self._left])
            self._left -= len(self._parts[-1])
        self._total += len(text)
        return len(text)

    def take(self) -> tuple[str, bool]:
        """What was written since the last time, and whether it was cut."""
        text = "".join(self._parts)
        cut = self._total - len(text)
        self.reset()
        if cut:
            text += f"\n[output cut: {cut} of {cut + len(text)} characters not shown]"
        return text, cut > 0


def _no_input(prompt: object = "") -> str:
    raise EOFError("input() cannot be used: nobody types here. Put the value into the code.")


def _no_exit(code: object = None) -> None:
    raise SystemExit(code)


def _is_cell(filename: str) -> bool:
    return filename.startswith("<cell ")


def _cell_frames(tb: types.TracebackType | None) -> types.TracebackType | None:
    """The same traceback with frames of cells only, and few of them."""
    first: list[types.TracebackType] = []
    last: collections.deque[types.TracebackType] = collections.deque(maxlen=_LAST_FRAMES)
    while tb is not None:
        if _is_cell(tb.tb_frame.f_code.co_filename):
            (first if len(first) < _FIRST_FRAMES else last).append(tb)
        tb = tb.tb_next
    kept: types.TracebackType | None = None
    for entry in reversed([*first, *last]):
        kept = types.TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def _shorten(exc: BaseException | None, seen: set[int]) -> None:
    if exc is None or id(exc) in seen:
        return
    seen.add(id(exc))
    exc.__traceback__ = _cell_frames(exc.__traceback__)
    _shorten(exc.__cause__, seen)
    _shorten(exc.__context__, seen)
    if isinstance(exc, BaseExceptionGroup):
        for inner in exc.exceptions:
            _shorten(inner, seen)


def _explain(exc: BaseException, memory_mb: int) -> str:
    """The error's text as the agent reads it."""
    try:
        _shorten(exc, set())
        text = "".join(_format(type(exc), exc, exc.__traceback__)).rstrip("\n")
    except BaseException as broken:  # noqa: BLE001 - an exception's own __str__ may do anything
        text = f"{type(exc).__name__} (its text cannot be shown: {type(broken).__name__})"
    if isinstance(exc, MemoryError):
        text += f"\nCells may use {memory_mb} MB: work on smaller pieces, or `del` what is no longer needed."
    elif isinstance(exc, SystemExit):
        text += "\nexit() ends only this cell: the interpreter and its variables stay."
    return text


class Interpreter:
    """One persistent namespace, and the cells that ran in it."""

    def __init__(self, channel: Channel, setup: dict[str, Any]) -> None:
        self._channel = channel
        self._memory_mb: int = setup["memory_mb"]
        self._limit: int = setup["output_chars"]
        self._ballast = bytearray(_BALLAST)
        self._count = 0
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        self._names: dict[str, Any] = vars(main)
        self._names["__builtins__"] = builtins
        self._output = Output(self._limit)
        for name, value in (("input", _no_input), ("exit", _no_exit), ("quit", _no_exit)):
            setattr(builtins, name, value)
        random.seed(setup["seed"])
        self._prelude(setup["prelude"])

    def _prelude(self, source: str) -> None:
        scaffold = types.ModuleType("scaffold")
        space = vars(scaffold)
        space.update(host_call=self._channel.call, HostError=HostError, __name__="builtins")
        exec(compile(source, "<scaffold>", "exec", dont_inherit=True), space)
        self._names.update({name: space[name] for name in space.get("__all__", ())})
        self._names.setdefault("HostError", HostError)

    def _execute(self, code: str, filename: str) -> Any:
        linecache.cache[filename] = (len(code), None, code.splitlines(keepends=True), filename)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(code, filename, "exec", flags | ast.PyCF_ONLY_AST, dont_inherit=True)
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = tree.body[-1]
            target = ast.Name(_VALUE, ast.Store())
            tree.body[-1] = ast.copy_location(ast.Assign([target], last.value), last)
            ast.fix_missing_locations(tree)
        program = compile(tree, filename, "exec", flags, dont_inherit=True)
        outcome = eval(program, self._names)
        if program.co_flags & inspect.CO_COROUTINE:
            asyncio.run(outcome)
        value = self._names.pop(_VALUE, None)
        if value is not None:
            self._names["_"] = value
        return value

    def run(self, code: str) -> dict[str, Any]:
        """Run one cell and say what it did, as the body of a `done` frame."""
        self._count += 1
        if not self._ballast:
            with contextlib.suppress(MemoryError):
                self._ballast = bytearray(_BALLAST)
        sys.stdout = sys.stderr = self._output
        sys.stdin = io.StringIO()
        done: dict[str, Any] = {"t": "done", "status": "ok", "value": None, "error": "", "error_type": ""}
        try:
            value = self._execute(code, f"<cell {self._count}>")
            if value is not None:
                done["value"] = repr(value)
        except BaseException as exc:  # noqa: BLE001 - whatever a cell raises is its result
            self._names.pop(_VALUE, None)
            if isinstance(exc, MemoryError):
                self._ballast = bytearray()
                traceback.clear_frames(exc.__traceback__)
            done.update(status="error", error=_explain(exc, self._memory_mb), error_type=type(exc).__name__)
        done["stdout"], cut = self._output.take()
        for field in ("value", "error"):
            text = done[field]
            if text and len(text) > self._limit:
                rest = len(text) - self._limit
                done[field] = (
                    f"{text[: self._limit]}\n[{field} cut: {rest} of {len(text)} characters not shown]"
                )
                cut = True
        done["truncated"] = cut
        return done


def serve(fd: int, frames: types.ModuleType) -> None:
    """Serve cells on `fd` until the host closes it. Never returns."""
    channel = Channel(fd, frames)
    setup = channel.receive()
    channel.limit = setup["frame_bytes"]
    try:
        interpreter = Interpreter(channel, setup)
    except BaseException as exc:  # noqa: BLE001 - the host must hear why no cell can run
        channel.send({"t": "failed", "error": "".join(_format(exc))})
        _exit(1)
    channel.send({"t": "ready"})
    while True:
        cell = channel.receive()
        channel.begin()
        try:
            channel.end(interpreter.run(cell["code"]) | {"id": cell["id"]})
        except MemoryError:
            _exit(EXIT_NO_MEMORY)

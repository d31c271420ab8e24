"""The worker: a Python interpreter that runs cells one after another and can call its host.

Runs inside the forked worker, after the walls are up; standard library only, loaded by path with
builtins of its own, so that cells which replace `len` or `print` break themselves and not the worker.
Nothing it reports is believed beyond what the cell could have printed anyway: the host checks every
frame. Does not know tools: the prelude that the host sends defines what cells see.
"""

from __future__ import annotations

import _sitebuiltins
import ast
import asyncio
import builtins
import contextlib
import inspect
import linecache
import os
import random
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any, Final, NamedTuple

_VALUE: Final = "__atlas_value__"
_BALLAST: Final = 2 << 20
_LEAST_RECURSION: Final = 500
"""A cell may lower the limit of recursion, but not so far that its own end cannot be told."""
EXIT_NO_MEMORY: Final = 71
"""Exit status of a worker that had no memory left to say so."""

_write, _read, _exit = os.write, os.read, os._exit
_settrace, _setprofile = sys.settrace, sys.setprofile
_recursion, _set_recursion = sys.getrecursionlimit, sys.setrecursionlimit


class HostError(Exception):
    """The host refused a call. Cells can catch it."""


HostError.__module__ = "builtins"


class Channel:
    """The worker's end of the socket: one frame out, one frame back, one thread at a time."""

    def __init__(self, fd: int, frames: types.ModuleType) -> None:
        self._fd = fd
        self._pack: Callable[[dict[str, Any]], bytes] = frames.pack
        self._too_deep: Callable[[Any, bytes], bool] = frames.too_deep
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
        if self._too_deep([[payload]], body):  # in the message, it stands two levels deeper
            raise TypeError("arguments must not nest so deeply: send text or a flatter value")
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


class Tools(NamedTuple):
    """The worker's other modules, each loaded with builtins of its own."""

    frames: types.ModuleType
    console: types.ModuleType
    report: types.ModuleType


class Interpreter:
    """One persistent namespace, and the cells that ran in it."""

    def __init__(self, channel: Channel, setup: dict[str, Any], tools: Tools) -> None:
        self._channel = channel
        self._setup = setup
        self._limit: int = setup["output_chars"]
        self._ballast = bytearray(_BALLAST)
        self._count = 0
        self._report = tools.report
        self._attach = tools.console.attach
        self._output = tools.console.Output(self._limit)
        main = types.ModuleType("__main__")
        sys.modules["__main__"] = main
        self._names: dict[str, Any] = vars(main)
        self._names["__builtins__"] = builtins
        vars(builtins).update(
            input=tools.console.no_input,
            exit=tools.console.no_exit,
            quit=tools.console.no_exit,
            help=_sitebuiltins._Helper(),
        )
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
            vars(builtins)["_"] = value  # where a prompt keeps it: a cell's own `_` comes first
        return value

    def _attempt(self, code: str) -> dict[str, Any]:
        """Status, value, error and error_type of a cell."""
        value: str | None = None
        try:
            shown = self._execute(code, f"<cell {self._count}>")
            if shown is not None:
                value = self._report.plain(repr(shown))
        except BaseException as exc:  # noqa: BLE001 - whatever a cell raises is its result
            _settrace(None)
            self._names.pop(_VALUE, None)
            if type(exc) is MemoryError:
                self._ballast = bytearray()
                with contextlib.suppress(BaseException):  # closes generators, which may do anything
                    traceback.clear_frames(exc.__traceback__)
            if _recursion() < _LEAST_RECURSION:
                _set_recursion(_LEAST_RECURSION)
            error, error_type = self._report.explain(exc, self._setup)
            return {"status": "error", "value": None, "error": error, "error_type": error_type}
        return {"status": "ok", "value": value, "error": "", "error_type": ""}

    def run(self, code: str) -> dict[str, Any]:
        """Run one cell and say what it did, as the body of a `done` frame."""
        self._count += 1
        if not self._ballast:
            with contextlib.suppress(MemoryError):
                self._ballast = bytearray(_BALLAST)
        self._attach(self._output)
        done: dict[str, Any] = {"t": "done", **self._attempt(code)}
        _settrace(None)
        _setprofile(None)
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


def serve(fd: int, tools: Tools) -> None:
    """Serve cells on `fd` until the host closes it. Never returns."""
    channel = Channel(fd, tools.frames)
    setup = channel.receive()
    channel.limit = setup["frame_bytes"]
    try:
        interpreter = Interpreter(channel, setup, tools)
    except BaseException as exc:  # noqa: BLE001 - the host must hear why no cell can run
        channel.send({"t": "failed", "error": "".join(traceback.format_exception(exc))})
        _exit(1)
    channel.send({"t": "ready"})
    while True:
        cell = channel.receive()
        channel.begin()
        try:
            channel.end(interpreter.run(cell["code"]) | {"id": cell["id"]})
        except MemoryError:
            _exit(EXIT_NO_MEMORY)

"""Cells in plain CPython with the scaffold's prelude and no sandbox: what every sandbox must equal.

Run as `python reference.py <folder of cells>`; prints, for each file, [output, value, error type] of each
cell as JSON. A fork per file: cells change the interpreter they run in.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import importlib.util
import inspect
import io
import json
import os
import random
import sys
import types
from pathlib import Path
from typing import Any

from atlas_gym.toolspace.preludes import PRELUDE


def _conftest() -> Any:
    spec = importlib.util.spec_from_file_location("conftest", Path(__file__).with_name("conftest.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CONFTEST = _conftest()


def scaffold_names() -> dict[str, Any]:
    """What a cell sees of the scaffold, with a host that answers within this process."""
    host = CONFTEST.new_host()

    def host_call(op: str, payload: dict[str, Any]) -> Any:
        try:
            host(op, json.loads(json.dumps(payload))).send(None)
        except StopIteration as done:  # the fake servers never wait
            return json.loads(json.dumps(done.value))
        raise AssertionError("a fake server waited")

    space: dict[str, Any] = {"host_call": host_call, "HostError": RuntimeError, "__name__": "builtins"}
    exec(compile(PRELUDE, "<scaffold>", "exec", dont_inherit=True), space)
    return {name: space[name] for name in space["__all__"]}


def run(cell: str, names: dict[str, Any], stream: io.TextIOWrapper) -> tuple[str, str | None, str]:
    """One cell, as a notebook would run it."""
    names.pop("_value", None)
    value, error = None, ""
    sys.stdout = sys.stderr = sys.__stdout__ = stream  # type: ignore[misc]
    sys.stdin = io.StringIO()
    try:
        tree = ast.parse(cell)
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = tree.body[-1]
            assign = ast.Assign([ast.Name("_value", ast.Store())], last.value)
            tree.body[-1] = ast.fix_missing_locations(ast.copy_location(assign, last))
        program = compile(tree, "<reference>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        outcome = eval(program, names)
        if program.co_flags & inspect.CO_COROUTINE:
            asyncio.run(outcome)
        shown = names.pop("_value", None)
        value = None if shown is None else repr(shown)
    except BaseException as exc:  # noqa: BLE001 - whatever the cell raises is what is compared
        error = type(exc).__name__
    stream.flush()
    raw = stream.buffer
    assert isinstance(raw, io.BytesIO)
    printed = raw.getvalue().decode()
    raw.seek(0)
    raw.truncate()
    return printed, value, error


def run_file(file: Path) -> list[tuple[str, str | None, str]]:
    """All cells of one file in one namespace."""
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    names = vars(main)
    names |= {**scaffold_names(), "__builtins__": builtins}
    random.seed(0)
    sys.argv[:] = [""]
    stream = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    return [run(cell, names, stream) for cell in file.read_text(encoding="utf-8").split("# %%\n")]


def forked(file: Path) -> Any:
    """`run_file` in a child, so that nothing is left of it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            with os.fdopen(writing, "w") as out:
                json.dump(run_file(file), out)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as found:
        text = found.read()
    os.waitpid(pid, 0)
    return json.loads(text)


if __name__ == "__main__":
    json.dump({file.stem: forked(file) for file in sorted(Path(sys.argv[1]).glob("*.py"))}, sys.stdout)

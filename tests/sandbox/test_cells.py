"""The 65 realistic cells on every kind of sandbox, against plain CPython; the 32 hostile ones, contained."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.sandbox import KINDS, CellLimits, CellResult, available, open_sandbox
from atlas_gym.sandbox.parent import Place, parent
from atlas_gym.toolspace.scaffold import Host, prelude

CELLS = Path(__file__).parents[1] / "cells"
PTC = sorted((CELLS / "ptc").glob("*.py"))
HOSTILE = sorted((CELLS / "hostile").glob("*.py"))
EACH = [pytest.param(k, marks=pytest.mark.docker) if k == "container" else k for k in KINDS]


class Direct:
    """The reference's MCPServer: the functions themselves."""

    def __init__(self, tools: dict[str, Callable[..., Any]]) -> None:
        self.__dict__.update(tools)


def reference(
    file: Path, servers: dict[str, dict[str, Callable[..., Any]]]
) -> list[tuple[str, str | None, str]]:
    """(stdout, value, error type) of each cell in plain CPython, without any sandbox."""
    main = types.ModuleType("__main__")
    names = vars(main) | {"MCPServer": lambda name: Direct(servers[name])}
    found = []
    for cell in file.read_text().split("# %%\n"):
        tree = ast.parse(cell)
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = tree.body[-1]
            tree.body[-1] = ast.fix_missing_locations(
                ast.copy_location(ast.Assign([ast.Name("_value", ast.Store())], last.value), last)
            )
        program = compile(tree, file.name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        names["_value"], error = None, ""
        with contextlib.redirect_stdout(io.StringIO()) as out:
            try:
                outcome = eval(program, names)
                if program.co_flags & inspect.CO_COROUTINE:
                    asyncio.run(outcome)
            except Exception as exc:  # noqa: BLE001 - whatever the cell raises is what is compared
                error = type(exc).__name__
        value = names["_value"]
        found.append((out.getvalue(), None if value is None else repr(value), error))
    return found


async def behaves(kind: str, source: str, host: Host) -> list[CellResult]:
    sandbox = await open_sandbox(kind, call=host, prelude=prelude(kind))
    try:
        return [await sandbox.run(cell) for cell in source.split("# %%\n")]
    finally:
        await sandbox.close()


@pytest.mark.parametrize("file", PTC, ids=lambda f: f.stem)
@pytest.mark.parametrize("kind", EACH)
def test_cells_behave_as_in_cpython(kind: str, file: Path, scaffold: Any) -> None:
    if available(kind):
        pytest.skip(available(kind))
    expected = reference(file, scaffold.servers)
    results = asyncio.run(behaves(kind, file.read_text(), scaffold.host()))
    assert [(r.stdout, r.value, r.error_type) for r in results] == expected


ENDINGS = {
    "15_infinite_loop_catch_all": "timeout",
    "19_regex_backtrack": "timeout",
    "27_ctypes_segfault": "died",
    "30_exit_hard": "died",
    "32_fd_tamper": "breach",
    "41_signal_and_atexit": "timeout",
}
"""How `sealed` ends those hostile cells that do not end by themselves, where that is certain."""

REACHED = re.compile(
    r"LEAK|READ|WROTE|CONNECTED|SENT|KILLED|FORKED|ALLOCATED|IMPORTED|CALLED|EXEC (rc )?0\b|\] True"
)
"""What a hostile cell prints when it got what it wanted."""

MARKS = [
    Path(p)
    for p in (
        "/home/pwned",
        "/var/tmp/pwned",
        "/dev/shm/pwned",
        "/pwned",
        "pwned",
        "/var/tmp/pwned_sys",
        "/var/tmp/pwned_sub",
        "/var/tmp/pwned_posix",
        "/var/tmp/pwned_atexit",
    )
]


async def attack(
    kind: str, source: str, host: Host, next_host: Host
) -> tuple[CellResult, CellResult, CellResult]:
    limits = CellLimits(seconds=1, total_seconds=10)
    sandbox = await open_sandbox(kind, call=host, prelude=prelude(kind), limits=limits)
    result = await sandbox.run(source)
    same = await sandbox.run("6 * 7")
    await sandbox.close()
    following = await open_sandbox(kind, call=next_host, prelude=prelude(kind), limits=limits)
    after = await following.run("MCPServer('Math').add(a=40, b=2)")
    await following.close()
    return result, same, after


@pytest.mark.parametrize("file", HOSTILE, ids=lambda f: f.stem)
@pytest.mark.parametrize("kind", ["sealed", pytest.param("container", marks=pytest.mark.docker), "monty"])
def test_hostile_cells_are_contained(
    kind: str, file: Path, scaffold: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if available(kind):
        pytest.skip(available(kind))
    monkeypatch.setenv("HOST_SECRET", "HOST_SECRET=hunter2")
    place: Place = "container" if kind == "container" else "process"
    before = parent(place).pid if kind != "monty" else 0
    result, same, after = asyncio.run(attack(kind, file.read_text(), scaffold.host(), scaffold.host()))
    assert not REACHED.search(result.stdout), result
    assert not [mark for mark in MARKS if mark.exists()]
    assert same.value == "42"
    assert after.value == "42"
    if kind != "monty":
        assert result.status == ENDINGS.get(file.stem, result.status), result
        assert parent(place).pid == before


def test_all_cells_are_there() -> None:
    assert (len(PTC), len(HOSTILE)) == (65, 32)

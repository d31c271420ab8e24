"""More realistic cells against plain CPython, more hostile ones contained; the first are in test_cells."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.sandbox import CellLimits, CellResult, available, open_sandbox
from atlas_gym.sandbox.base import cut, stable
from atlas_gym.sandbox.parent import Place, parent
from atlas_gym.toolspace.scaffold import Host, prelude
from atlas_gym.wire.codec import encode

CELLS = Path(__file__).parents[1] / "cells"
PTC = sorted((CELLS / "ptc_more").glob("*.py"))
HOSTILE = sorted((CELLS / "hostile_more").glob("*.py"))
LIMIT = CellLimits().output_chars
CONTAINER = pytest.param("container", marks=pytest.mark.docker)

pytestmark = pytest.mark.skipif(bool(available("sealed")), reason=available("sealed") or "available")


@pytest.fixture(scope="session")
def cpython() -> dict[str, Any]:
    """What plain CPython does with each file, in the interpreter's fixed surroundings."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("reference.py")), str(CELLS / "ptc_more")],
        env={**os.environ, "PYTHONHASHSEED": "0", "TZ": "UTC0", "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(printed: str, value: str | None) -> tuple[str, str | None]:
    """What a sandbox makes of output and value: nothing that differs between runs, and not too long."""
    return (
        cut(stable(printed), LIMIT, "output")[0],
        None if value is None else cut(stable(value), LIMIT, "value")[0],
    )


@pytest.mark.parametrize("file", PTC, ids=lambda f: f.stem)
@pytest.mark.parametrize("kind", ["sealed", CONTAINER, "local"])
def test_cells_behave_as_in_cpython(kind: str, file: Path, scaffold: Any, cpython: dict[str, Any]) -> None:
    cells = file.read_text(encoding="utf-8").split("# %%\n")

    async def main() -> list[CellResult]:
        sandbox = await open_sandbox(kind, call=scaffold.host(), prelude=prelude(kind))
        try:
            return [await sandbox.run(cell) for cell in cells]
        finally:
            await sandbox.close()

    expected = [(*shown(printed, value), error) for printed, value, error in cpython[file.stem]]
    assert [(r.stdout, r.value, r.error_type) for r in asyncio.run(main())] == expected


ENDINGS = {
    "06_forged_deep_call": "breach",
    "13_abort": "died",
    "14_block_signals": "timeout",
    "30_exception_str_loops": "timeout",
    "48_small_threads": "breach",
    "49_raw_clone_threads": "breach",
    "51_fill_the_socket": "breach",
}
"""How those cells end that do not end by themselves, where that is certain."""

REACHED = re.compile(r"\b(LEAK|READ|WROTE|CONNECTED|SENT|KILLED|FORKED|ALLOCATED|IMPORTED|CALLED)\b")
"""What a hostile cell prints when it got what it wanted."""


async def attack(
    kind: str, code: str, host: Host, next_host: Host
) -> tuple[CellResult, list[CellResult], CellResult]:
    limits = CellLimits(seconds=1, total_seconds=10)
    sandbox = await open_sandbox(kind, call=host, prelude=prelude(kind), limits=limits)
    host.begin()
    result = await sandbox.run(code)
    for record in host.results:
        encode(record.call.arguments)
    assert host.answer is None or host.answer.encode().decode() == host.answer
    # A cell that forged its end is still running, or left threads at work: the next one may pay for it.
    same = [await sandbox.run("6 * 7")]
    if same[0].value != "42":
        same.append(await sandbox.run("6 * 7"))
    await sandbox.close()
    following = await open_sandbox(kind, call=next_host, prelude=prelude(kind), limits=limits)
    next_host.begin()
    after = await following.run("MCPServer('Math').add(a=40, b=2)")
    await following.close()
    return result, same, after


@pytest.mark.parametrize("file", HOSTILE, ids=lambda f: f.stem)
@pytest.mark.parametrize("kind", ["sealed", CONTAINER])
def test_hostile_cells_are_contained(kind: str, file: Path, scaffold: Any) -> None:
    place: Place = "container" if kind == "container" else "process"
    before, next_host = parent(place).pid, scaffold.host()
    code = file.read_text(encoding="utf-8")
    result, same, after = asyncio.run(attack(kind, code, scaffold.host(), next_host))
    assert not REACHED.search(result.stdout + result.error), result
    assert same[-1].value == "42", same
    assert (after.value, len(next_host.results), next_host.answer) == ("42", 1, None)
    assert result.status == ENDINGS.get(file.stem, result.status), result
    assert parent(place).pid == before


def test_a_next_step_ends_the_error() -> None:
    cells = {
        "import numpy_is_not_here": "Only Python's standard library",
        "open('/workspace/a.csv')": "servers' tools",
        "import socket; socket.create_connection(('127.0.0.1', 80))": "servers' tools",
        "import urllib.request; urllib.request.urlopen('http://example.org')": "servers' tools",
        "import subprocess; subprocess.run(['ls'])": "servers' tools",
        "'x' * 10**9": "smaller pieces",
        "exit()": "ends only this cell",
    }

    async def main() -> None:
        async def nothing(op: str, payload: dict[str, Any]) -> None:
            return None

        sandbox = await open_sandbox("sealed", call=nothing)
        for code, hint in cells.items():
            result = await sandbox.run(code)
            assert hint in result.error.splitlines()[-1], result
        await sandbox.close()

    asyncio.run(main())

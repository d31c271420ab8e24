"""One peer in its own environment: told over a pipe to open, call and close; measures itself.

Run by `benchmarks.peers` with the Python of the peer's environment, as `driver.py WAYS_FILE WAY`. Only the
standard library and `cost.py`; what is timed is the peer's own call, not this pipe.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

Json = dict[str, Any]


def load(path: Path) -> ModuleType:
    """A module by its path: nothing of ours is on the peers' module path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cost = load(Path(__file__).resolve().parent.parent / "cost.py")


class Driver:
    """Carries out commands with one way of calling tools.

    Ways whose methods are coroutines run in one task on one loop; the others run outside of any loop.
    """

    def __init__(self, way: Any) -> None:
        self._way = way

    async def _await(self, value: Any) -> Any:
        return await value if inspect.isawaitable(value) else value

    async def _call(self, asked: list[Any]) -> float:
        tool, arguments, expected = asked
        began = time.perf_counter()
        answer = self._way.call(tool, arguments)
        if inspect.isawaitable(answer):
            answer = await answer
        seconds = time.perf_counter() - began
        if expected not in answer:
            raise RuntimeError(f"{tool} answered {answer[:300]!r} instead of something with {expected!r}")
        return seconds

    async def open(self, start: Json, first: list[Any]) -> Json:
        """Open and make the first call."""
        before, began = self._cpu(), time.perf_counter()
        await self._await(self._way.open(start))
        opened = time.perf_counter()
        await self._call(first)
        answered = time.perf_counter()
        return {"open": opened - began, "answered": answered - began, **self._spent(before)}

    async def calls(self, calls: list[list[Any]]) -> Json:
        """Make calls, one after the other."""
        before = self._cpu()
        wall = [await self._call(asked) for asked in calls]
        return {"wall": wall, **self._spent(before)}

    async def close(self) -> Json:
        """End the session."""
        before, began = self._cpu(), time.perf_counter()
        await self._await(self._way.close())
        return {"closed": time.perf_counter() - began, **self._spent(before)}

    async def end(self) -> None:
        """What a way wants to do at its very end."""
        if hasattr(self._way, "end"):
            await self._await(self._way.end())

    async def memory(self) -> Json:
        """MiB of this process and of what it started."""
        below = cost.descendants(os.getpid())
        return {
            "client": cost.memory([os.getpid()]),
            "servers": cost.memory(below),
            "processes": len(below),
        }

    def _cpu(self) -> tuple[float, float]:
        return time.process_time(), cost.children_cpu(os.getpid())

    def _spent(self, before: tuple[float, float]) -> Json:
        client, servers = self._cpu()
        return {"client_cpu": client - before[0], "server_cpu": servers - before[1]}


def step(coro: Any) -> Any:
    """Run a coroutine that never really waits, outside of any loop."""
    try:
        coro.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a way without coroutines waited")


async def serve(driver: Driver, answer: Callable[[Json], None]) -> None:
    """Obey until the pipe ends."""
    for line in sys.stdin:
        command = json.loads(line)
        method = getattr(driver, command.pop("do"))
        try:
            answer(await method(**command))
        except Exception as exc:  # noqa: BLE001 - the report says what a peer could not do
            traceback.print_exc()
            answer({"error": f"{type(exc).__name__}: {exc}"})
    await driver.end()


def main() -> None:
    """Load the way, say how long that took, obey."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a peer that prints may not speak in our name

    def answer(value: Json) -> None:
        out.write(json.dumps(value) + "\n")
        out.flush()

    began, cpu = time.perf_counter(), time.process_time()
    try:
        way = load(Path(sys.argv[1])).WAYS[sys.argv[2]]()
    except Exception as exc:  # noqa: BLE001 - the report says why a peer cannot run
        traceback.print_exc()
        answer({"error": f"{type(exc).__name__}: {exc}"})
        return
    answer({"imported": time.perf_counter() - began, "cpu": time.process_time() - cpu})
    work = serve(Driver(way), answer)
    if inspect.iscoroutinefunction(way.call):
        asyncio.run(work)
    else:
        step(work)


if __name__ == "__main__":
    main()

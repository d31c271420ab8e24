"""How many episodes with servers of their own fit into this machine, and what each of them takes.

Run: python -m benchmarks.capacity [--levels 16 32 64 128 256] [--max-memory 12] [--leave 4]
                                   [--mode respawn prefork] [--load python node]
Episodes are opened up to a level, all stay open, every one makes calls; then the next level. Stops by itself
before the memory bound, at the first failure, or when a level takes too long. Writes
benchmarks/results/capacity.json.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.env.world import World
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task.model import Task
from atlas_gym.task.setup import lay_out
from atlas_gym.types import ToolCall
from atlas_gym.wire.sessions import Sessions
from benchmarks import cost, record

MODES: Final = {"respawn": False, "prefork": True}
SQL: Final = ToolCall("mcp-server-sqlite", "list_tables", {})
CALLS: Final[dict[str, tuple[ToolCall, ...]]] = {
    "python": (SQL, ToolCall("mockworld-email", "list_messages", {})),
    "node": (SQL, ToolCall("server-filesystem", "list_directory", {"path": "/workspace"})),
}
"""Load -> one call per server, as often as an episode makes calls."""
OPENING: Final = 8
"""Episodes that are being opened at the same time."""
ROUNDS: Final = 3
"""Calls of every server in one measurement."""
ALONE: Final = 16
"""Episodes that are asked one at a time."""
IDLE: Final = 3.0
"""Seconds in which nobody calls."""
CALL_SECONDS: Final = 120.0


@dataclass
class Load:
    """What every episode is."""

    task: Task
    installations: dict[str, Installation]
    calls: tuple[ToolCall, ...]


class Bound(Exception):
    """The memory bound was reached, or a level took too long."""


class Limits:
    """Where to stop."""

    def __init__(self, max_gib: float, leave_gib: float, seconds: float) -> None:
        self._floor = max(cost.available() - max_gib * 1024, leave_gib * 1024)
        self.seconds = seconds

    def room(self) -> float:
        """MiB that may still be used."""
        return cost.available() - self._floor


class Episode:
    """One open episode."""

    def __init__(self, load: Load, runtime: ProcessRuntime) -> None:
        self._load = load
        self._runtime = runtime
        self._stack = AsyncExitStack()
        self.sessions: Sessions | None = None

    async def open(self) -> float:
        """Lay out, start all servers, make one call of each. Returns seconds."""
        began = time.perf_counter()
        workspace = Workspace.create("bench")
        self._stack.callback(workspace.close)
        lay_out(self._load.task.setup, workspace.files, workspace.state)
        self.sessions = Sessions(self._runtime, self._load.installations, workspace)
        self._stack.push_async_callback(self.sessions.close)
        for call in self._load.calls:
            await self.call(call)
        return time.perf_counter() - began

    async def call(self, call: ToolCall) -> float:
        """One call. Returns seconds."""
        assert self.sessions is not None
        began = time.perf_counter()
        result = await self.sessions.call(call, seconds=CALL_SECONDS)
        if result.outcome != "ok":
            raise RuntimeError(
                f"{call.server}.{call.tool}: {result.outcome} {result.text[:300]} {self.sessions.lost[:600]}"
            )
        return time.perf_counter() - began

    async def rounds(self) -> list[float]:
        """All calls, `ROUNDS` times."""
        return [await self.call(call) for _ in range(ROUNDS) for call in self._load.calls]

    async def close(self) -> None:
        """End servers and workspace."""
        await self._stack.aclose()


async def grow(
    episodes: list[Episode], level: int, load: Load, runtime: ProcessRuntime, limits: Limits
) -> float:
    """Open episodes until there are `level`. Returns seconds.

    Raises:
        Bound: They do not fit; those that are open stay.
    """
    began = time.perf_counter()
    missing = iter(range(level - len(episodes)))
    stopped = ""

    async def open_some() -> None:
        nonlocal stopped
        for _ in missing:
            if stopped:
                return
            if limits.room() < 0:
                stopped = "the memory bound is reached"
                return
            if time.perf_counter() - began > limits.seconds:
                stopped = f"opening took more than {limits.seconds:.0f} s"
                return
            episode = Episode(load, runtime)
            try:
                await episode.open()
            except BaseException as exc:
                stopped = f"{type(exc).__name__}: {exc}"
                await episode.close()
                raise
            episodes.append(episode)

    results = await asyncio.gather(*(open_some() for _ in range(OPENING)), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    if stopped:
        raise Bound(stopped)
    return time.perf_counter() - began


async def look(episodes: list[Episode], before: dict[str, float], hosts: list[int]) -> dict[str, Any]:
    """Memory and latency with all of these open."""
    own, count = os.getpid(), len(episodes)
    below = cost.descendants(own)
    servers = cost.memory(p for p in below if p not in hosts)
    parents = cost.memory(hosts)
    mine = cost.memory([own])
    since, idle = time.perf_counter(), cost.children_cpu(own)
    await asyncio.sleep(IDLE)
    idle = (cost.children_cpu(own) - idle) / (time.perf_counter() - since)
    alone = [seconds for episode in episodes[:ALONE] for seconds in await episode.rounds()]
    began = time.perf_counter()
    cpu = cost.tree_cpu(own)
    together = [s for part in await asyncio.gather(*(e.rounds() for e in episodes)) for s in part]
    took = time.perf_counter() - began
    return {
        "episodes": count,
        "processes": len(below),
        "pss_mib_per_episode": round(servers["pss"] / count, 2),
        "private_mib_per_episode": round(servers["private"] / count, 2),
        "parents_mib": parents,
        "owner_mib_per_episode": round((mine["private"] - before["private"]) / count, 3),
        "machine_mib_per_episode": round((before["available"] - cost.available()) / count, 2),
        "total_gib": round((servers["pss"] + parents["pss"] + mine["pss"]) / 1024, 2),
        "idle_cpu_percent": round(idle * 100, 1),
        "call_alone": record.spread(alone),
        "call_all_at_once": record.spread(together),
        "calls_per_second_all_at_once": round(len(together) / took, 1),
        "cpu_us_per_call_all_at_once": round((cost.tree_cpu(own) - cpu) / len(together) * 1e6, 1),
    }


def parents(runtime: ProcessRuntime) -> list[int]:
    """Warmed parents."""
    return [host.pid for host in runtime.hosts.hosts()] if runtime.hosts else []


async def ramp(mode: str, load: Load, levels: Sequence[int], limits: Limits) -> dict[str, Any]:
    """Level after level, until one does not fit."""
    runtime = ProcessRuntime(prefork=MODES[mode])
    episodes: list[Episode] = []
    found: list[dict[str, Any]] = []
    stopped = ""
    before = {**cost.memory([os.getpid()]), "available": cost.available()}
    try:
        for level in levels:
            try:
                expected = found[-1]["pss_mib_per_episode"] * (level - len(episodes)) if found else 0.0
                fits = expected < limits.room()
                aim = level if fits else len(episodes) + int(limits.room() / found[-1]["pss_mib_per_episode"])
                seconds = await grow(episodes, aim, load, runtime, limits)
                found.append(
                    {"open_seconds": round(seconds, 1), **await look(episodes, before, parents(runtime))}
                )
                show_level(mode, found[-1])
                if not fits:
                    raise Bound(f"{level} episodes would not fit into the memory bound")
            except Exception as exc:  # noqa: BLE001 - where it ends is the result
                stopped = f"at {len(episodes)} of {level} episodes: {type(exc).__name__}: {exc}"
                print(stopped, flush=True)
                break
    finally:
        began = time.perf_counter()
        await asyncio.gather(*(episode.close() for episode in episodes))
        closing = time.perf_counter() - began
        await runtime.aclose()
    left = len(cost.descendants(os.getpid()))
    return {"levels": found, "stopped": stopped, "close_seconds": round(closing, 2), "processes_left": left}


def show_level(mode: str, row: dict[str, Any]) -> None:
    """Print one line of the table."""
    alone, together = row["call_alone"], row["call_all_at_once"]
    print(
        f"| {mode} | {row['episodes']} | {row['open_seconds']} | {row['pss_mib_per_episode']} "
        f"| {row['private_mib_per_episode']} | {row['parents_mib']['pss']:.0f} "
        f"| {row['machine_mib_per_episode']} | {row['total_gib']} | {row['idle_cpu_percent']} "
        f"| {alone['p50_us'] / 1e3:.1f} ({alone['p95_us'] / 1e3:.1f}) "
        f"| {together['p50_us'] / 1e3:.0f} ({together['p95_us'] / 1e3:.0f}) "
        f"| {row['calls_per_second_all_at_once']} |",
        flush=True,
    )


def loads(names: Sequence[str], world: World) -> dict[str, Load]:
    """Every load with its task: one that uses its first servers; more servers see the same workspace."""
    found = {}
    for name in names:
        calls = CALLS[name]
        servers = {call.server for call in calls}
        tasks = [t for t in world.suite.tasks if set(t.servers) <= servers and SQL.server in t.servers]
        task = max(tasks, key=lambda t: len(t.servers))
        world.toolset(sorted(servers))
        found[name] = Load(task, {server: world.installation(server) for server in servers}, calls)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--levels", type=int, nargs="*", default=[16, 32, 64, 128, 256])
    parser.add_argument("--max-memory", type=float, default=12.0, help="GiB that all of it may take")
    parser.add_argument("--leave", type=float, default=4.0, help="GiB that stay free in any case")
    parser.add_argument("--level-seconds", type=float, default=420.0)
    parser.add_argument("--mode", nargs="*", choices=MODES, default=["prefork", "respawn"])
    parser.add_argument("--load", nargs="*", choices=CALLS, default=list(CALLS))
    given = parser.parse_args(arguments)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    results: dict[str, dict[str, Any]] = {}
    for name, load in loads(given.load, AtlasEnv().world).items():
        print(f"\n**{name}: {', '.join(load.installations)}**\n")
        print(
            "| mode | episodes | opened in s | PSS MiB per episode | private | parents MiB "
            "| machine MiB per episode | all GiB | idle CPU % | call alone p50 (p95) ms | all at once ms "
            "| calls/s |"
        )
        print("|" + " --- |" * 12, flush=True)
        for mode in given.mode:
            limits = Limits(given.max_memory, given.leave, given.level_seconds)
            results.setdefault(name, {})[mode] = asyncio.run(ramp(mode, load, sorted(given.levels), limits))
    record.write(
        "capacity",
        {
            "command": " ".join(["python -m benchmarks.capacity", *(arguments or sys.argv[1:])]),
            "load_at_end": os.getloadavg()[0],
            "open_files_limit": {"before": soft, "raised_to": hard},
            "calls": {name: [f"{c.server}.{c.tool}" for c in CALLS[name]] for name in results},
            "formula": FORMULA,
            "results": results,
        },
        seed=0,
    )


FORMULA: Final = {
    "pss": "of every process below this one but warmed parents; shared pages divided among their users",
    "private": "the same processes' pages that nobody shares",
    "parents_mib": "warmed parents, once per server",
    "owner_mib_per_episode": "growth of this process's private memory",
    "machine_mib_per_episode": "fall of the machine's available memory; other load of it included",
    "idle_cpu_percent": "of one processor, used by everything below this process while nobody calls",
    "call_alone": f"one call at a time, in up to {ALONE} episodes, while all others are open",
    "call_all_at_once": "every episode calls at the same time, one call after the other in each",
}


if __name__ == "__main__":
    main()

"""From `reset` to the first answered call on a clean server: what it takes and what it costs, way by way.

Run: python -m benchmarks.reset [--rounds 20] [--server NAME ...] [--only WAY ...] [--phases]
All ways take turns in every round, in another order each time. CPU is that of the whole tree of processes,
ended ones included, from the reset until everything is put away and quiet, refilling included. Writes
benchmarks/results/reset.json.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from atlas_gym.env.atlas_env import AtlasEnv
from benchmarks import record
from benchmarks.meter import Meter
from benchmarks.reset_ways import KINDS, SECONDS, Case, Laps, Way

FIRST_CALLS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "mcp-server-sqlite": ("list_tables", {}),
    "server-filesystem": ("list_directory", {"path": "/workspace"}),
}
QUIET: Final = 0.03
"""Seconds without CPU time worth a word, after which a reset is over."""
NOISE: Final = 0.002


@dataclass(frozen=True)
class Sample:
    """One reset. Seconds."""

    answered: float
    cycle: float
    cpu_to_answer: float
    cpu: float
    """Of the whole cycle: this process and all it started."""
    own_cpu: float
    """This process's part of `cpu`."""
    engine_cpu: float
    """Of the container engine and the containers, in the cycle."""
    laps: Laps
    how: str


async def quiet(meter: Meter) -> None:
    """Wait until nothing of ours works any more, at most five seconds."""
    for _ in range(round(5 / QUIET)):
        before = meter.ours()
        await asyncio.sleep(QUIET)
        if meter.ours() - before < NOISE:
            return


async def sample(way: Way, meter: Meter) -> Sample:
    """One reset, all of it."""
    await way.ready()
    await quiet(meter)
    engine, shims = (meter.engine(), meter.shims()) if way.in_containers else (0.0, {})
    ours, own = meter.ours(), time.process_time()
    began = time.perf_counter()
    laps = Laps()
    try:
        async with asyncio.timeout(SECONDS):
            await way.open(laps)
        answered, cpu_to_answer = time.perf_counter(), meter.ours()
    finally:
        living = meter.shims() if way.in_containers else {}  # they may end now, and what they took with them
        last = Laps()
        await way.put_away()
        last.lap("put away")
    cycle = time.perf_counter()
    await way.ready()
    laps.wall |= last.wall
    laps.cpu |= last.cpu
    own = time.process_time() - own
    await quiet(meter)
    engine = meter.engine() - engine if way.in_containers else 0.0
    return Sample(
        answered=answered - began,
        cycle=cycle - began,
        cpu_to_answer=cpu_to_answer - ours,
        cpu=meter.ours() - ours,
        own_cpu=own,
        engine_cpu=engine + sum(spent - shims.get(pid, 0.0) for pid, spent in living.items()),
        laps=laps,
        how=way.how,
    )


def cases(servers: Sequence[str]) -> list[Case]:
    """The servers, with a task that uses each."""
    world = AtlasEnv().world
    found = []
    for name in servers:
        task = next(t for t in world.suite.tasks if t.servers == (name,))
        world.toolset(task.visible)
        tool, arguments = FIRST_CALLS[name]
        found.append(Case(world.installation(name), task, tool, arguments))
    return found


async def measure(
    given: argparse.Namespace, meter: Meter
) -> tuple[dict[str, dict[str, list[Sample]]], dict[str, dict[str, Any]]]:
    """Server -> way -> samples; and server -> way -> why there are none, or what the first one took."""
    samples: dict[str, dict[str, list[Sample]]] = {}
    notes: dict[str, dict[str, Any]] = {}
    ways: dict[tuple[str, str], Way] = {}
    try:
        for case in cases(given.server):
            note = notes.setdefault(case.server, {"refused": {}, "first_ms": {}})
            for kind in KINDS:
                if given.only and kind.name not in given.only:
                    continue
                if reason := kind.refuse(case):
                    note["refused"][kind.name] = reason
                    continue
                way = kind.make(case)
                try:
                    first = await sample(way, meter)
                except Exception as exc:  # noqa: BLE001 - reported in the table
                    note["refused"][kind.name] = f"{type(exc).__name__}: {exc}"
                    await way.aclose()
                    continue
                ways[case.server, kind.name] = way
                note["first_ms"][kind.name] = round(first.answered * 1e3, 1)
        for server, name in ways:
            samples.setdefault(server, {})[name] = []
        order = random.Random(0)
        for number in range(given.rounds):
            for server, name in order.sample(sorted(ways), len(ways)):
                taken = await sample(ways[server, name], meter)
                samples[server][name].append(taken)
            print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
    finally:
        for way in ways.values():
            await way.aclose()
    return samples, notes


def ms(values: Sequence[float]) -> float:
    """Mean, in milliseconds."""
    return round(float(np.mean(values)) * 1e3, 2)


def condense(found: dict[str, list[Sample]]) -> dict[str, dict[str, Any]]:
    """Numbers of one server, way by way."""
    rows: dict[str, dict[str, Any]] = {}
    for name, taken in found.items():
        answered = np.asarray([s.answered for s in taken]) * 1e3
        rows[name] = {
            "n": len(taken),
            "how": sorted({s.how for s in taken}),
            "to_answer_p50_ms": round(float(np.percentile(answered, 50)), 2),
            "to_answer_p95_ms": round(float(np.percentile(answered, 95)), 2),
            "to_answer_min_ms": round(float(answered.min()), 2),
            "cycle_mean_ms": ms([s.cycle for s in taken]),
            "cpu_mean_ms": ms([s.cpu for s in taken]),
            "cpu_median_ms": round(float(np.median([s.cpu for s in taken])) * 1e3, 2),
            "cpu_to_answer_mean_ms": ms([s.cpu_to_answer for s in taken]),
            "own_cpu_mean_ms": ms([s.own_cpu for s in taken]),
            "engine_cpu_mean_ms": ms([s.engine_cpu for s in taken]),
            "phases_ms": {lap: ms([s.laps.wall[lap] for s in taken]) for lap in taken[0].laps.wall},
            "phases_own_cpu_ms": {lap: ms([s.laps.cpu[lap] for s in taken]) for lap in taken[0].laps.cpu},
        }
    if base := rows.get("respawn"):
        for row in rows.values():
            total, respawn = (r["cpu_mean_ms"] + r["engine_cpu_mean_ms"] for r in (row, base))
            row["cpu_to_respawn"] = round(total / respawn, 4)
            row["wall_to_respawn"] = round(row["to_answer_p50_ms"] / base["to_answer_p50_ms"], 4)
    return rows


def show(rows: dict[str, dict[str, dict[str, Any]]], notes: dict[str, dict[str, Any]]) -> None:
    """Print Markdown."""
    for server, by_way in rows.items():
        print(
            f"\n**{server}**\n\n| way | started by | reset to answer p50 (p95) ms | CPU per reset ms "
            "| engine CPU ms | CPU : respawn | wall : respawn | first ever ms |"
        )
        print("|" + " --- |" * 8)
        for name, row in by_way.items():
            print(
                f"| {name} | {', '.join(row['how'])} "
                f"| {row['to_answer_p50_ms']:.1f} ({row['to_answer_p95_ms']:.1f}) | {row['cpu_mean_ms']:.1f} "
                f"| {row['engine_cpu_mean_ms']:.1f} | {row.get('cpu_to_respawn', '')} "
                f"| {row.get('wall_to_respawn', '')} | {notes[server]['first_ms'][name]:.0f} |"
            )
        for name, reason in notes[server]["refused"].items():
            print(f"\n{name}: {reason}")


def show_phases(rows: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Print where the time goes."""
    for server, by_way in rows.items():
        print(f"\n**{server}**, mean ms of each part (this process's CPU in it)\n")
        for name, row in by_way.items():
            parts = (f"{k} {v:.1f} ({row['phases_own_cpu_ms'][k]:.1f})" for k, v in row["phases_ms"].items())
            print(f"{name:<18} {'  '.join(parts)}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--server", nargs="*", choices=FIRST_CALLS, default=list(FIRST_CALLS))
    parser.add_argument("--only", nargs="*", choices=[kind.name for kind in KINDS])
    parser.add_argument("--phases", action="store_true", help="say where the time goes")
    given = parser.parse_args(arguments)
    with Meter() as meter:
        samples, notes = asyncio.run(measure(given, meter))
    rows = {server: condense(found) for server, found in samples.items()}
    show(rows, notes)
    if given.phases:
        show_phases(rows)
    record.write(
        "reset",
        {
            "command": " ".join(["python -m benchmarks.reset", *(arguments or sys.argv[1:])]),
            "load_at_end": os.getloadavg()[0],
            "cpu_measured_by": meter.how,
            "formula": FORMULA,
            "first_calls": {s: list(FIRST_CALLS[s]) for s in rows},
            "rows": rows,
            "notes": notes,
        },
        seed=0,
    )


FORMULA: Final = {
    "to_answer": "workspace made, set-up laid out, server started, handshake, first call answered",
    "cpu": "user and system time of this process and all it started, ended ones included, from the reset "
    "until the server and its workspace are put away, spares are refilled and nothing works any more",
    "engine_cpu": "of ways in containers, the same for dockerd, containerd and every container on the "
    "machine; a shim and its runc count until the first answer only. A busy engine adds to it.",
    "cpu_to_respawn": "(cpu + engine_cpu) of the way / the same of respawn, means of one run",
    "first_ms": "the first reset ever: it makes what outlives episodes (warmed parents, containers)",
}


if __name__ == "__main__":
    main()

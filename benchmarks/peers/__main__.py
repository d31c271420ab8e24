"""The same tool calls on the same server through this package and through its peers, in one run.

Run: python -m benchmarks.peers [--rounds 5] [--resets 6] [--cold 2] [--seconds 330] [--only NAME ...]
Every peer has its own environment and its own driver process; rounds are interleaved, in another order each
time, so that a loaded machine is equally unfair to all. Writes benchmarks/results/peers.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.env.world import World
from atlas_gym.errors import InstallError
from atlas_gym.task.model import Task
from benchmarks import record
from benchmarks.direct import Start
from benchmarks.peers import environments
from benchmarks.peers.environments import OURS
from benchmarks.peers.ways import ours

Json = dict[str, Any]

SERVER: Final = "mcp-server-sqlite"
TASK: Final = "core/top_customer-0000"
HERE: Final = Path(__file__).resolve().parent
SMALL, LARGE = 40, 10
"""Calls of one round."""
SLOW: Final = 0.2
"""Seconds per call from which a way starts a server for every call; it makes fewer of them."""
SLOW_SMALL, SLOW_LARGE = 2, 1
ANSWER_SECONDS: Final = 120

WAYS: Final[dict[str, tuple[str, str, str]]] = {
    # way: environment, file, what it is
    **{name: (OURS, "ours", name) for name in ours.WAYS},
    "sdk-client": (OURS, "sdk_client", "MCP SDK Client"),
    "mcp-use": ("mcp-use", "mcp_use_session", "mcp-use session"),
    "langchain-held": ("langchain-mcp-adapters", "langchain_tools", "tools over a held session"),
    "langchain-default": ("langchain-mcp-adapters", "langchain_tools", "tools of get_tools()"),
    "gem": ("gem", "gem_tool", "MCPTool.execute_action"),
    "openenv-forward": ("openenv", "openenv_env", "MCPEnvironment, a tool forwarding to a held client"),
    "openenv-proxy": ("openenv", "openenv_env", "MCPEnvironment over FastMCP's proxy"),
}
PACKAGES: Final = {
    "mcp-use": ("mcp-use", "mcp", "langchain-core"),
    "langchain-mcp-adapters": ("langchain-mcp-adapters", "mcp", "langchain-core"),
    "gem": ("gem-llm", "fastmcp", "mcp"),
    "openenv": ("openenv", "fastmcp", "mcp"),
}

_LARGE = (
    "SELECT o.id, o.placed_on, o.amount, o.status, c.name FROM orders o JOIN customers c "
    "ON c.id = o.customer_id ORDER BY o.id LIMIT 32"
)
SMALL_CALL: Final = ["read_query", {"query": "SELECT id, amount FROM orders WHERE id = 7"}, "amount"]
LARGE_CALL: Final = ["read_query", {"query": _LARGE}, "placed_on"]


class PeerError(Exception):
    """What a peer said instead of an answer."""


class Peer:
    """The owner's end of one driver process."""

    def __init__(self, way: str, python: str, where: Path) -> None:
        self.way = way
        began = time.perf_counter()
        file = HERE / "ways" / f"{WAYS[way][1]}.py"
        with open(where / f"{way}.log", "a") as log:
            self._process = subprocess.Popen(
                [python, "-I", str(HERE / "driver.py"), str(file), way],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=where,
            )
        ready = self._answer()
        self.ready_seconds = time.perf_counter() - began
        self.ready_cpu = float(ready["cpu"])
        self._workspace: Any = None

    def _answer(self) -> Json:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        if not ready:
            self._process.kill()
            raise PeerError(f"no answer within {ANSWER_SECONDS} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(f"the driver ended with status {self._process.wait(ANSWER_SECONDS)}")
        answer: Json = json.loads(line)
        if "error" in answer:
            raise PeerError(str(answer["error"]))
        return answer

    def ask(self, do: str, **arguments: Any) -> Json:
        """Have the driver do something.

        Raises:
            PeerError: The peer could not.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def open(self, world: World, task: Task) -> Json:
        """Open on a new workspace, and make the first call."""
        start = Start(world, task, SERVER)
        self._workspace = start.workspace
        given = {"command": start.command[0], "args": start.command[1:], "env": start.env}
        given |= {"cwd": str(start.workspace.files), "server": SERVER, "task": task.id}
        return self.ask("open", start=given, first=SMALL_CALL)

    def close(self) -> Json:
        """End the session and its workspace."""
        answer = self.ask("close")
        self._workspace.close()
        self._workspace = None
        return answer

    def end(self) -> None:
        """End the driver."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        if self._workspace is not None:
            self._workspace.close()


class Table:
    """What was measured, by way."""

    def __init__(self) -> None:
        self.rows: dict[str, Json] = {}
        self.failed: dict[str, str] = {}

    def add(self, way: str, name: str, value: Any) -> None:
        """Append to a list."""
        self.rows.setdefault(way, {}).setdefault(name, []).append(value)


@contextmanager
def spared(way: str, table: Table) -> Iterator[None]:
    """One way that fails does not end the run of the others."""
    try:
        yield
    except (PeerError, OSError) as exc:
        table.failed[way] = f"failed: {exc}"


def environments_of(ways: Sequence[str], table: Table) -> dict[str, str]:
    """Way -> interpreter; a way whose environment cannot be made is in `table.failed`."""
    found: dict[str, str] = {}
    for way in ways:
        try:
            found[way] = environments.python(WAYS[way][0])
        except InstallError as exc:
            table.failed[way] = f"cannot be installed: {exc}"
    return found


def cold(pythons: dict[str, str], rounds: int, world: World, task: Task, where: Path, table: Table) -> Json:
    """Start every driver anew `rounds` times; the last ones stay."""
    peers: dict[str, Peer] = {}
    order = random.Random(0)
    for number in range(rounds):
        for way in order.sample(sorted(pythons), len(pythons)):
            if way in table.failed:
                continue
            if number:
                peers.pop(way).end()
            try:
                peer = peers[way] = Peer(way, pythons[way], where)
                opened = peer.open(world, task)
            except PeerError as exc:
                table.failed[way] = f"does not answer: {exc}"
                if way in peers:
                    peers.pop(way).end()
                continue
            table.add(way, "import", peer.ready_seconds)
            table.add(way, "import_cpu", peer.ready_cpu)
            table.add(way, "cold", opened)
    return peers


def warm(peers: dict[str, Peer], rounds: int, table: Table, until: float) -> None:
    """Rounds of calls, every way in every round; no round begins after `until`."""
    slow: dict[str, bool] = {}
    for way, peer in peers.items():
        with spared(way, table):
            tried = peer.ask("calls", calls=[SMALL_CALL])["wall"]
            slow[way] = tried[0] > SLOW
            if not slow[way]:
                peer.ask("calls", calls=[SMALL_CALL] * 15 + [LARGE_CALL] * 5)
    order = random.Random(1)
    for number in range(rounds):
        if number and time.perf_counter() > until:
            break
        for way in order.sample(sorted(peers), len(peers)):
            if way in table.failed:
                continue
            counts = (SLOW_SMALL, SLOW_LARGE) if slow[way] else (SMALL, LARGE)
            with spared(way, table):
                for kind, call, count in zip(
                    ("small", "large"), (SMALL_CALL, LARGE_CALL), counts, strict=True
                ):
                    table.add(way, kind, peers[way].ask("calls", calls=[call] * count))
    for way, peer in peers.items():
        if way not in table.failed:
            with spared(way, table):
                table.rows[way]["memory"] = peer.ask("memory")
                table.rows[way]["server_per_call"] = slow[way]


def resets(peers: dict[str, Peer], count: int, world: World, task: Task, table: Table, until: float) -> None:
    """A fresh server on a fresh workspace, `count` times each way; no round begins after `until`."""
    for way, peer in peers.items():
        if way not in table.failed:
            with spared(way, table):
                peer.close()
    order = random.Random(2)
    for number in range(count):
        if number and time.perf_counter() > until:
            break
        for way in order.sample(sorted(peers), len(peers)):
            if way not in table.failed:
                with spared(way, table):
                    opened = peers[way].open(world, task)
                    table.add(way, "fresh", {"opened": opened, "closed": peers[way].close()})


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def condense(row: Json) -> Json:
    """Numbers of one way; milliseconds, except where a name says something else."""
    batches = {kind: row[kind] for kind in ("small", "large")}
    walls = {kind: [s for batch in found for s in batch["wall"]] for kind, found in batches.items()}
    calls = sum(map(len, walls.values()))
    every = [batch for found in batches.values() for batch in found]
    fresh = row["fresh"]
    answered = [f["opened"]["answered"] * 1e3 for f in fresh]
    cpu = [
        sum(f[part][who] for part in ("opened", "closed") for who in ("client_cpu", "server_cpu")) * 1e3
        for f in fresh
    ]
    return {
        "calls": calls,
        "calls_per_second": round(calls / sum(map(sum, walls.values())), 1),
        "small": record.spread(walls["small"]),
        "large": record.spread(walls["large"]),
        "client_cpu_per_call_us": round(sum(b["client_cpu"] for b in every) / calls * 1e6, 1),
        "server_cpu_per_call_us": round(sum(b["server_cpu"] for b in every) / calls * 1e6, 1),
        "server_per_call": row["server_per_call"],
        "import_ms": round(float(np.median(row["import"])) * 1e3, 1),
        "import_cpu_ms": round(float(np.median(row["import_cpu"])) * 1e3, 1),
        "cold_open_to_answer_ms": round(float(np.median([c["answered"] for c in row["cold"]])) * 1e3, 1),
        "fresh_reset_to_answer_p50_ms": round(float(np.percentile(answered, 50)), 1),
        "fresh_reset_to_answer_p95_ms": round(float(np.percentile(answered, 95)), 1),
        "fresh_reset_cycle_cpu_ms": round(mean(cpu), 1),
        "fresh_resets": len(fresh),
        "client_mib": row["memory"]["client"],
        "servers_mib": row["memory"]["servers"],
        "server_processes": row["memory"]["processes"],
    }


def show(rows: dict[str, Json], failed: dict[str, str]) -> None:
    """Print Markdown."""
    print(
        "\n| way | calls/s | small p50 (p95) ms | 3 KB p50 (p95) ms | client CPU us/call "
        "| server CPU us/call | import ms | cold open to answer ms | fresh reset to answer p50 ms "
        "| fresh reset CPU ms "
        "| client / server MiB (PSS) |"
    )
    print("|" + " --- |" * 11)
    for way, row in rows.items():
        small, large = ([row[k]["p50_us"] / 1e3, row[k]["p95_us"] / 1e3] for k in ("small", "large"))
        print(
            f"| {way}{' (a server per call)' if row['server_per_call'] else ''} | {row['calls_per_second']} "
            f"| {small[0]:.2f} ({small[1]:.2f}) | {large[0]:.2f} ({large[1]:.2f}) "
            f"| {row['client_cpu_per_call_us']:.0f} | {row['server_cpu_per_call_us']:.0f} "
            f"| {row['import_ms']:.0f} | {row['cold_open_to_answer_ms']:.0f} "
            f"| {row['fresh_reset_to_answer_p50_ms']:.0f} | {row['fresh_reset_cycle_cpu_ms']:.0f} "
            f"| {row['client_mib']['pss']:.0f} / {row['servers_mib']['pss']:.0f} |"
        )
    print(
        "\nA server per call is what these ways do by default with a stdio server; for "
        "langchain-mcp-adapters and OpenEnv the held form is beside it."
    )
    for way, reason in failed.items():
        print(f"\n{way}: {reason}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Install what is missing, measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help=f"of {SMALL} small and {LARGE} large calls")
    parser.add_argument("--resets", type=int, default=6, help="fresh servers per way")
    parser.add_argument("--cold", type=int, default=2, help="times that every driver is started anew")
    parser.add_argument("--seconds", type=float, default=330.0, help="no round begins later than this")
    parser.add_argument("--only", nargs="*", choices=WAYS, default=list(WAYS))
    given = parser.parse_args(arguments)
    world = AtlasEnv().world
    task = next(t for t in world.suite.tasks if t.id == TASK)
    world.toolset(task.visible)
    table = Table()
    pythons = environments_of(given.only, table)
    peers: dict[str, Peer] = {}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as where:
        try:
            peers = cold(pythons, given.cold, world, task, Path(where), table)
            warm(peers, given.rounds, table, began + 0.6 * given.seconds)
            resets(peers, given.resets, world, task, table, began + given.seconds)
        finally:
            for peer in peers.values():
                peer.end()
    whole = [way for way in given.only if way in peers and way not in table.failed]
    rows = {way: condense(table.rows[way]) for way in whole}
    show(rows, table.failed)
    record.write(
        "peers",
        {
            "command": " ".join(["python -m benchmarks.peers", *(arguments or sys.argv[1:])]),
            "load_at_end": os.getloadavg()[0],
            "seconds": round(time.perf_counter() - began),
            "server": SERVER,
            "task": TASK,
            "small_call": SMALL_CALL[:2],
            "large_call": LARGE_CALL[:2],
            "formula": FORMULA,
            "packages": {
                name: {package: environments.pinned(name)[package] for package in packages}
                for name, packages in PACKAGES.items()
            },
            "ways": {way: dict(zip(("environment", "file", "what"), WAYS[way], strict=True)) for way in rows},
            "rows": rows,
            "failed": table.failed,
        },
        seed=0,
    )


FORMULA: Final = {
    "calls_per_second": "calls / sum of their wall times, one call at a time",
    "client_cpu": "CPU of the driver's process, all its threads",
    "server_cpu": "CPU of every process below the driver, ended ones included (10 ms ticks for those)",
    "import_ms": "from starting the driver's interpreter until the way's packages are imported, median",
    "cold_open_to_answer_ms": "then from opening to the first answer, first time in the process, median",
    "fresh_reset": "closed, then a new workspace: from opening to the first answer; CPU of opening, first "
    "call and closing, client and servers, mean. Ours makes and lays out the workspace and puts up walls in "
    "it; the peers' workspaces are laid out for them before, and they have no walls.",
    "server_per_call": f"a warm call took more than {SLOW} s: the way starts a server for every call",
    "MiB": "pss divides shared pages among their users; private are the process's own",
}


if __name__ == "__main__":
    main()

"""What one tool call costs through `env.step`, beside the SDK's raw request and raw JSON lines.

Run: python -m benchmarks.step_overhead [--calls 300] [--server mcp-server-sqlite] [--profile]
Every round makes one call each way, so that a loaded machine is equally unfair to all; every twenty calls
each way gets a new server, warmed by the same five calls. Writes benchmarks/results/step_overhead.json.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from atlas_gym.context.budget import Budget
from atlas_gym.context.tokenizer import Tokenizer
from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.rollout.gold import call_text
from atlas_gym.wire.loop import portal
from benchmarks import direct as peers
from benchmarks import record

TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "mcp-server-sqlite": ("list_tables", {}),
    "server-memory": ("read_graph", {}),
    "calc-mcp": ("random", {}),
}
CALLS_PER_EPISODE = 20
"""As many as the default budget allows."""
WARM_CALLS = 5


class TimedTokenizer:
    """A tokenizer that adds up the time it takes."""

    def __init__(self, inner: Tokenizer) -> None:
        self._inner = inner
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, text: str) -> list[int]:
        """As the inner one."""
        began = time.perf_counter()
        ids = self._inner.encode(text)
        self.seconds += time.perf_counter() - began
        return ids

    def encode_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """As the inner one."""
        began = time.perf_counter()
        found = self._inner.encode_offsets(text)
        self.seconds += time.perf_counter() - began
        return found


class Stepper:
    """Episodes of `CALLS_PER_EPISODE` steps, each of one tool call."""

    def __init__(self, execution: str, server: str, task_id: str, timed: TimedTokenizer) -> None:
        self._env = AtlasEnv(
            exposure="eager", execution=execution, strict=False, budget=Budget().lifted().to_dict()
        )
        vars(self._env.world)["tokenizer"] = timed
        self._timed = timed
        self._task = task_id
        tool, arguments = TOOLS[server]
        self._text = call_text("call_tool", server=server, tool=tool, arguments=arguments)
        self._first = self._text
        if execution == "code":
            self._first = f'```python\ns = MCPServer("{server}")\ns.{tool}()\n```'
            self._text = f"```python\ns.{tool}()\n```"
        self.wall: list[float] = []
        self.counting: list[float] = []
        self.cpu: list[float] = []

    def begin(self) -> None:
        """A new episode with its server started."""
        self._env.reset(seed=0, options={"task_id": self._task})
        self._step(self._first)
        for _ in range(WARM_CALLS - 1):
            self._step(self._text)

    def step(self) -> None:
        """One timed call."""
        counted, cpu, began = self._timed.seconds, time.process_time(), time.perf_counter()
        self._step(self._text)
        self.wall.append(time.perf_counter() - began)
        self.cpu.append(time.process_time() - cpu)
        self.counting.append(self._timed.seconds - counted)

    def _step(self, text: str) -> None:
        observation, _, terminated, truncated, info = self._env.step(text)
        if terminated or truncated or info["tokens/errors"]:
            raise SystemExit(f"The call did not work: {info['error']} {observation['result'][:500]}")

    def close(self) -> None:
        """End the episode."""
        self._env.close()


def timed(call: Callable[[], float], wall: list[float], cpu: list[float]) -> None:
    """Add one call's wall and CPU time (of this process) to the lists."""
    began = time.process_time()
    wall.append(call())
    cpu.append(time.process_time() - began)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--server", choices=sorted(TOOLS), default="mcp-server-sqlite")
    parser.add_argument("--profile", action="store_true", help="profile JSON steps instead of measuring")
    given = parser.parse_args(arguments)
    env = AtlasEnv()
    world = env.world
    task = next(t for t in world.suite.tasks if given.server in t.servers)
    world.toolset(task.visible)
    counter = TimedTokenizer(world.tokenizer)
    steppers = {x: Stepper(x, given.server, task.id, counter) for x in ("json", "code")}
    if given.profile:
        profile(steppers["json"], given.calls)
        return
    tool, tool_arguments = TOOLS[given.server]
    kinds: dict[str, type[peers.SdkRequest] | type[peers.RawLines]]
    kinds = {"sdk": peers.SdkRequest, "raw": peers.RawLines}
    running: dict[str, peers.SdkRequest | peers.RawLines] = {}
    wall: dict[str, list[float]] = {"sdk": [], "raw": []}
    cpu: dict[str, list[float]] = {"sdk": [], "raw": []}
    try:
        for number in range(given.calls):
            if number % CALLS_PER_EPISODE == 0:
                for stepper in steppers.values():
                    stepper.begin()
                for name, kind in kinds.items():
                    if name in running:
                        running.pop(name).close()
                    running[name] = kind(peers.Start(world, task, given.server))
                    for _ in range(WARM_CALLS):
                        running[name].call(tool, tool_arguments)
            for stepper in steppers.values():
                stepper.step()
            for name, peer in running.items():
                timed(partial(peer.call, tool, tool_arguments), wall[name], cpu[name])
    finally:
        for stepper in steppers.values():
            stepper.close()
        for peer in running.values():
            peer.close()
    report(given.server, tool, steppers, wall, cpu)


def report(
    server: str,
    tool: str,
    steppers: dict[str, Stepper],
    wall: dict[str, list[float]],
    cpu: dict[str, list[float]],
) -> None:
    """Print the table and write the file."""
    rows: dict[str, dict[str, Any]] = {}
    for name, stepper in steppers.items():
        uncounted = [w - c for w, c in zip(stepper.wall, stepper.counting, strict=True)]
        rows[f"step_{name}"] = {
            "wall": record.spread(stepper.wall),
            "wall_without_token_counting": record.spread(uncounted),
            "token_counting": record.spread(stepper.counting),
            "client_cpu": record.spread(stepper.cpu),
        }
    for name in wall:
        rows[name] = {"wall": record.spread(wall[name]), "client_cpu": record.spread(cpu[name])}
    base = rows["sdk"]["wall"]["p50_us"]
    print(f"{server}:{tool}, microseconds per call, median (p95)\n")
    for name, row in rows.items():
        said = "  ".join(f"{k} {v['p50_us']:.0f} ({v['p95_us']:.0f})" for k, v in row.items())
        print(f"{name:<10} {said}")
    ratios = {
        f"{name}_to_sdk": {
            "wall": round(rows[name]["wall"]["p50_us"] / base, 3),
            "wall_without_token_counting": round(
                rows[name]["wall_without_token_counting"]["p50_us"] / base, 3
            ),
        }
        for name in ("step_json", "step_code")
    }
    print()
    for name, ratio in ratios.items():
        print(
            f"{name}: {ratio['wall']:.2f}x the SDK, "
            f"without token counting {ratio['wall_without_token_counting']:.2f}x"
        )
    record.write(
        "step_overhead",
        {
            "server": server,
            "tool": tool,
            "calls_per_episode": CALLS_PER_EPISODE,
            "rows": rows,
            "ratios": ratios,
        },
        seed=0,
    )


def profile(stepper: Stepper, calls: int) -> None:
    """Where the loop's thread spends its time during JSON steps."""
    profiler = cProfile.Profile()

    async def switch(on: bool) -> None:
        (profiler.enable if on else profiler.disable)()

    for number in range(calls + CALLS_PER_EPISODE):  # the first episode only warms up
        if number % CALLS_PER_EPISODE == 0:
            portal().run(switch(False))
            stepper.begin()
            portal().run(switch(number > 0))
        stepper.step()
    portal().run(switch(False))
    stepper.close()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()

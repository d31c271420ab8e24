"""Episodes with servers that misbehave in every known way, beside healthy ones in the same process.

Run: python -m benchmarks.chaos [--episodes 2000] [--seed 0] [--at-once 16] [--runtime process] [--no-prefork]
Checks that nothing hangs, nothing is left and every failure is typed in the trace; measures what sick servers
cost the healthy episodes beside them. Writes benchmarks/results/chaos.json.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.context.budget import Budget
from atlas_gym.env import fleet
from atlas_gym.env.episode import Episode, EpisodeSettings
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.rollout.gold import call_text
from atlas_gym.rollout.play import Job, play_each
from atlas_gym.rollout.policy import ScriptedPolicy
from atlas_gym.runtime import base_image, image
from atlas_gym.runtime.catalog import Catalog, Server
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Limits, Manifest
from atlas_gym.task.kinds import FileCheck
from atlas_gym.task.model import Task
from atlas_gym.task.setup import Setup, TextFile
from atlas_gym.toolspace.records import parse_listing
from atlas_gym.types import ToolResult, Trajectory
from atlas_gym.wire import fake
from atlas_gym.wire.loop import portal
from benchmarks import record

SICK: Final = Path(__file__).resolve().parent.parent / "tests" / "wire" / "misbehaving.py"
ANSWERS, FAILS, DIES, HANGS = {"ok"}, {"tool_error"}, {"tool_error crashed"}, {"tool_error timeout"}
LATE: Final = {"timeout", "tool_error timeout"}
"""For what takes a loaded machine seconds."""
INFRA: Final = {"crashed", "timeout"}
CHAOS: Final[Mapping[str, set[str]]] = {
    # What its tool `bad` does -> what the trace may say of it; an outcome with a second word was proven on a
    # clean server.
    "plain": ANSWERS,
    "exit": DIES,
    "segfault": DIES,
    "half-answer": DIES,
    "closes-stdout": DIES,
    "exit-once": DIES,
    "answers-and-dies": ANSWERS,
    "flaky": ANSWERS | DIES | {"crashed"},
    "hang": HANGS,
    "hang-ignores-eof": HANGS,
    "hang-ignores-term": HANGS,
    "truncated-json": HANGS,
    "asks-endlessly": DIES | LATE,
    "endless-line": FAILS | LATE,
    "notifications": ANSWERS | LATE,
    "stderr-flood": ANSWERS,
    "bad-utf8": ANSWERS,
    "noise": ANSWERS,
    "noise-same-line": ANSWERS,
    "bad-type": ANSWERS,
    "nan": ANSWERS,
    "wrong-id": ANSWERS,
    "content-garbage": ANSWERS,
    "list-no-type": ANSWERS,
    "list-null-schema": ANSWERS,
    "output-schema": ANSWERS,
    "list-duplicates": ANSWERS,
    "list-endless-tools": ANSWERS,
    "list-same-cursor": ANSWERS,
    "list-endless": ANSWERS,
    "huge": ANSWERS | LATE,
    "over-long": FAILS | LATE,
    "deep": FAILS,
    "no-result-object": FAILS,
    "rpc-error": FAILS,
    "grandchild": ANSWERS,
    "grandchildren": ANSWERS,
    "memory": DIES | HANGS,
    "threads": DIES | HANGS,
    "no-start": INFRA,
    "silent-start": INFRA,
}
HEALTHY: Final = "healthy"
CONTENT: Final = "bread\n"


@dataclass(frozen=True)
class Played:
    """One episode that ended."""

    mode: str
    seconds: float
    trajectory: Trajectory


def _installation(mode: str, known: bool, python: str, folder: Path | None = None) -> Installation:
    """A server of one mode. A Python server of a known package may be forked from a warmed parent."""
    script = Path(fake.__file__) if mode == HEALTHY else SICK
    script = script if folder is None else folder / script.name
    command = (python, "-I", str(script), *(() if mode == HEALTHY else (mode,)))
    manifest = Manifest(
        name=mode,
        description="A server.",
        registry="pypi" if known else "user",
        package="chaos" if known else "",
        version="1" if known else "",
        language="python" if known else "other",
        command=command,
        state="workspace",
        state_bound="call",
        read_only=("read_file",),
        limits=Limits(
            memory_mb=128,
            pids=48,
            start_seconds=2.0 if mode == "silent-start" else 60.0,
            call_seconds=30.0,
        ),
    )
    return Installation(Server(manifest, None), Path("/nonexistent"), command, (Path("/"),))


def make_world(modes: Sequence[str], *, runtime: str = "process", prefork: bool = False) -> World:
    """A world whose servers are these and a healthy one, each asked for its tools over the wire."""
    world = World(WorldConfig(suite="toy", runtime=runtime, prefork=prefork))
    made = {mode: _installation(mode, prefork, sys.executable) for mode in (HEALTHY, *modes)}
    vars(world)["catalog"] = Catalog({name: installation.server for name, installation in made.items()})
    inside = dict(made)
    if runtime == "container":
        python, folder = "/opt/server/bin/python", Path("/opt/server")
        inside = {mode: _installation(mode, prefork, python, folder) for mode in made}
        files: dict[str, str | Path] = {path.name: path for path in (Path(fake.__file__), SICK)}
        held = image.from_files("chaos", files, base=base_image.make(programs=()))
        containers = ContainerRuntime(prefork=prefork, images=dict.fromkeys(made, held))
        vars(world)["_inner"] = lambda: containers
    for name, installation in made.items():
        texts = fleet.ask(installation)
        world._prepared[name] = fleet.Prepared(
            installation.server, inside[name], None, texts.tools, texts.notes
        )
        world._tools[name] = parse_listing(name, "A server.", texts.tools, read_only=("read_file",))
    return world


def task(mode: str) -> Task:
    """Copy a file, with the healthy server; a sick one is there as well."""
    extra = (TextFile(path=mode, text=""),) if mode in ("no-start", "silent-start") else ()
    return Task(
        id=f"chaos/{mode}-0000",
        suite="chaos",
        difficulty="easy",
        prompt="Copy a.txt to b.txt.",
        servers=(HEALTHY,) if mode == HEALTHY else (HEALTHY, mode),
        setup=Setup(files=(TextFile(path="a.txt", text=CONTENT), *extra)),
        checks=(FileCheck(name="copied", path="b.txt", equals=CONTENT),),
        gold="answer('done')",
    )


def job(world: World, mode: str, *, call_seconds: float = 5.0) -> Job:
    """One episode: healthy work, and between it the calls that go wrong."""
    copy = [
        call_text(f"{HEALTHY}:read_file", path="/workspace/a.txt"),
        call_text(f"{HEALTHY}:write_file", path="/workspace/b.txt", text=CONTENT),
    ]
    if mode != HEALTHY:
        tool = f"{mode}:bad" if mode != "list-endless" else f"{mode}:ok"
        copy[1:1] = [call_text(f"{mode}:ok"), call_text(tool), call_text(f"{mode}:ok")]
    script = (*copy, "<answer>done</answer>")
    budget = Budget.from_mapping({"call_seconds": call_seconds, "context_tokens": 200_000})
    options = EpisodeSettings(exposure="eager", execution="json", budget=budget, strict=False)
    given = task(mode)
    return Job(
        lambda: Episode(world, given, given.visible, options, 0), lambda _: ScriptedPolicy(script), mode
    )


async def play(jobs: Sequence[Job], *, at_once: int) -> list[Played]:
    """Play all of them; the time of an episode runs from its place in the queue being free to its end."""
    began: dict[int, float] = {}

    def timed(index: int, made: Job) -> Job:
        def make() -> Episode:
            began[index] = time.perf_counter()
            return made.make_episode()

        return Job(make, made.make_policy, made.name)

    found: list[Played] = []
    async with aclosing(play_each([timed(*pair) for pair in enumerate(jobs)], at_once=at_once)) as ended:
        async for index, trajectory in ended:
            found.append(Played(jobs[index].name, time.perf_counter() - began[index], trajectory))
    return found


def held() -> dict[str, int]:
    """What this process holds of the machine."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except OSError:
            continue
    run, temp = settings.run_dir(), Path(tempfile.gettempdir())
    names = [entry.name for entry in temp.iterdir()]
    return {
        "processes": len(below()),
        "descriptors": len(links),
        "sockets": sum(link.startswith("socket:") for link in links),
        # The loop's own pool grows to its bound as it is used, and stays.
        "threads": sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate()),
        "episodes": len(list(run.iterdir())) if run.is_dir() else 0,
        "temporary": sum(name.startswith(("atlas", "tmp")) for name in names),
    }


def below() -> set[int]:
    """Every live process below this one."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} | found
        if more == found:
            return found - {os.getpid()}
        found = more


def said(result: ToolResult) -> str:
    """What the trace says of one call."""
    return f"{result.outcome} {result.failed}".strip()


def problems(played: Played) -> list[str]:
    """What is wrong with the record of one episode: a failure without a type, a word or its consequence."""
    trace = Trajectory.from_json(played.trajectory.to_json())
    results = [result for turn in trace.turns for result in turn.results]
    found = [
        f"{result.call.tool}: {result.outcome} without a word"
        for result in results
        if result.outcome != "ok" and not result.text
    ]
    if trace.stop not in ("answer", "infra"):
        found.append(f"it stopped with {trace.stop!r}")
    if (trace.stop == "infra") != any(result.is_infra for result in results):
        found.append("infra without a call that shows it, or the other way round")
    if trace.stop == "infra" and (trace.reward_valid or trace.invalid_reason != "infra" or not trace.error):
        found.append("infra with a reward, or without a reason")
    if trace.stop == "answer" and (not trace.reward_valid or trace.reward != 1.0):
        found.append(f"the honest work beside it earned {trace.reward} (valid: {trace.reward_valid})")
    bad = [result for result in results if result.call.server == played.mode]
    if played.mode in CHAOS:
        of = bad[1:2] if len(bad) > 1 else bad
        allowed = CHAOS[played.mode]
        found += [f"{said(r)}, not one of {sorted(allowed)}" for r in of if said(r) not in allowed]
    return [f"{played.mode}: {what}" for what in found]


def schedule(modes: Sequence[str], episodes: int, seed: int) -> list[str]:
    """As many sick episodes as healthy ones, every mode about equally often, shuffled."""
    names = [modes[n // 2 % len(modes)] if n % 2 else HEALTHY for n in range(episodes)]
    random.Random(seed).shuffle(names)
    return names


def _mean(played: Sequence[Played], mode: str) -> float:
    return sum(p.seconds for p in played if p.mode == mode) / max(1, sum(p.mode == mode for p in played))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--runtime", default="process")
    parser.add_argument("--no-prefork", action="store_true")
    parser.add_argument(
        "--deadline", type=float, default=7200.0, help="seconds after which it counts as hung"
    )
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    os.environ["ATLAS_RUN"] = str(folder / "run")
    os.environ["ATLAS_CACHE"] = str(folder / "cache")
    (folder / "temp").mkdir()
    tempfile.tempdir = str(folder / "temp")
    modes = sorted(CHAOS)
    world = make_world(modes, runtime=given.runtime, prefork=not given.no_prefork)

    def run(names: Sequence[str], at_once: int) -> list[Played]:
        jobs = [job(world, name) for name in names]
        return portal().run(play(jobs, at_once=at_once), timeout=given.deadline)

    def quiet() -> dict[str, int]:
        portal().run(world.housing.aclose())
        return held()

    run([HEALTHY, *modes], given.at_once)  # what is made once per process is made here
    before = quiet()
    rounds = max(20, given.episodes // 20)
    half = given.at_once // 2
    alone = run([HEALTHY] * rounds, half)
    crowd = run([HEALTHY] * 2 * rounds, given.at_once)
    began = time.perf_counter()
    played = run(schedule(modes, given.episodes, given.seed), given.at_once)
    seconds = time.perf_counter() - began
    after = quiet()
    wrong = [line for one in played for line in problems(one)]
    leaked = {key: (before[key], after[key]) for key in before if after[key] > before[key]}
    by_mode: dict[str, dict[str, int]] = {}
    for one in played:
        calls = [r for turn in one.trajectory.turns for r in turn.results if r.call.server == one.mode]
        stops = [f"stop {one.trajectory.stop}"]
        by_mode[one.mode] = dict(Counter(by_mode.get(one.mode, {})) + Counter([*map(said, calls), *stops]))
    base, beside = _mean(crowd, HEALTHY), _mean(played, HEALTHY)
    numbers: dict[str, Any] = {
        "episodes": len(played),
        "runtime": given.runtime,
        "prefork": not given.no_prefork,
        "at_once": given.at_once,
        "seconds": round(seconds, 1),
        "deadline_seconds": given.deadline,
        "wrong": wrong,
        "leaked": leaked,
        "held": {"before": before, "after": after},
        "infra": sum(one.trajectory.stop == "infra" for one in played),
        "healthy_seconds": {
            f"alone ({half} at once)": round(_mean(alone, HEALTHY), 4),
            f"beside as many healthy ones ({given.at_once} at once)": round(base, 4),
            f"beside as many sick ones ({given.at_once} at once)": round(beside, 4),
            "ratio: beside sick ones to beside healthy ones": round(beside / base, 3),
        },
        "healthy_infra": sum(one.trajectory.stop == "infra" for one in played if one.mode == HEALTHY),
        "modes": {mode: by_mode[mode] for mode in sorted(by_mode)},
        "mode_seconds": {mode: round(_mean(played, mode), 3) for mode in sorted(by_mode)},
    }
    shutil.rmtree(folder, ignore_errors=True)
    for mode, counts in numbers["modes"].items():
        print(f"{mode:20} {counts}")
    print(
        numbers["healthy_seconds"],
        f"\n{len(wrong)} wrong, {len(leaked)} leaks",
        *wrong[:20],
        leaked,
        sep="\n",
    )
    record.write("chaos", numbers, seed=given.seed)
    return 1 if wrong or leaked else 0


if __name__ == "__main__":
    sys.exit(main())

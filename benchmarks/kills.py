"""Owners of running episodes, killed with -9 at random moments: what is left, and for how long.

Run: python -m benchmarks.kills [--runtime process-prefork] [--times 50] [--seed 0]
Each time a new owner plays episodes with healthy and sick servers; it is killed after a drawn number of turns
and a drawn part of a second. Processes must end by themselves; the rest goes with `atlas-gym gc`.
Writes benchmarks/results/kills_<runtime>.json.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from atlas_gym.rollout.play import play
from atlas_gym.runtime import engine
from atlas_gym.runtime.gc import collect
from atlas_gym.runtime.launch import MARKER
from atlas_gym.wire.loop import portal
from benchmarks import chaos, record

PROCESSES: Final = ("process", "process-prefork")
CONTAINERS: Final = ("container", "container-prefork")
RUNTIMES: Final = (*PROCESSES, *CONTAINERS)
MODES: Final = ("grandchildren", "hang-ignores-term", "exit")
BOUND: Final = 5.0
"""Seconds within which every process must be gone by itself."""
_STARTED: Final = 120.0
_LEAST_TURNS, _MOST_TURNS = 5, 28
"""A line comes for each opening too, and four episodes open at the same time."""


@dataclass(frozen=True)
class Killed:
    """What one kill left."""

    turns: int
    """Turns that the owner's episodes had made."""
    processes: int
    """Processes of its servers at that moment."""
    seconds: float
    """From the kill until the last of them had ended."""
    left: tuple[str, ...]
    """Command lines of those that had not ended within the bound."""
    removed: int
    """Directories that the collection then removed."""
    containers: int
    """Containers that it removed."""
    remains: tuple[str, ...]
    """What still lies in the directories of the run, and in the owner's temporary one."""


def own(runtime: str) -> None:
    """Play episodes for ever; a line on standard output for each turn."""
    world = chaos.make_world(MODES, runtime=runtime.partition("-")[0], prefork=runtime.endswith("-prefork"))

    async def forever() -> None:
        while True:
            jobs = [chaos.job(world, mode) for mode in (chaos.HEALTHY, *MODES)]
            async with asyncio.TaskGroup() as group:
                for job in jobs:
                    group.create_task(
                        play(job.make_episode(), job.make_policy, watch=lambda _: print("turn", flush=True))
                    )

    portal().run(forever())


def _environment(folder: Path) -> dict[str, str]:
    (folder / "temp").mkdir(parents=True)
    return {
        **os.environ,
        "ATLAS_RUN": str(folder / "run"),
        "ATLAS_CACHE": str(folder / "cache"),
        "TMPDIR": str(folder / "temp"),
    }


def kill(runtime: str, seed: int, folder: Path, *, bound: float = BOUND) -> Killed:
    """Start an owner, kill it at a drawn moment, and see what becomes of what it had started.

    Args:
        runtime: One of `RUNTIMES`.
        seed: Draws the moment.
        folder: For its directories; made.
        bound: Seconds after which what still runs counts as left.

    Raises:
        RuntimeError: The owner did not come to play at all; holds its last words.
    """
    draw = random.Random(seed)
    turns, more = draw.randrange(_LEAST_TURNS, _MOST_TURNS), draw.uniform(0.0, 0.3)
    environment = _environment(folder)
    with open(folder / "stderr", "w+b") as words:
        owner = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.kills", "--own", "--runtime", runtime],
            stdout=subprocess.PIPE,
            stderr=words,
            env=environment,
            cwd=Path(__file__).resolve().parent.parent,
            start_new_session=True,
        )
        try:
            assert owner.stdout is not None
            if not _heard(owner.stdout.fileno(), turns):
                owner.kill()
                words.seek(0)
                raise RuntimeError(f"The owner made no {turns} turns: {words.read()[-2000:]!r}")
            handle = os.pidfd_open(owner.pid)
            select.select([handle], [], [], more)
            os.close(handle)
            run = folder / "run"
            names = {path.name for path in run.iterdir()}
            known = _handles(marked(names))
            processes = len(known)
        finally:
            began = time.monotonic()
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            if owner.stdout is not None:
                owner.stdout.close()
    names |= {path.name for path in run.iterdir()}
    seconds = _gone(known, names, began + bound) - began
    left = tuple(_command(pid) for pid in marked(names))
    containers = 0
    if runtime in CONTAINERS:  # the engine keeps them: what runs in one ends with it, at the collection
        containers = len(_containers(run))
        _collected(run, time.monotonic() + BOUND)
        left = tuple(_command(pid) for pid in marked(names))
    removed = collect(run)
    remains = [path.name for path in run.iterdir() if path.name != "stats"]
    remains += [path.name for path in (folder / "temp").iterdir()]
    remains += _containers(run) if runtime in CONTAINERS else []
    return Killed(
        turns=turns,
        processes=processes,
        seconds=round(seconds, 3),
        left=left,
        removed=len(removed.episodes) + len(removed.hosts),
        containers=containers,
        remains=tuple(remains),
    )


def _collected(run: Path, deadline: float) -> None:
    """Collect until nothing more comes: the engine goes on making what the owner asked for when it died."""
    quiet = 0
    while quiet < 4 and time.monotonic() < deadline:
        engine.collect()
        quiet = 0 if _containers(run) else quiet + 1
        select.select([], [], [], 0.25)


def _containers(run: Path) -> list[str]:
    """Names of the containers, ended ones too, of owners with this run directory."""
    found = engine.client().api.containers(all=True, filters={"label": f"{engine.LABEL_RUN}={run}"})
    return [name for container in found for name in container["Names"]]


def _heard(fd: int, lines: int) -> bool:
    """Whether so many lines came, in time."""
    deadline = time.monotonic() + _STARTED
    while lines > 0:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        data = os.read(fd, 1 << 16) if ready else b""
        if not data:
            return False
        lines -= data.count(b"\n")
    return True


def marked(names: set[str]) -> list[int]:
    """Live processes that carry the mark of one of these directories."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                variables = (entry / "environ").read_bytes().split(b"\0")
                marks = [
                    v.partition(b"=")[2].decode() for v in variables if v.startswith(MARKER.encode() + b"=")
                ]
                if marks and marks[0] in names:
                    found.append(int(entry.name))
    return found


def _handles(pids: list[int]) -> dict[int, int]:
    found = {}
    for pid in pids:
        with suppress(ProcessLookupError):
            found[pid] = os.pidfd_open(pid)
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _gone(known: dict[int, int], names: set[str], deadline: float) -> float:
    """Wait until every process is gone, or the deadline has passed; the time at which that was."""
    while True:
        while known:
            poll = select.poll()
            for handle in known.values():
                poll.register(handle, select.POLLIN)
            ended = {handle for handle, _ in poll.poll(max(0, int((deadline - time.monotonic()) * 1000)))}
            for pid in [pid for pid, handle in known.items() if handle in ended or not ended]:
                os.close(known.pop(pid))
        now = time.monotonic()
        if now >= deadline:
            return now
        known |= _handles(marked(names))  # what was started in the last moment
        if not known:
            return now


def main() -> int:
    """Kill, look, print, write; 1 when something was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", choices=RUNTIMES, default="process")
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--own", action="store_true", help="be the owner")
    given = parser.parse_args()
    if given.own:
        own(given.runtime)
        return 0
    kills: list[Killed] = []
    folder = Path(tempfile.mkdtemp(prefix="kills-"))
    print("  n turns processes seconds removed containers left")
    for n in range(given.times):
        one = kill(given.runtime, given.seed + n, folder / str(n))
        kills.append(one)
        left = (*one.left, *one.remains)
        counts = f"{n:3} {one.turns:5} {one.processes:9} {one.seconds:7.3f} {one.removed:7}"
        print(f"{counts} {one.containers:10} {left}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    in_containers = given.runtime in CONTAINERS
    wrong = sum(bool(one.left or one.remains) for one in kills)
    numbers = {
        "runtime": given.runtime,
        "times": len(kills),
        "wrong": wrong,
        "bound_seconds": BOUND,
        # Processes inside containers carry no mark that can be read here: only containers are counted there.
        "longest_seconds": None if in_containers else max(one.seconds for one in kills),
        "processes": None if in_containers else sum(one.processes for one in kills),
        "containers": sum(one.containers for one in kills) if in_containers else None,
        "kills": [asdict(one) for one in kills],
    }
    record.write(f"kills_{given.runtime}", numbers, seed=given.seed)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

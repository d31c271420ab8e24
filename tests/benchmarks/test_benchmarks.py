"""The benchmarks' own arithmetic and plumbing; nothing here is timed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import cost, reset
from benchmarks.capacity import Limits
from benchmarks.meter import Meter
from benchmarks.peers import __main__ as peers
from benchmarks.peers import environments
from benchmarks.reset_ways import Laps

DRIVER = Path(peers.__file__).parent / "driver.py"
WAY = """
class Way:
    def open(self, start): self.answer = start["answer"]
    def call(self, tool, arguments):
        print("a peer that prints")
        return self.answer
    def close(self): pass

class Waiting(Way):
    async def call(self, tool, arguments): return self.answer

class Broken(Way):
    def __init__(self): raise ValueError("not today")

WAYS = {"way": Way, "waiting": Waiting, "broken": Broken}
"""


def drive(folder: Path, way: str, commands: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (folder / "ways.py").write_text(WAY)
    done = subprocess.run(
        [sys.executable, "-I", str(DRIVER), str(folder / "ways.py"), way],
        input="".join(json.dumps(command) + "\n" for command in commands),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("way", ["way", "waiting"])
def test_a_driver_makes_the_calls_and_says_what_they_took(way: str, tmp_path: Path) -> None:
    call = ["tool", {}, "good"]
    asked: list[dict[str, Any]] = [{"do": "open", "start": {"answer": "a good answer"}, "first": call}]
    asked += [{"do": "calls", "calls": [call] * 3}, {"do": "memory"}, {"do": "close"}]
    ready, opened, made, memory, closed = drive(tmp_path, way, asked)
    assert set(ready) == {"imported", "cpu"}
    assert opened["answered"] >= opened["open"] >= 0
    assert len(made["wall"]) == 3
    assert memory["client"]["pss"] > 0
    assert memory["processes"] == 0
    assert "error" not in closed


def test_a_wrong_answer_is_an_error_and_not_a_number(tmp_path: Path) -> None:
    first = ["tool", {}, "good"]
    _, opened = drive(tmp_path, "way", [{"do": "open", "start": {"answer": "bad"}, "first": first}])
    assert opened["error"] == "RuntimeError: tool answered 'bad' instead of something with 'good'"


def test_a_peer_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    assert drive(tmp_path, "broken", []) == [{"error": "ValueError: not today"}]


@pytest.mark.parametrize("file", sorted(environments.REQUIREMENTS.glob("*.txt")), ids=lambda f: f.stem)
def test_requirements_are_pinned_and_name_no_place(file: Path) -> None:
    for line in file.read_text().splitlines():
        assert re.fullmatch(r"[\w.-]+(\[[\w,-]+\])?==[\w.+!]+( ; .*)?", line), line
    for package in peers.PACKAGES[file.stem]:
        assert environments.pinned(file.stem)[package]


def test_every_way_has_its_file_and_its_environment() -> None:
    for environment, file, what in peers.WAYS.values():
        assert what
        assert (DRIVER.parent / "ways" / f"{file}.py").is_file()
        assert environment == environments.OURS or environment in peers.PACKAGES


def test_numbers_of_a_peer() -> None:
    batch = {"wall": [0.002, 0.004], "client_cpu": 0.001, "server_cpu": 0.003}
    opened = {"answered": 0.5, "client_cpu": 0.1, "server_cpu": 0.3}
    row = peers.condense(
        {
            "small": [batch],
            "large": [batch],
            "import": [1.0],
            "import_cpu": [0.9],
            "cold": [opened],
            "fresh": [{"opened": opened, "closed": {"client_cpu": 0.0, "server_cpu": 0.1}}],
            "memory": {"client": {"pss": 1.0}, "servers": {"pss": 2.0}, "processes": 1},
            "server_per_call": False,
        }
    )
    assert row["calls_per_second"] == pytest.approx(4 / 0.012, abs=0.1)
    assert (row["client_cpu_per_call_us"], row["server_cpu_per_call_us"]) == (500.0, 1500.0)
    assert (row["cold_open_to_answer_ms"], row["fresh_reset_cycle_cpu_ms"]) == (500.0, 500.0)


def test_ratios_of_a_reset() -> None:
    def taken(answered: float, cpu: float, engine: float) -> reset.Sample:
        return reset.Sample(answered, answered, cpu, cpu, cpu, engine, Laps(), "spawn")

    rows = reset.condense({"respawn": [taken(1.0, 0.5, 0.0)], "container": [taken(0.5, 0.1, 0.15)]})
    assert (rows["container"]["cpu_to_respawn"], rows["container"]["wall_to_respawn"]) == (0.5, 0.5)


def test_a_process_tree_is_found_with_its_memory_and_its_cpu() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True) as child:
        below: list[int] = []
        while len(below) < 2:  # the child starts its own child in its own time
            assert child.poll() is None
            below = cost.descendants(os.getpid())
        assert below[0] == child.pid
        assert cost.memory(below)["pss"] > 0
        assert cost.tree_cpu(child.pid) > 0
        child.communicate("\n")
    assert cost.clock(child.pid) == 0


def test_the_meter_goes_back_to_where_it_was() -> None:
    before = Path("/proc/self/cgroup").read_text()
    with Meter() as meter:
        first = meter.ours()
        subprocess.run([sys.executable, "-c", "sum(range(10**6))"], check=True)
        assert meter.ours() > first
    assert Path("/proc/self/cgroup").read_text() == before


def test_capacity_leaves_what_it_was_told_to_leave() -> None:
    assert Limits(max_gib=0, leave_gib=0, seconds=1).room() < 1024
    assert Limits(max_gib=10**6, leave_gib=10**6, seconds=1).room() < 0

"""Memory is read as the kernel tells it: the machine, both kinds of control groups, trees of processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from atlas_gym.errors import ConfigError
from atlas_gym.runtime.pressure import MIB, Ceiling, Machine, Proc

GIB = 1 << 30


class Kernel:
    """Files that look like those of a kernel."""

    def __init__(self, root: Path) -> None:
        self.proc, self.cgroup = root / "proc", root / "cgroup"
        self.write(self.proc / "meminfo", "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n")

    def write(self, path: Path, text: object) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))

    def groups(self, text: str) -> None:
        self.write(self.proc / "self" / "cgroup", text)

    def newer(self, group: str, limit: object, used: int, cache: int = 0) -> None:
        at = self.cgroup / group
        self.write(at / "memory.max", f"{limit}\n")
        self.write(at / "memory.current", used)
        self.write(at / "memory.stat", f"anon 5\ninactive_file {cache}\n")

    def older(self, group: str, limit: int, used: int, cache: int = 0) -> None:
        at = self.cgroup / "memory" / group
        self.write(at / "memory.limit_in_bytes", limit)
        self.write(at / "memory.usage_in_bytes", used)
        self.write(at / "memory.stat", f"inactive_file 1\ntotal_inactive_file {cache}\n")

    def machine(self) -> Machine:
        return Proc(self.proc, self.cgroup).machine()


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def test_the_machine_alone(kernel: Kernel) -> None:
    assert kernel.machine() == Machine(8 * GIB, 4 * GIB)


def test_a_kernel_that_says_nothing(tmp_path: Path) -> None:
    machine = Proc(tmp_path / "none", tmp_path / "none").machine()
    assert (machine, bool(machine)) == (Machine(), False)


def test_version_two_with_limits_of_parents(kernel: Kernel) -> None:
    kernel.groups("0::/pods/one\n")
    kernel.newer("pods/one", "max", 0)
    kernel.newer("pods", 2 * GIB, 3 * GIB // 2, cache=GIB // 2)
    assert kernel.machine() == Machine(2 * GIB, GIB)


def test_version_two_in_a_namespace(kernel: Kernel) -> None:
    kernel.groups("0::/\n")
    kernel.newer("", GIB, GIB + 4096)
    assert kernel.machine() == Machine(GIB, 0)


def test_version_one(kernel: Kernel) -> None:
    kernel.groups("4:memory:/docker/abc\n3:cpuset:/docker/abc\n0::/\n")
    kernel.older("docker/abc", 3 * GIB, 2 * GIB, cache=GIB)
    assert kernel.machine() == Machine(3 * GIB, 2 * GIB)


def test_version_one_where_the_path_is_the_hosts(kernel: Kernel) -> None:
    kernel.groups("5:cpu,memory:/docker/abc\n")
    kernel.older("", GIB, GIB // 4)
    assert kernel.machine() == Machine(GIB, 3 * GIB // 4)


def test_version_one_without_a_limit(kernel: Kernel) -> None:
    kernel.groups("4:memory:/\n")
    kernel.older("", 9223372036854771712, GIB)
    assert kernel.machine() == Machine(8 * GIB, 4 * GIB)


def test_a_group_that_cannot_be_read_sets_no_limit(kernel: Kernel) -> None:
    kernel.groups("0::/one\n")
    kernel.newer("one", "a lot", 0)
    assert kernel.machine() == Machine(8 * GIB, 4 * GIB)


class Still:
    """A machine that stays as it is."""

    def __init__(self, limit: int, available: int) -> None:
        self._machine = Machine(limit, available)

    def machine(self) -> Machine:
        return self._machine

    def trees(self, roots: object) -> dict[str, int]:
        return {}


def test_a_ceiling_is_three_quarters_unless_it_is_given() -> None:
    free = Still(8 * GIB, 8 * GIB)
    assert Ceiling(free).bytes == 6 * GIB
    ceiling = Ceiling(free, 100)
    assert ceiling.over(50 * MIB, 0, 50 * MIB) == ""
    assert ceiling.over(51 * MIB, 0, 50 * MIB) == "the pool's servers hold 51 of at most 100 MiB"
    assert ceiling.over(0, 0, 500 * MIB) == ""
    with pytest.raises(ConfigError, match="memory_mb must be at least 1"):
        Ceiling(free, 0)


def test_what_the_machine_has_left_counts_what_it_cannot_show_yet() -> None:
    ceiling = Ceiling(Still(8 * GIB, GIB))
    assert ceiling.reserve == 8 * GIB // 20
    assert ceiling.over(GIB, 0, 500 * MIB) == ""
    assert "has 1024 of 8192 MiB left, and 409 MiB stay free" in ceiling.over(GIB, 200 * MIB, 500 * MIB)


def test_where_nobody_can_tell_nothing_is_refused() -> None:
    assert Ceiling(Still(0, 0)).over(1 << 60, 0, 1 << 60) == ""


@pytest.fixture
def family() -> Iterator[tuple[int, int, int]]:
    """A launcher-like process and its two children, of which the last holds 60 MiB."""
    child = "import sys; x = b'x' * (int(sys.argv[1]) << 20); print(1, flush=True); sys.stdin.read()"
    code = (
        "import subprocess, sys\n"
        "start = [sys.executable, '-I', '-S', '-c', sys.argv[1]]\n"
        "made = [subprocess.Popen([*start, mib], stdout=subprocess.PIPE) for mib in ('0', '60')]\n"
        "[p.stdout.readline() for p in made]\n"
        "print(*(p.pid for p in made), flush=True)\n"
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code, child],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        first, second = map(int, process.stdout.readline().split())
        yield process.pid, first, second
        assert process.stdin is not None
        process.stdin.close()


def test_a_tree_counts_its_launcher_and_no_other_tree(family: tuple[int, int, int]) -> None:
    launcher, small, large = family
    proc = Proc()
    alone = proc.trees({"large": large})["large"]  # with its launcher and what else that has started
    assert 60 * MIB < alone < 100 * MIB
    both = proc.trees({"small": small, "large": large})
    assert 0 < both["small"] < 20 * MIB
    assert 60 * MIB < both["large"] < alone
    parent = proc.trees({"parent": launcher, "small": small, "large": large})
    assert 0 < parent["parent"] < 20 * MIB
    assert abs(parent["large"] - both["large"]) < MIB


def test_trees_that_are_gone_weigh_nothing() -> None:
    assert Proc().trees({"gone": 2**22 + 1, "nobody": 0}) == {"gone": 0, "nobody": 0}
    assert Proc().trees({"me": os.getpid()})["me"] > 0

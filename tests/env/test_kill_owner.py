"""The owner of running episodes is killed with -9: its servers end by themselves, `gc` removes the rest.

How long they take is measured by `python -m benchmarks.kills`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from atlas_gym.runtime import engine
from atlas_gym.runtime.gc import collect
from atlas_gym.runtime.owner import Owner
from benchmarks import kills


def check(runtime: str, seed: int, folder: Path) -> None:
    if runtime in kills.CONTAINERS and (reason := engine.unavailable()):
        pytest.skip(reason)
    killed = kills.kill(runtime, seed, folder, bound=60 if runtime in kills.PROCESSES else 5)
    assert killed.left == ()
    assert killed.remains == ()
    assert killed.removed > 0


ALL = [
    *kills.PROCESSES,
    *(pytest.param(runtime, marks=pytest.mark.docker) for runtime in kills.CONTAINERS),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("runtime", ALL)
@pytest.mark.timeout(300)
def test_nothing_is_left_of_a_killed_owner(runtime: str, seed: int, tmp_path: Path) -> None:
    check(runtime, seed, tmp_path / "owner")


def test_what_was_just_being_made_goes_with_its_maker(tmp_path: Path) -> None:
    """The kill came after the directory was made, and before the record of its owner was."""
    code = "from atlas_gym.runtime.owner import Owner; print(Owner.current().tag)"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    elsewhere = f"{dead.strip()[:-8]}00000000"
    for tag in (dead.strip(), Owner.current().tag, elsewhere, "1-2", "x-y-z", "a"):
        (tmp_path / f".ep-task-0.{tag}").mkdir()
    collect(tmp_path)
    assert not (tmp_path / f".ep-task-0.{dead.strip()}").exists()
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ALL)
@pytest.mark.timeout(1200)
def test_nothing_is_left_of_ten_more_killed_owners(runtime: str, tmp_path: Path) -> None:
    """Fifty of each: `python -m benchmarks.kills`."""
    for seed in range(3, 13):
        check(runtime, seed, tmp_path / str(seed))

"""Continuous integration's report: counts per mark, and a whole mark that was skipped is a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CI = Path(__file__).resolve().parents[2] / ".ci"
TESTS = """
import pytest

def test_plain(): pass

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.docker
@pytest.mark.skip
def test_docker(): pass

@pytest.mark.net
def test_net(): assert False
"""

pytestmark = pytest.mark.skipif(not CI.is_dir(), reason="not a checkout")


def run(folder: Path, *selections: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n slow\n docker\n net\n")
    counts = folder / "counts.json"
    env = {**os.environ, "ATLAS_MARKS": str(counts), "PYTHONPATH": str(CI), **variables}
    for selection in selections:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "marks", "-m", selection]
        subprocess.run(command, cwd=folder, env=env, capture_output=True, check=False)
    report = [sys.executable, str(CI / "report.py"), str(counts), "3.5"]
    return subprocess.run(report, env=env, capture_output=True, text=True, check=False)


def test_two_runs_are_added_and_the_summary_is_last(tmp_path: Path) -> None:
    found = run(
        tmp_path, "not slow and not docker and not net", "slow or docker", ATLAS_SKIP_MARKS="docker net"
    )
    assert found.returncode == 0, found.stdout
    assert found.stdout.splitlines()[-1].strip("= ") == "2 passed, 1 skipped in 3.50s"


def test_a_mark_that_was_skipped_whole_fails_unless_asked_for(tmp_path: Path) -> None:
    found = run(tmp_path, "not net")
    assert found.returncode == 1
    assert "Marks of which nothing ran: docker, net" in found.stdout
    assert "model         0     0        0  none exist" in found.stdout


def test_a_failure_and_nothing_at_all_fail(tmp_path: Path) -> None:
    found = run(tmp_path, "net or slow", ATLAS_SKIP_MARKS="docker default")
    assert found.returncode == 1
    assert "1 failed, 1 passed" in found.stdout
    (tmp_path / "none").mkdir()
    assert "no tests ran" in run(tmp_path / "none").stdout

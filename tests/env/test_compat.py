"""The same tests on the other Gymnasium versions that we promise, each in a folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from uv import find_uv_bin

ROOT = Path(__file__).resolve().parents[2]
TESTS = ["tests/test_spaces.py", "tests/env/test_atlas_env.py", "tests/env/test_vector.py"]


@pytest.mark.compat
@pytest.mark.net
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", ["1.1.1", "1.2.3", "1.4.0"])
def test_gymnasium(version: str, tmp_path: Path) -> None:
    install = [find_uv_bin(), "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*install, "--python", sys.executable, f"gymnasium=={version}"], check=True)
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = "import gymnasium; print(gymnasium.__version__)"
    said = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == version
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]

"""Hostile cells through the whole environment: `step` never raises, and the trace can always be written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

from atlas_gym.sandbox import available

CELLS = Path(__file__).parents[1] / "cells" / "hostile_more"
CHOSEN = """
03_forged_frames_every_fd 05_forged_deep_frame 06_forged_deep_call 07_forged_odd_calls 11_nonblocking_protocol
15_thread_forges_between_cells 26_print_gigabyte 28_hostile_repr 29_hostile_exception 32_name_bomb
40_answer_from_threads 42_huge_args 43_deep_args 44_odd_args
"""

pytestmark = pytest.mark.skipif(bool(available("sealed")), reason=available("sealed") or "available")


@pytest.fixture(scope="module")
def env() -> Iterator[Any]:
    made: Any = gym.make(
        "Atlas-MCP-v0", suite="toy", runtime="memory", exposure="eager", budget={"cell_seconds": 1}
    ).unwrapped
    yield made
    made.close()


def act(code: str) -> str:
    return json.dumps({"name": "run_code", "arguments": {"code": code}})


@pytest.mark.parametrize("name", CHOSEN.split())
def test_a_hostile_cell_is_one_step_among_others(env: Any, name: str) -> None:
    env.reset(seed=1)
    code = (CELLS / f"{name}.py").read_text(encoding="utf-8")
    observation, *_ = env.step(act(code.replace("Math", env.episode.servers[0])))
    observation["result"].encode()
    assert env.trajectory.stop in ("", "tool_calls", "answer")
    json.dumps(env.trajectory.to_json(), allow_nan=False, ensure_ascii=False).encode()
    env.reset(seed=1)
    observation, *_ = env.step(act("print(6 * 7)"))
    assert observation["result"].strip() == "42"


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("answer('7')", True),
        ("import sys\nanswer('7')\nsys.exit()", True),
        ("answer('7')\nexit(0)", True),
        ("answer('7')\n1 / 0", False),
    ],
)
def test_an_answer_stands_unless_its_cell_failed(env: Any, code: str, ends: bool) -> None:
    env.reset(seed=1)
    _, _, terminated, _, _ = env.step(act(code))
    assert terminated is ends
    assert env.trajectory.answer == ("7" if ends else None)

"""Episodes with sick servers beside healthy ones: none hangs, none leaks, every failure is typed.

The long version, with what sick servers cost the healthy episodes, is `python -m benchmarks.chaos`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from atlas_gym.context.budget import Budget
from atlas_gym.env.episode import Episode, EpisodeSettings
from atlas_gym.rollout.gold import call_text
from atlas_gym.rollout.play import play
from atlas_gym.rollout.policy import ScriptedPolicy
from atlas_gym.types import Trajectory
from atlas_gym.wire.loop import portal
from benchmarks import chaos

SLOW = {"huge", "over-long", "endless-line"}
"""Megabytes to read or to tokenise: the tests of the wire have them too."""


@pytest.mark.parametrize("prefork", [False, True], ids=["spawn", "prefork"])
@pytest.mark.timeout(200)
def test_nothing_hangs_nothing_leaks_and_every_failure_is_typed(
    prefork: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    modes = sorted(set(chaos.CHAOS) - SLOW)
    modes = modes[::2] if prefork else modes[1::2]
    world = chaos.make_world(modes, prefork=prefork)

    def run(names: list[str]) -> list[chaos.Played]:
        jobs = [chaos.job(world, name, call_seconds=5.0) for name in names]
        try:
            return portal().run(chaos.play(jobs, at_once=10), timeout=150)
        finally:
            portal().run(world.housing.aclose())

    run([chaos.HEALTHY, "plain" if "plain" in modes else modes[0]])  # what is made once per process
    before = chaos.held()
    played = run(chaos.schedule(modes, 2 * len(modes), seed=3))
    after = chaos.held()
    assert [line for one in played for line in chaos.problems(one)] == []
    assert {one.mode for one in played} == {chaos.HEALTHY, *modes}
    assert all(one.trajectory.stop == "answer" for one in played if one.mode == chaos.HEALTHY)
    assert {key: (before[key], after[key]) for key in before if after[key] > before[key]} == {}
    assert [path.name for path in (tmp_path / "run").iterdir() if path.name != "stats"] == []


def test_time_that_runs_out_in_a_call_that_hangs_is_no_infra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    world = chaos.make_world(["hang"])
    budget = Budget.from_mapping({"call_seconds": 1.5, "episode_seconds": 1.0})
    options = EpisodeSettings(exposure="eager", execution="json", budget=budget)
    task = chaos.task("hang")
    messages = [call_text("hang:bad") + call_text("hang:ok")]

    async def go() -> Trajectory:
        try:
            return await play(
                Episode(world, task, task.visible, options, 0), lambda _: ScriptedPolicy(messages)
            )
        finally:
            await world.housing.aclose()

    trace = portal().run(go(), timeout=100)
    assert [chaos.said(r) for r in trace.turns[0].results] == ["tool_error timeout"]
    assert (trace.stop, trace.reward_valid, trace.reward) == ("time", True, 0.0)

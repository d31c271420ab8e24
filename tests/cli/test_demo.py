"""The demo on in-process servers: what is shown, what is saved, and its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from atlas_gym.cli.app import app
from atlas_gym.rollout.traces import read_traces
from atlas_gym.sandbox import available
from atlas_gym.viewer.growth import missing


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")


def test_the_demo_shows_an_episode_and_a_table_and_saves_everything(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["demo", "--suite", "toy", "--runtime", "memory", "--tasks", "2", "--out", str(out)]
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 0, found.output
    text = found.stdout
    assert text.index("turn 1") < text.index("turn 2") < text.index("reward 1.00") < text.index("eager/json")
    assert "2/2" in text
    assert "31,000 context tokens, 30 turns and 20 tool calls" in " ".join(text.split())
    assert "atlas-gym tasks verify" in text
    played = list(read_traces(out / "traces.jsonl"))
    assert len(played) == 16
    assert all(t.reward == 1.0 and t.policy == "gold" for t in played)
    assert len(json.loads((out / "table.json").read_text())["rows"]) == 8
    assert (out / "table.md").is_file()
    if not missing():
        assert (out / "context_growth.png").is_file()
        assert (out / "context_growth.svg").is_file()


@pytest.mark.skipif(bool(available("monty")), reason=available("monty"))
def test_where_the_kernel_cannot_seal_the_demo_says_that_it_uses_monty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atlas_gym.runtime import kernel

    monkeypatch.setattr(kernel, "probe", lambda: kernel.Walls(0, False, "this kernel has none"))
    arguments = ["demo", "--suite", "toy", "--runtime", "memory", "--tasks", "1", "--variant", "tools/code"]
    found = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path)])
    said = " ".join(found.stdout.split())
    assert "cannot seal an interpreter (this kernel has none)" in said
    assert "in monty instead, never without walls" in said
    sandboxes = {t.settings["sandbox"] for t in read_traces(tmp_path / "traces.jsonl")}
    assert sandboxes == {"monty"}
    assert found.exit_code == 0, found.output


def test_an_output_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    arguments = ["demo", "--suite", "toy", "--runtime", "memory", "--tasks", "1"]
    found = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "file" / "out")])
    assert found.exit_code == 2
    assert "Writing the trace" in found.stderr


def test_the_demo_is_played_again_from_its_recording(tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["demo", "--suite", "toy", "--runtime", "memory", "--tasks", "2", "--out", str(out)]
    arguments += ["--variant", "tools/json", "--variant", "tools/code"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    live = list(read_traces(out / "traces.jsonl"))
    found = CliRunner().invoke(app, [*arguments, "--replay"])
    assert found.exit_code == 0, found.output
    assert "a recording of in-process servers" in " ".join(found.stdout.split())
    again = list(read_traces(out / "traces.jsonl"))
    key = {(t.task_id, t.settings["exposure"], t.settings["execution"]): t for t in live}
    for played in again:
        before = key[played.task_id, played.settings["exposure"], played.settings["execution"]]
        assert [t.observation for t in played.turns] == [t.observation for t in before.turns]
        assert played.settings["cassette"]["mode"] == "replay"
    missing_one = CliRunner().invoke(
        app, [*arguments[:-1], "tools/json", "--replay", "--out", str(tmp_path / "no")]
    )
    assert missing_one.exit_code == 2
    assert "There is no cassette" in missing_one.stderr

"""Environments that record and replay, over in-process servers and one of a user's mcp.json."""

from __future__ import annotations

import json
import sqlite3
import sys
import zlib
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import typer
from typer.testing import CliRunner

from atlas_gym.cli.cassette import app
from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.env.vector import AtlasVectorEnv
from atlas_gym.errors import ConfigError, UnknownNameError
from atlas_gym.rollout.gold import call_text, gold
from atlas_gym.rollout.play import Job, play_all
from atlas_gym.rollout.policy import empty_answer
from atlas_gym.types import Trajectory
from atlas_gym.wire import fake
from atlas_gym.wire.cassette import Cassette, CassetteError

WRITE: dict[str, Any] = {"options": {"task_id": "toy/shopping_list-0000"}}


@pytest.fixture(autouse=True)
def own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "toy.cassette")


def make(path: str, mode: str, **kwargs: Any) -> AtlasEnv:
    toy = {"suite": "toy", "runtime": "memory", "exposure": "eager", "execution": "json"}
    return AtlasEnv(**{**toy, "cassette": path, "cassette_mode": mode, **kwargs})


def golden(env: AtlasEnv, seed: int = 0) -> list[Trajectory]:
    jobs = [Job(lambda t=task: env.draw(seed, {"task_id": t.id}), gold) for task in env.tasks()]  # type: ignore[misc]
    return play_all(jobs, at_once=3)


def plain(trajectory: Trajectory) -> str:
    raw = trajectory.to_json()
    del raw["settings"]["cassette"]
    for turn in raw["turns"]:
        del turn["seconds"]
        for result in turn["results"]:
            del result["seconds"]
    return json.dumps(raw)


@pytest.mark.parametrize("exposure", ["eager", "servers", "tools", "search"])
@pytest.mark.parametrize("execution", ["json", "code"])
def test_a_replay_is_the_recorded_episode(path: str, exposure: str, execution: str, tmp_path: Path) -> None:
    how = {"exposure": exposure, "execution": execution}
    live = golden(make(path, "record", **how))
    before = Path(path).read_bytes()
    again = golden(make(path, "replay", **how))
    assert list(map(plain, again)) == list(map(plain, live))
    assert all(t.reward == 1.0 for t in again)
    assert Path(path).read_bytes() == before
    digest = Cassette.open(path).digest()
    assert {json.dumps(t.settings["cassette"]) for t in again} == {
        json.dumps({"mode": "replay", "digest": digest, "live": False})
    }
    assert {t.settings["cassette"]["live"] for t in live} == {True}
    assert list((tmp_path / "run").glob("ep-*")) == []


def test_the_specification_is_plain_json(path: str) -> None:
    golden(make(path, "record"))
    env = gym.make("Atlas-MCP-v0", suite="toy", runtime="memory", cassette=path, cassette_mode="replay")
    assert env.spec is not None
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    first, second = env.reset(seed=3), again.reset(seed=3)
    assert (first[0]["prompt"], first[1]) == (second[0]["prompt"], second[1])
    env.close()
    again.close()


def test_a_miss_ends_the_episode_as_infra(path: str) -> None:
    golden(make(path, "record"))
    env = make(path, "replay")
    _, info = env.reset(seed=0, **WRITE)
    assert info["stop"] == ""
    _, reward, terminated, truncated, after = env.step(
        call_text("notes:write_note", path="other.txt", text="x")
    )
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert (after["stop"], after["invalid_reason"], after["reward_valid"]) == ("infra", "infra", 0)
    assert "no answer to notes.write_note" in after["error"]
    assert "cassette_mode='record'" in after["error"]
    assert after.keys() == info.keys()
    env.close()


def test_what_was_not_recorded_to_its_end_has_no_reward(path: str) -> None:
    golden(make(path, "record"))
    cassette = Cassette.open(path)
    ((task, tool, arguments),) = cassette.ask(
        "SELECT t.task, c.tool, c.arguments FROM calls c JOIN takes t ON t.id = c.take WHERE c.writes "
        "AND t.task = ? ORDER BY c.take, c.number LIMIT 1",
        WRITE["options"]["task_id"],
    )
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM ends")
    db.close()
    env = make(path, "replay")
    env.reset(seed=0, options={"task_id": task})
    env.step(call_text(f"notes:{tool}", **json.loads(arguments)))
    *_, info = env.step("<answer>x</answer>")
    assert (info["invalid_reason"], info["reward_valid"]) == ("infra", 0)
    assert "no episode with this set-up was recorded to its end" in info["error"]
    env.close()


def test_who_calls_nothing_is_judged_by_the_set_up(path: str) -> None:
    golden(make(path, "record"))
    for mode in ("replay", "replay-or-live"):
        env = make(path, mode)
        jobs = [Job(lambda t=task, e=env: e.draw(0, {"task_id": t.id}), empty_answer) for task in env.tasks()]  # type: ignore[misc]
        for played in play_all(jobs):
            assert (played.reward, played.reward_valid, played.stop) == (0.0, True, "answer")


def test_a_miss_goes_live_where_that_is_allowed(path: str) -> None:
    golden(make(path, "record"))
    env = make(path, "replay-or-live")
    env.reset(seed=0, **WRITE)
    cassette = Cassette.open(path)
    ((arguments,),) = cassette.ask(
        "SELECT c.arguments FROM calls c JOIN takes t ON t.id = c.take WHERE c.writes AND t.task = ? LIMIT 1",
        WRITE["options"]["task_id"],
    )
    given = json.loads(arguments)
    env.step(call_text("notes:write_note", **given))
    observation, *_ = env.step(call_text("notes:read_note", path=given["path"]))  # gold does not read it
    assert given["text"] in observation["result"]
    *_, info = env.step("<answer>done</answer>")
    assert info["reward_valid"] == 1
    assert env.trajectory.settings["cassette"]["live"] is True
    played = env.trajectory
    env.close()
    texts = [turn.text for turn in played.turns]
    env = make(path, "replay")  # what was live is recorded now
    env.reset(seed=0, **WRITE)
    for text in texts:
        env.step(text)
    assert plain(env.trajectory) == plain(played)
    env.close()


def test_replay_or_live_records_what_is_not_there_at_all(path: str) -> None:
    live = golden(make(path, "replay-or-live"))
    assert all(t.reward == 1.0 for t in live)
    assert list(map(plain, golden(make(path, "replay")))) == list(map(plain, live))


def test_a_file_that_was_removed_is_recorded_again(path: str) -> None:
    env = make(path, "record")
    golden(env)
    Path(path).unlink()
    live = golden(env)
    assert all(t.reward == 1.0 for t in live)
    assert list(map(plain, golden(make(path, "replay")))) == list(map(plain, live))


def test_a_vector_replays_too(path: str) -> None:
    golden(make(path, "record"), seed=0)
    how: dict[str, Any] = {"exposure": "eager", "execution": "json", "suite": "toy", "runtime": "memory"}
    envs = AtlasVectorEnv(num_envs=3, cassette=path, cassette_mode="replay", **how)
    envs.reset(seed=[0, 0, 0], options={"task_id": "toy/take_some-0000"})
    live = make(path, "record")
    (played,) = play_all([Job(lambda: live.draw(0, {"task_id": "toy/take_some-0000"}), gold)])
    for turn in played.turns:
        observations, rewards, *_ = envs.step([turn.text] * 3)
        assert set(observations["result"]) == {turn.observation}
    assert list(rewards) == [1.0, 1.0, 1.0]
    envs.close()


def test_wrong_arguments_are_said(path: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="replay-or-live"):
        make(path, "replay or live")
    with pytest.raises(ConfigError, match="cassette"):
        make(7, "replay")  # type: ignore[arg-type]
    with pytest.raises(CassetteError, match="There is no cassette"):
        make(path, "replay").reset(seed=0)
    (tmp_path / "text").write_text("x" * 5000)
    for mode in ("record", "replay", "replay-or-live"):
        with pytest.raises(CassetteError, match="no cassette of atlas-gym"):
            make(str(tmp_path / "text"), mode).reset(seed=0)
    golden(make(path, "record"))
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM servers WHERE name = 'colours'")
    db.close()
    with pytest.raises(ConfigError, match=r"tools of server 'colours': it knows kitchen, notes, numbers"):
        make(path, "replay", servers=["colours"]).reset(seed=0)


TASK = {
    "id": "mine/one-0000",
    "suite": "mine",
    "difficulty": "easy",
    "prompt": "Say hello through the echo tool.",
    "servers": ["mine"],
    "checks": [{"kind": "called", "name": "said", "server": "mine", "tools": ["echo"]}],
    "gold": "answer(MCPServer('mine').echo(text='hello'))",
}


def test_ones_own_server_plays_where_it_is_not_there_and_its_keys_stay(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_VARIABLE", "hunter22")
    (tmp_path / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    file = tmp_path / "mcp.json"
    variables = {"MY_VARIABLE": "${MY_VARIABLE}", "API_KEY": "letmein99", "LEVEL": "verbose"}

    def play(mode: str, command: str, text: str) -> dict[str, Any]:
        entry = {"command": command, "args": [str(Path(fake.__file__))], "env": variables}
        file.write_text(json.dumps({"mcpServers": {"mine": entry}}))
        how = {"suite": str(tmp_path), "mcp_json": str(file), "runtime": "process"}
        env = make(path, mode, **how)
        env.reset(seed=0)
        observation, *_ = env.step(call_text("mine:echo", text=text))
        *_, info = env.step("<answer>hello</answer>")
        env.close()
        return {"result": observation["result"], **info}

    live = play("record", sys.executable, "hunter22 letmein99 verbose")
    assert "[removed] [removed] verbose" in live["result"]
    kept = [zlib.decompress(data) for (data,) in Cassette.open(path).ask("SELECT data FROM contents")]
    for secret in (b"hunter22", b"letmein99"):
        assert secret not in Path(path).read_bytes() + b"".join(kept)
    monkeypatch.delenv("MY_VARIABLE")
    variables["API_KEY"] = ""
    again = play("replay", "no-such-program", "[removed] [removed] verbose")
    assert again["result"] == live["result"]
    assert again["reward_valid"] == live["reward_valid"] == 1


def test_the_command_shows_what_is_inside(path: str) -> None:
    golden(make(path, "record"))
    program = typer.Typer()
    program.add_typer(app, name="cassette")
    found = CliRunner().invoke(program, ["cassette", "show", path, "--json"])
    assert found.exit_code == 0
    about = json.loads(found.output)
    assert about["digest"] == Cassette.open(path).digest()
    assert {row["name"] for row in about["servers"]} >= {"kitchen", "notes", "numbers"}
    assert sum(row["whole"] for row in about["tasks"]) == len(about["tasks"])
    text = CliRunner().invoke(program, ["cassette", "show", path])
    assert text.exit_code == 0
    assert "toy/take_some-0000" in text.output

"""A user's own mcp.json, unchanged, beside the servers that a task needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.errors import ConfigError, UnknownNameError
from atlas_gym.rollout.gold import call_text
from atlas_gym.wire import fake

TASK = {
    "id": "mine/one-0000",
    "suite": "mine",
    "difficulty": "easy",
    "prompt": "Say hello through the echo tool.",
    "servers": ["mine"],
    "checks": [{"kind": "called", "name": "said", "server": "mine", "tools": ["echo"]}],
    "gold": "answer(MCPServer('mine').echo(text='hello'))",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The listing of a user's server is cached; not in the real cache here."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))


def write(folder: Path, command: str = sys.executable) -> str:
    servers = {"mine": {"command": command, "args": [str(Path(fake.__file__))], "env": {"MODE": "x"}}}
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    (folder / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    return str(file)


def test_a_task_over_ones_own_server(tmp_path: Path) -> None:
    env = AtlasEnv(suite=str(tmp_path), mcp_json=write(tmp_path), exposure="eager", execution="json")
    _, info = env.reset(seed=0)
    assert info["isolated"] == 1
    observation, *_ = env.step(call_text("mine:echo", text="hello"))
    assert "hello" in observation["result"]
    _, reward, terminated, _, info = env.step("<answer>hello</answer>")
    assert (reward, terminated, info["reward_valid"]) == (1.0, True, 1)
    env.close()


def test_ones_own_server_beside_a_task(tmp_path: Path) -> None:
    env = AtlasEnv(suite=str(tmp_path), mcp_json=write(tmp_path), servers=["mine"])
    env.reset(seed=0)
    assert env.episode.servers == ("mine",)
    env.close()
    with pytest.raises(UnknownNameError, match="'mine'"):
        AtlasEnv(suite=str(tmp_path), mcp_json=write(tmp_path), servers=["mein"]).reset(seed=0)


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    env = AtlasEnv(suite=str(tmp_path), mcp_json=write(tmp_path, "no-such-program"))
    with pytest.raises(ConfigError, match="no-such-program"):
        env.reset(seed=0)

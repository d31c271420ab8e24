"""A server of the user's mcp.json that runs elsewhere, beside one that is started: no secret is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.errors import ConfigError
from atlas_gym.rollout.gold import call_text
from atlas_gym.wire import fake

SECRET = "hunter2-hunter2"
TASK = {
    "id": "mine/one-0000",
    "suite": "mine",
    "difficulty": "easy",
    "prompt": "Say hello through both servers.",
    "servers": ["far", "near"],
    "checks": [{"kind": "called", "name": "said", "server": "far", "tools": ["echo"]}],
    "gold": "answer(MCPServer('far').echo(text='hello'))",
}


@pytest.fixture
def address() -> Iterator[str]:
    script = str(Path(__file__).parents[1] / "http_server.py")
    with subprocess.Popen(
        [sys.executable, "-B", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"
        process.kill()


def written(folder: Path, address: str) -> str:
    servers = {
        "far": {"url": address, "headers": {"Authorization": "Bearer ${SOME_TOKEN}"}},
        "near": {"command": sys.executable, "args": [str(Path(fake.__file__))]},
    }
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    (folder / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    return str(file)


def test_both_sorts_of_servers_in_one_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    env = AtlasEnv(
        suite=str(tmp_path), mcp_json=written(tmp_path, address), exposure="eager", execution="json"
    )
    observation, info = env.reset(seed=0)
    assert info["isolated"] == 0
    for server in ("far", "near"):
        observation, *_ = env.step(call_text(f"{server}:echo", text="hello"))
        assert "hello" in observation["result"]
    observation, *_ = env.step(call_text("far:die"))
    _, reward, _, truncated, info = env.step("<answer>hello</answer>")
    assert (reward, truncated, info["stop"], info["reward_valid"]) == (0.0, True, "infra", 0)
    said = json.dumps(asdict(env.trajectory), default=repr) + repr(vars(env))
    env.close()
    assert SECRET not in said
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert kept == []


def test_a_variable_that_is_not_set_is_named_at_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SOME_TOKEN", raising=False)
    env = AtlasEnv(suite=str(tmp_path), mcp_json=written(tmp_path, "http://127.0.0.1:9/mcp"))
    with pytest.raises(ConfigError, match="names the variable SOME_TOKEN, which is not set"):
        env.reset(seed=0)

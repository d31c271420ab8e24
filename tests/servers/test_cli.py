from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from atlas_gym.cli.servers import app, described
from atlas_gym.errors import ConfigError, StartError, UnknownNameError
from atlas_gym.runtime import base_image, image
from tests.docker_base import base_or_skip


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    file = tmp_path / "mcp.json"
    demo = {"command": sys.executable, "args": ["-m", "atlas_gym.wire.fake"]}
    bad = {"command": sys.executable, "args": ["-c", "raise SystemExit('no thanks')"]}
    file.write_text(
        json.dumps({"mcpServers": {"demo": demo, "bad": bad, "far": {"url": "https://example.com/mcp"}}})
    )
    return str(file)


@pytest.mark.parametrize("command", [[], ["list"], ["install"], ["lock"], ["check"], ["build"], ["base"]])
def test_help_teaches_with_examples(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "Examples" in result.output
    assert "atlas-gym servers" in result.output


def test_list_says_what_cannot_run_and_why(mine: str) -> None:
    result = run("list", "--mcp-json", mine)
    assert result.exit_code == 0
    assert "mcp-server-git" in result.output
    rows = {row["name"]: row for row in json.loads(run("list", "--mcp-json", mine, "--json").output)}
    assert rows["calc-mcp"]["tools"] == 21
    assert rows["calc-mcp"]["package"] == "@coo-quack/calc-mcp==2.1.1"
    assert rows["far"]["status"] == "runs elsewhere"
    assert rows["demo"]["status"] == "not asked yet"


def test_install_goes_on_after_a_failure_and_exits_1(mine: str) -> None:
    result = run("install", "demo", "bad", "--mcp-json", mine, "--json")
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert said["done"] == {"demo": 9}
    assert "no thanks" in said["failed"]["bad"]
    rows = {row["name"]: row for row in json.loads(run("list", "--mcp-json", mine, "--json").output)}
    assert (rows["demo"]["status"], rows["demo"]["tools"]) == ("installed", 9)


def test_check_of_one_server(mine: str) -> None:
    result = run("check", "demo", "--mcp-json", mine)
    assert result.exit_code == 0
    assert "as locked, 9 tools" in result.output


def test_errors_are_ours(mine: str) -> None:
    assert isinstance(run("check", "mcp-server-gti").exception, UnknownNameError)
    assert isinstance(run("lock", "calc").exception, UnknownNameError)
    nothing = run("install").exception
    assert isinstance(nothing, ConfigError)
    assert "--all" in str(nothing)


def test_a_corrupt_lock_hides_no_other_server(tiny: Any) -> None:
    (tiny.folder / "lock.json").write_text("{")
    row = described(tiny.server)
    assert row["status"] == "unavailable"
    assert "lock.json: corrupt" in row["reason"]


def test_lock_of_a_folder(tiny: Any) -> None:
    tiny.edit("server.toml", 'nondeterministic = ["now"]', "nondeterministic = []")
    tiny.edit("examples.toml", '{ tool = "read" }', '{ tool = "fail" }')
    result = run("lock", str(tiny.folder), "--tools-only")
    assert result.exit_code == 0
    assert "tiny: 3 tools locked, results of 2 observed; dependencies unchanged" in result.output
    assert "fail failed: not today" in result.output
    assert "Answered differently on two fresh servers: now" in result.output
    written = json.loads(run("lock", str(tiny.folder), "--json").stdout)
    assert written["restless"] == ["now"]
    assert described(tiny.server)["status"] == "installed"


def test_building_needs_a_name_and_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = run("build").exception
    assert isinstance(nothing, ConfigError)
    assert "--all" in str(nothing)
    assert isinstance(run("build", "mcp-server-gti").exception, UnknownNameError)
    odd = run("base", "--from", "debotstrap").exception
    assert isinstance(odd, UnknownNameError)
    assert "'debootstrap'" in str(odd)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    for command in (["build", "calc-mcp"], ["build", "--prune"], ["base"]):
        refused = run(*command).exception
        assert isinstance(refused, StartError)
        assert "docker.io" in str(refused)


@pytest.mark.docker
@pytest.mark.servers
@pytest.mark.timeout(600)
def test_an_image_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_or_skip()
    first = json.loads(run("build", "server-filesystem", "--base", base, "--json").stdout)["done"]
    again = run("build", "server-filesystem", "--base", base, "--json")
    assert again.exit_code == 0
    row = json.loads(again.stdout)["done"]["server-filesystem"]
    assert row["image"] == first["server-filesystem"]["image"]
    assert not row["built"]
    assert row["megabytes"] > 1
    monkeypatch.setenv("ATLAS_BASE_NODE", base)
    shown = run("build", "server-filesystem")
    assert "was there" in shown.output
    assert row["image"] in shown.output


@pytest.mark.docker
def test_failed_builds_are_shown() -> None:
    base_or_skip()
    result = run("build", "calc-mcp", "--base", "localhost:1/none")
    assert result.exit_code == 1
    assert "calc-mcp failed: The base image localhost:1/none is not here" in result.output
    assert (
        "is not here"
        in json.loads(run("build", "calc-mcp", "--base", "localhost:1/none", "--json").stdout)["failed"][
            "calc-mcp"
        ]
    )


@pytest.mark.docker
def test_a_base_is_made_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_or_skip()
    # Not the machine's own default: whoever runs the tests may have chosen it.
    monkeypatch.setattr(base_image, "DEFAULT", "atlas-gym/test-default:latest")
    try:
        result = run("base", "--tag", "atlas-gym/test-tag")
        assert result.exit_code == 0
        assert "atlas-gym/test-tag, " in result.output
        same = {
            (base_image.find(name) or {})["Id"] for name in (base, base_image.DEFAULT, "atlas-gym/test-tag")
        }
        assert len(same) == 1
    finally:
        image._removed([base_image.DEFAULT, "atlas-gym/test-tag"])

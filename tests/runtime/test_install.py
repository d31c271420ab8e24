"""The package tools: how their failures are told, and which Node is used. Real installs: tests/servers."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from atlas_gym.errors import InstallError, LockError, StorageError
from atlas_gym.runtime import node, uv
from atlas_gym.runtime.relock import without_addresses

ENV = {"PATH": os.environ["PATH"]}


def test_output_of_a_tool_that_succeeds(tmp_path: Path) -> None:
    assert uv.run_tool(["sh", "-c", "echo out; echo err >&2"], cwd=tmp_path, env=ENV) == "out\n"


def test_a_failure_tells_the_last_lines(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match=r"sh failed with status 3: .*line 40\b.*try again"):
        uv.run_tool(["sh", "-c", "seq -f 'line %g' 40 >&2; exit 3"], cwd=tmp_path, env=ENV)


@pytest.mark.parametrize(
    "said", ["No space left on device (os error 28)", "npm ERR! code ENOSPC", "EACCES: permission denied"]
)
def test_a_full_or_locked_disk_is_told_apart(tmp_path: Path, said: str) -> None:
    with pytest.raises(StorageError, match="ATLAS_CACHE"):
        uv.run_tool(["sh", "-c", f"echo '{said}' >&2; exit 1"], cwd=tmp_path, env=ENV)


def test_a_tool_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InstallError, match="no-such-tool cannot be run"):
        uv.run_tool(["/no-such-tool"], cwd=tmp_path, env=ENV)


def test_the_running_interpreter_is_preferred() -> None:
    assert uv.interpreter(">=3.11") == sys.executable
    assert uv.minor(">=3.11") == sys.version_info[:2]
    assert uv.unavailable(">=3.11") == ""
    assert uv.minor(">=3.99") == (0, 0)


def test_prefix_of_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    for place in (home / "bin", tmp_path / "opt" / "node" / "bin", tmp_path / "tools"):
        place.mkdir(parents=True)
        (place / "tool").touch()
    monkeypatch.setenv("HOME", str(home))
    assert node.prefix_of(tmp_path / "opt" / "node" / "bin" / "tool") == tmp_path / "opt" / "node"
    assert node.prefix_of(tmp_path / "tools" / "tool") == tmp_path / "tools"
    assert node.prefix_of(home / "bin" / "tool") == home / "bin", "the home itself must stay out of reach"
    link = home / "bin" / "link"
    link.symlink_to(tmp_path / "opt" / "node" / "bin" / "tool")
    assert node.prefix_of(link) == tmp_path / "opt" / "node"


def fake_node(place: Path, version: str) -> None:
    place.mkdir()
    for name, text in (("node", f"echo {version}"), ("npm", "exit 0")):
        (place / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / name).chmod(0o755)


@pytest.mark.parametrize(("version", "used"), [("v20.1.0", True), ("v18.19.0", False), ("nonsense", False)])
def test_only_a_node_that_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, used: bool
) -> None:
    fake_node(tmp_path / "bin", version)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    said: list[str] = []
    if used:
        assert node.require(said.append).node == tmp_path / "bin" / "node"
        assert said == []
    else:
        with pytest.raises(InstallError):
            node.require(said.append)
        assert len(said) == 1
        assert not [p for p in (tmp_path / "cache" / "servers").iterdir() if not p.name.endswith(".lock")]


@pytest.mark.net
@pytest.mark.slow
def test_where_node_is_missing_it_comes_from_pypi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("sh", "env"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    assert node.unavailable() == ""
    tool = node.require(lambda _message: None)
    assert tool.node.is_relative_to(tmp_path / "cache")
    assert tool.node.is_relative_to(tool.prefix)
    assert node.require(lambda _message: pytest.fail("installed twice")) == tool
    place = tmp_path / "project"
    place.mkdir()
    assert node.run_npm(tool, "--version", cwd=place).strip()


def test_a_node_lock_holds_no_address() -> None:
    entry = {"version": "1", "integrity": "sha512-x", "resolved": "https://x/y.tgz", "funding": {"url": "z"}}
    made = without_addresses({"lockfileVersion": 3, "packages": {"": {"name": "r"}, "node_modules/a": entry}})
    assert made == {
        "lockfileVersion": 3,
        "packages": {"": {"name": "r"}, "node_modules/a": {"version": "1", "integrity": "sha512-x"}},
    }
    with pytest.raises(LockError, match="node_modules/b has no integrity"):
        without_addresses({"packages": {"node_modules/b": {"version": "1"}}})

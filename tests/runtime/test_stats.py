"""Numbers are counted, written at most once a second, read back, and do not pile up."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.runtime import stats
from atlas_gym.runtime.owner import Owner
from atlas_gym.runtime.stats import Board, ServerStats, SpareStats, Window


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    return tmp_path / "run"


def leave(run_dir: Path, name: str, written: float, **owner: object) -> Path:
    """The file of another process."""
    of = {**json.loads(Owner.current().to_json()), **owner}
    record = {"schema": stats.SCHEMA, "owner": of, "began": 1.0, "written": written, "pools": [{"n": name}]}
    path = run_dir / "stats" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))
    return path


def test_a_window() -> None:
    window = Window()
    assert window.to_json() == {"count": 0, "p50": None, "p95": None, "max": None}
    for value in range(1, 101):
        window.add(float(value))
    assert window.to_json() == {"count": 100, "p50": 50.0, "p95": 95.0, "max": 100.0}
    for _ in range(1000):
        window.add(0.5)
    assert window.to_json() == {"count": 1100, "p50": 0.5, "p95": 0.5, "max": 100.0}


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.floats(0.01, 1.0))
def test_a_quantile_is_the_smallest_value_that_the_share_does_not_exceed(
    values: list[float], share: float
) -> None:
    window = Window()
    for value in values:
        window.add(value)
    found = window.quantile(share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values)


def test_counters_as_json() -> None:
    server = ServerStats()
    server.begun()
    server.begun()
    server.live -= 1
    server.starts["spawn"] += 2
    raw = json.loads(json.dumps(server.to_json()))
    assert (raw["live"], raw["peak"], raw["starts"]) == (1, 2, {"spawn": 2})
    spares = SpareStats(hits=3, misses=1)
    assert spares.to_json()["hit_rate"] == 0.75
    assert SpareStats().to_json()["hit_rate"] is None


@pytest.mark.asyncio
async def test_written_at_once_and_then_at_most_once_a_second(run_dir: Path) -> None:
    clock = Clock()
    board = Board(clock)
    numbers = {"value": 1}
    source = numbers.copy
    board.add(lambda: source())

    def read() -> int:
        return int(json.loads(board.path.read_text())["pools"][0]["value"])

    board.changed()
    assert read() == 1
    source = {"value": 2}.copy
    clock.now += 0.75
    board.changed()
    board.changed()
    assert read() == 1
    due = board._timer
    assert due is not None
    assert due[1].when() - asyncio.get_running_loop().time() == pytest.approx(0.25, abs=0.2)
    clock.now += 0.25
    due[1]._run()  # as the loop does when the time has come
    assert read() == 2
    board.write()
    assert board._timer is None


@pytest.mark.asyncio
async def test_what_has_finished_stays_to_be_read(run_dir: Path) -> None:
    board = Board(Clock())

    def source() -> dict[str, int]:
        return {"value": 7}

    board.add(source)
    board.add(source)
    board.finish(source)
    board.finish(source)
    (report,) = stats.reports()
    assert (report.verdict, report.pools) == ("alive", ({"value": 7},))
    for number in range(20):
        board.add(again := (lambda number=number: {"value": number}))
        board.finish(again)
    assert [pool["value"] for pool in stats.reports()[0].pools] == list(range(12, 20))


def test_reports_are_newest_first_and_say_who_lives(run_dir: Path) -> None:
    assert stats.reports() == []
    leave(run_dir, "dead", 5.0, start=1)
    leave(run_dir, "mine", 7.0)
    leave(run_dir, "elsewhere", 6.0, node="another-machine")
    for name, text in (("half", '{"schema": 1, "ow'), ("list", "[]"), ("other", '{"schema": 99}')):
        (run_dir / "stats" / f"{name}.json").write_text(text)
    (run_dir / "stats" / "link.json").symlink_to(run_dir / "stats" / "mine.json")
    found = [(report.path.stem, report.verdict) for report in stats.reports()]
    assert found == [("mine", "alive"), ("elsewhere", "unknown"), ("dead", "dead")]
    raw = stats.reports()[0].to_json()
    assert (raw["pid"], raw["owner"], raw["pools"]) == (os.getpid(), "alive", [{"n": "mine"}])


def test_only_files_of_the_dead_are_removed_and_the_latest_stay(run_dir: Path) -> None:
    assert stats.prune() == []
    for number in range(5):
        leave(run_dir, f"dead-{number}", float(number), start=1)
    leave(run_dir, "mine", 0.0)
    leave(run_dir, "elsewhere", 0.0, node="another-machine")
    own = Owner.current()
    (run_dir / "stats" / "17-1.part").write_text("half")
    (run_dir / "stats" / f"{own.pid}-{own.start}.part").write_text("half")
    removed = sorted(path.name for path in stats.prune(keep=2))
    assert removed == ["17-1.part", "dead-0.json", "dead-1.json", "dead-2.json"]
    left = sorted(path.name for path in (run_dir / "stats").iterdir())
    assert left == [
        f"{own.pid}-{own.start}.part",
        "dead-3.json",
        "dead-4.json",
        "elsewhere.json",
        "mine.json",
    ]


def test_a_new_process_leaves_no_more_than_twenty_others(run_dir: Path) -> None:
    for number in range(30):
        leave(run_dir, f"dead-{number}", float(number), start=1)
    Board().write()
    assert len(list((run_dir / "stats").iterdir())) == stats.KEPT


def test_a_full_disk_loses_numbers_only(run_dir: Path) -> None:
    run_dir.mkdir()
    (run_dir / "stats").write_text("in the way")
    board = Board()
    board.write()
    assert (run_dir / "stats").read_text() == "in the way"


def test_a_forked_child_writes_nothing_of_its_parents(run_dir: Path) -> None:
    before = stats.board()
    assert stats.board() is before
    child = os.fork()
    if child == 0:
        try:
            before.write()
            os._exit(0 if stats.board() is not before and not before.path.exists() else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0

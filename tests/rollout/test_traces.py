"""Trace files: whole lines, exact round trips, errors that name the line."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pytest

from atlas_gym.env.world import World, WorldConfig
from atlas_gym.errors import StorageError, TraceError
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.play import Job, play_all
from atlas_gym.rollout.traces import append_trace, read_traces, write_traces
from atlas_gym.rollout.variants import variant
from atlas_gym.types import TRACE_SCHEMA, Trajectory


@pytest.fixture(scope="module")
def played() -> list[Trajectory]:
    world = World.shared(WorldConfig(suite="toy", runtime="memory"))
    return play_all(
        [
            Job(lambda n=n: variant(n).episode(world, world.suite.tasks[0]), gold)  # type: ignore[misc]
            for n in ("tools/json", "servers/code")
        ]
    )


def test_a_round_trip_is_exact(played: list[Trajectory], tmp_path: Path) -> None:
    file = tmp_path / "deep" / "t.jsonl"
    write_traces(file, played)
    assert list(read_traces(file)) == played
    append_trace(file, played[0])
    assert list(read_traces(file)) == [*played, played[0]]
    write_traces(file, played[:1])
    assert list(read_traces(file)) == played[:1]


def test_segments_concatenate_to_the_conversation(played: list[Trajectory]) -> None:
    for t in played:
        segments = [*t.segments, *(s for turn in t.turns for s in turn.segments)]
        assert sum(len(s.ids) for s in segments) == t.turns[-1].context_used
        assert {s.label for s in segments if s.trained} <= {"agent"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2"),
        ("[]", "line 2"),
        ('"text"', "line 2"),
        (json.dumps({"schema": TRACE_SCHEMA + 1}), "schema"),
        (json.dumps({"schema": TRACE_SCHEMA, "servers": []}), "line 2"),
    ],
)
def test_a_bad_line_is_named(line: str, said: str, played: list[Trajectory], tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    append_trace(file, played[0])
    with file.open("a") as handle:
        handle.write(line + "\n")
    with pytest.raises(TraceError, match=said):
        list(read_traces(file))


def test_a_missing_file_and_an_unwritable_one_are_said(played: list[Trajectory], tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"Cannot read the trace.*\.jsonl"):
        list(read_traces(tmp_path / "none.jsonl"))
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="Writing the trace"):
        append_trace(tmp_path / "file" / "t.jsonl", played[0])


def test_a_full_disk_leaves_no_half_line(played: list[Trajectory], tmp_path: Path) -> None:
    """/dev/full takes nothing; a file-size limit takes a part, which a full disk does too."""
    with pytest.raises(StorageError, match="No space left"):
        append_trace("/dev/full", played[0])
    file = tmp_path / "t.jsonl"
    append_trace(file, played[0])
    size = file.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
    try:
        with pytest.raises(StorageError):
            append_trace(file, played[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.stat().st_size == size
    assert list(read_traces(str(file))) == played[:1]


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(TraceError, match="line 1"):
        list(read_traces(tmp_path / "t.jsonl"))

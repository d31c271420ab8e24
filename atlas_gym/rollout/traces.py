"""Trace files: one trajectory per line of JSON, versioned.

Owns reading and writing them so that a stopped run leaves whole lines. Does not know what is in a turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from atlas_gym.errors import TraceError
from atlas_gym.settings import storage
from atlas_gym.types import Trajectory


def append_trace(path: Path, trajectory: Trajectory) -> None:
    """Add one trajectory to a file, as one write, so that a reader never meets half a line.

    Raises:
        StorageError: The file cannot be written.
    """
    line = json.dumps(trajectory.to_json(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    with storage(f"Writing the trace {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            file.write(line.encode("utf-8", "replace") + b"\n")


def write_traces(path: Path, trajectories: Iterable[Trajectory]) -> None:
    """Write a new file of trajectories; an old one of that name is replaced."""
    with storage(f"Writing the trace {path}"):
        path.unlink(missing_ok=True)
    for trajectory in trajectories:
        append_trace(path, trajectory)


def read_traces(path: Path) -> Iterator[Trajectory]:
    """The trajectories of a file, in order.

    Raises:
        TraceError: The file is not there, or a line is not a trajectory of this schema; the message
            names the line.
    """
    try:
        file = path.open(encoding="utf-8")
    except OSError as exc:
        raise TraceError(f"Cannot read the trace {path}: {exc.strerror}. Give a .jsonl file.") from exc
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield Trajectory.from_json(json.loads(line))
            except (ValueError, TraceError) as exc:
                raise TraceError(f"{path}, line {number}: {exc}") from exc

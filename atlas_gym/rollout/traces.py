"""Trace files: one trajectory per line of JSON, versioned.

Owns reading and writing them so that a stopped run leaves whole lines. Does not know what is in a turn.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from atlas_gym.errors import TraceError
from atlas_gym.settings import storage
from atlas_gym.types import Trajectory


def append_trace(path: str | Path, trajectory: Trajectory) -> None:
    """Add one trajectory to a file, whole or not at all, so that a reader never meets half a line.

    Raises:
        StorageError: The file cannot be written.
    """
    line = json.dumps(trajectory.to_json(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    path, data = Path(path), line.encode("utf-8", "replace") + b"\n"
    with storage(f"Writing the trace {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab", buffering=0) as file:
            before = file.seek(0, os.SEEK_END)
            try:
                if file.write(data) < len(data):  # a disk that fills up takes a part and raises nothing
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(before)
                raise


def write_traces(path: str | Path, trajectories: Iterable[Trajectory]) -> None:
    """Write a new file of trajectories; an old one of that name is replaced."""
    path = Path(path)
    with storage(f"Writing the trace {path}"):
        path.unlink(missing_ok=True)
    for trajectory in trajectories:
        append_trace(path, trajectory)


def read_traces(path: str | Path) -> Iterator[Trajectory]:
    """The trajectories of a file, in order.

    Raises:
        TraceError: The file is not there, or a line is not a trajectory of this schema; the message
            names the line.
    """
    path = Path(path)
    try:
        file = path.open("rb")
    except OSError as exc:
        raise TraceError(f"Cannot read the trace {path}: {exc.strerror}. Give a .jsonl file.") from exc
    with file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                found = Trajectory.from_json(json.loads(line))
            except (ValueError, TraceError) as exc:
                raise TraceError(f"{path}, line {number}: {exc}") from exc
            yield found

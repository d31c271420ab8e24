"""Garbage collection: what a killed run left behind.

Owns finding what dead owners left: episodes, warmed parents, and the processes marked as theirs. Safe while
others run: a directory is touched only when its owner is provably dead, a process only when it carries the
mark of such a directory.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atlas_gym import settings
from atlas_gym.runtime import stats
from atlas_gym.runtime.launch import MARKER
from atlas_gym.runtime.owner import Owner, start_time
from atlas_gym.runtime.workspace import OWNER_FILE, remove_episode

_PREFIXES: Final = ("ep-", ".ep-", "host-", ".host-")
"""Of episodes and of warmed parents; with a dot while one is being made."""
_BEING_MADE: Final = 60.0
"""Seconds within which an empty directory may be an episode that is just being made."""


@dataclass(frozen=True)
class Removed:
    """What `collect` did."""

    episodes: tuple[str, ...] = ()
    """Directories removed."""
    processes: tuple[int, ...] = ()
    """Process ids killed."""
    hosts: tuple[str, ...] = ()
    """Directories of warmed parents removed."""
    kept: tuple[tuple[str, str], ...] = ()
    """(directory, reason) of what was left alone although its owner was not seen alive."""
    alive: int = 0
    """Episodes that are in use."""

    def __str__(self) -> str:
        hosts = f", {len(self.hosts)} warmed parents" if self.hosts else ""
        text = (
            f"Removed {len(self.episodes)} episodes{hosts} and {len(self.processes)} processes; "
            f"{self.alive} in use."
        )
        return text + "".join(f"\nKept {name}: {reason}." for name, reason in self.kept)


def collect(directory: Path | None = None, *, dry_run: bool = False) -> Removed:
    """Remove the episodes of dead owners and kill what is left of their servers.

    Args:
        directory: Parent of the episodes; `settings.run_dir()` when None.
        dry_run: Only say what would be done.

    Raises:
        StorageError: The directory cannot be listed.
    """
    parent = directory or settings.run_dir()
    if not dry_run:
        stats.prune()
    dead: list[Path] = []
    kept: list[tuple[str, str]] = []
    alive = 0
    with settings.storage(f"Looking for episodes in {parent}"):
        try:
            found = sorted(p for p in parent.iterdir() if p.name.startswith(_PREFIXES))
        except FileNotFoundError:
            return Removed()
    for episode in found:
        try:
            owner = Owner.from_json((episode / OWNER_FILE).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            owner = None
        if owner is None:
            if Owner.is_dead(episode.name.rpartition(".")[2]):  # killed while it was making this
                dead.append(episode)
                continue
            if not dry_run and _removed_as_empty(episode):
                continue
            kept.append((episode.name, f"no readable {OWNER_FILE}; remove it by hand if no run uses it"))
            continue
        verdict = owner.verdict()
        if verdict == "alive":
            alive += not _is_host(episode)
        elif verdict == "unknown":
            kept.append((episode.name, f"owned by another container or machine ({owner.node})"))
        else:
            dead.append(episode)
    names = {episode.name for episode in dead}
    processes = [pid for pid, start in _marked(names) if dry_run or _kill(pid, start, names)]
    removed: list[Path] = []
    for episode in dead:
        try:
            if not dry_run:
                remove_episode(episode)
        except OSError as exc:
            kept.append((episode.name, f"cannot be removed: {exc}"))
        else:
            removed.append(episode)
    return Removed(
        episodes=tuple(episode.name for episode in removed if not _is_host(episode)),
        processes=tuple(processes),
        hosts=tuple(episode.name for episode in removed if _is_host(episode)),
        kept=tuple(kept),
        alive=alive,
    )


def _is_host(directory: Path) -> bool:
    return directory.name.lstrip(".").startswith("host-")


def _removed_as_empty(episode: Path) -> bool:
    """The last moment of an interrupted removal; or, a while ago, the first of an interrupted making."""
    try:
        if time.time() - episode.stat().st_mtime > _BEING_MADE:
            episode.rmdir()
            return True
    except OSError:
        pass
    return False


def _mark_of(pid: int) -> str:
    """The episode that a process carries in its environment; "" when none, or not readable."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    prefix = MARKER.encode() + b"="
    marks = [v[len(prefix) :].decode("utf-8", "replace") for v in variables if v.startswith(prefix)]
    return marks[0] if marks else ""


def _marked(names: set[str]) -> list[tuple[int, int]]:
    if not names:
        return []
    with suppress(FileNotFoundError):
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [(pid, start_time(pid)) for pid in pids if pid != os.getpid() and _mark_of(pid) in names]
    return []


def _kill(pid: int, start: int, names: set[str]) -> bool:
    """Kill through a handle of the process, so that a number that was given away meanwhile is not hit."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if start == 0 or start_time(pid) != start or _mark_of(pid) not in names:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], 5.0)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True

"""What holds for every test: those marked `git` are skipped, with the next step, where git is missing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot run on this machine."""
    if shutil.which("git"):
        return
    missing = pytest.mark.skip(reason="git is not on PATH (Debian, Ubuntu: apt-get install git)")
    for item in items:
        if item.get_closest_marker("git"):
            item.add_marker(missing)


@pytest.fixture
def descendants() -> Callable[[], set[int]]:
    """Every live process below this one, by a walk through /proc (a small machine has no `ps`)."""

    def walk() -> set[int]:
        """Every live process below this one."""
        parents: dict[int, int] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    stat = (entry / "stat").read_text()
                except OSError:
                    continue
                state, parent = stat.rpartition(")")[2].split()[:2]
                # What has ended and is about to be collected by another process is gone; by this one, it is
                # not.
                if state != "Z" or int(parent) == os.getpid():
                    parents[int(entry.name)] = int(parent)
        found = {os.getpid()}
        while True:
            more = {pid for pid, parent in parents.items() if parent in found} | found
            if more == found:
                return found - {os.getpid()}
            found = more

    return walk

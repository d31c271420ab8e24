"""A pytest plugin that counts, for each mark, the tests that exist, ran and were skipped.

Loaded with `-p marks`; adds its counts to the JSON file that ATLAS_MARKS names.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

MARKS = ("default", "servers", "slow", "docker", "model", "net", "compat")
_known: dict[str, list[str]] = {}
_exist: Counter[str] = Counter()
_ran: Counter[str] = Counter()
_skipped: Counter[str] = Counter()
_outcomes: Counter[str] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count every collected test, before any is deselected."""
    for item in items:
        names = [mark for mark in MARKS[1:] if item.get_closest_marker(mark)]
        _known[item.nodeid] = names or ["default"]
        _exist.update(_known[item.nodeid])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what came of a test; a failed set-up counts as a test that ran."""
    names = _known.get(report.nodeid, [])
    if report.skipped:
        xfailed = hasattr(report, "wasxfail")
        (_ran if xfailed else _skipped).update(names)
        _outcomes["xfailed" if xfailed else "skipped"] += 1
    elif report.when == "call":
        _ran.update(names)
        _outcomes[report.outcome] += 1
    elif report.failed:
        _outcomes["error"] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Add the counts of this run to the file."""
    path = Path(os.environ["ATLAS_MARKS"])
    runs = json.loads(path.read_text()) if path.exists() else []
    runs.append(
        {
            "exist": _exist,
            "ran": _ran,
            "skipped": _skipped,
            "outcomes": _outcomes,
            "tests": session.testscollected,
        }
    )
    path.write_text(json.dumps(runs))

# ruff: noqa: T201 - it is a program, run by path
"""Prints what ran of each mark over all runs, then one summary line; fails where a whole mark was skipped.

Usage: report.py COUNTS SECONDS. ATLAS_SKIP_MARKS="docker model" says which marks may be skipped whole.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

from marks import MARKS


def main() -> int:
    """Print the report; 1 when a whole mark was skipped, a test failed, or nothing ran."""
    path = Path(sys.argv[1])
    runs = json.loads(path.read_text()) if path.exists() else []
    exist, ran, skipped, outcomes = Counter(), Counter(), Counter(), Counter()
    for run in runs:
        exist |= Counter(run["exist"])
        ran += Counter(run["ran"])
        skipped += Counter(run["skipped"])
        outcomes += Counter(run["outcomes"])
    allowed = os.environ.get("ATLAS_SKIP_MARKS", "").split()
    bad = [mark for mark in MARKS if exist[mark] and not ran[mark] and mark not in allowed]
    print("mark      exist   ran  skipped")
    for mark in MARKS:
        note = "none exist" if not exist[mark] else "SKIPPED WHOLE" if mark in bad else ""
        print(f"{mark:<8} {exist[mark]:>6} {ran[mark]:>5} {skipped[mark]:>8}  {note}".rstrip())
    if bad:
        print(
            f"Marks of which nothing ran: {', '.join(bad)}. Allow it with ATLAS_SKIP_MARKS={' '.join(bad)!r}."
        )
    order = ("failed", "passed", "skipped", "xfailed", "error")
    said = ", ".join(f"{outcomes[name]} {name}" for name in order if outcomes[name]) or "no tests ran"
    print(f" {said} in {float(sys.argv[2]):.2f}s ".center(80, "="))
    failed = bad or outcomes["failed"] or outcomes["error"] or not outcomes["passed"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

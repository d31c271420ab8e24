"""Where a benchmark's numbers go: `results/<name>.json`, with all that made them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from atlas_gym.rollout.provenance import provenance

RESULTS: Final = Path(__file__).resolve().parent / "results"


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile, minimum and mean, in microseconds."""
    values = np.asarray(seconds) * 1e6
    return {
        "p50_us": round(float(np.percentile(values, 50)), 1),
        "p95_us": round(float(np.percentile(values, 95)), 1),
        "min_us": round(float(values.min()), 1),
        "mean_us": round(float(values.mean()), 1),
        "n": len(seconds),
    }


def write(name: str, numbers: Mapping[str, Any], *, seed: int | None = None) -> Path:
    """Write one result file and say where it is."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**provenance(seed), **numbers}, indent=1) + "\n", encoding="utf-8")
    print(f"\nWritten: {path.relative_to(RESULTS.parent.parent)}")
    return path

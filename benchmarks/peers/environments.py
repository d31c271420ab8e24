"""The peers' own Python environments: made once, from pinned requirements, in the cache."""

from __future__ import annotations

import hashlib
import shutil
import sys
from pathlib import Path
from typing import Final

from atlas_gym import settings
from atlas_gym.errors import InstallError
from atlas_gym.runtime import uv

REQUIREMENTS: Final = Path(__file__).resolve().parent / "requirements"
OURS: Final = "atlas-gym"
"""The environment that runs the benchmark; not made here."""
_PYTHON: Final = ">=3.11,<3.14"


def pinned(name: str) -> dict[str, str]:
    """Package -> version, as its requirements file says; markers are not looked at."""
    lines = (REQUIREMENTS / f"{name}.txt").read_text().split("\n")
    parts = [line.partition(" ;")[0].partition("==") for line in lines if "==" in line]
    return {package.partition("[")[0]: version for package, _, version in parts}


def python(name: str) -> str:
    """The interpreter of an environment, which is made if it is missing.

    Raises:
        InstallError: A package cannot be had here; holds what uv said.
    """
    if name == OURS:
        return sys.executable
    wanted = REQUIREMENTS / f"{name}.txt"
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]
    place = settings.cache_dir().absolute() / "peers" / f"{name}-{digest}"
    found = place / "bin" / "python"
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        print(f"installing {name} into its own environment", flush=True)
        if reason := uv.unavailable(_PYTHON):
            raise InstallError(reason)
        make = ("venv", "--quiet", "--no-project", "--allow-existing", "--python", uv.interpreter(_PYTHON))
        uv.run_uv(*make, str(place), cwd=place)
        install = ("pip", "install", "--quiet", "--compile-bytecode", "--python", str(found))
        uv.run_uv(*install, "--no-deps", "--requirements", str(wanted), cwd=place)
        (place / "complete").touch()
    return str(found)

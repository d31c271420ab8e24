"""Python environments through the `uv` program that came with atlas-gym.

Owns the choice of interpreter and every call of `uv`. Does not know servers.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from atlas_gym import settings
from atlas_gym.errors import InstallError, StorageError
from atlas_gym.runtime.manifest import python_satisfies

_SECONDS: Final = 1800.0
_STORAGE: Final = (
    "No space left on device",
    "ENOSPC",
    "os error 28",
    "Permission denied",
    "EACCES",
    "os error 13",
    "Read-only file system",
    "EROFS",
    "os error 30",
    "Disk quota exceeded",
)
_PROBE: Final = """
import json, os, sys, sysconfig
print(json.dumps([sys.base_prefix, sys.base_exec_prefix, sysconfig.get_path("stdlib"),
                  sysconfig.get_path("platstdlib"), os.path.dirname(os.path.realpath(sys.executable))]))
"""


def minor(request: str) -> tuple[int, int]:
    """Version (major, minor) of the interpreter that `interpreter(request)` gives; (0, 0) for none."""
    return _chosen(request)[1]


def interpreter(request: str) -> str:
    """The running interpreter if it meets the request, else one that uv finds; "" when there is none."""
    return _chosen(request)[0]


def unavailable(request: str) -> str:
    """Why no environment can be made for this Python request; "" when one can."""
    if not program():
        return "The program uv is missing. Install it beside atlas-gym: pip install uv."
    if not interpreter(request):
        running = ".".join(map(str, sys.version_info[:2]))
        return (
            f"It needs Python {request}; this is {running} and uv finds no other. "
            "Install one: uv python install."
        )
    return ""


@functools.cache
def program() -> str:
    """Path of the uv executable; "" when there is none."""
    import uv

    try:
        return os.fspath(uv.find_uv_bin())
    except FileNotFoundError:
        return ""


@functools.cache
def _chosen(request: str) -> tuple[str, tuple[int, int]]:
    running = (sys.version_info[0], sys.version_info[1])
    if python_satisfies(request, running):
        return sys.executable, running
    if not program():
        return "", (0, 0)
    # Only what is there: an interpreter of several dozen megabytes is not downloaded unasked.
    found = subprocess.run(
        [program(), "python", "find", "--no-python-downloads", "--no-project", "--system", request],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    path = found.stdout.strip()
    if found.returncode != 0 or not path:
        return "", (0, 0)
    version = subprocess.run(
        [path, "-c", "import sys; print(*sys.version_info[:2])"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout.split()
    return (path, (int(version[0]), int(version[1]))) if len(version) == 2 else ("", (0, 0))


def environment(place: Path, request: str, requirements: str) -> tuple[Path, ...]:
    """Make a virtual environment in the existing directory `place`, wheels only, every hash checked.

    Args:
        place: An empty directory; the environment cannot be moved afterwards.
        request: The Python request.
        requirements: Text of a requirements file with hashes.

    Returns:
        Directories outside `place` that its interpreter reads.

    Raises:
        InstallError: uv failed; holds its last lines.
        StorageError: The disk is full or not writable.
    """
    lock = place / "requirements.txt"
    with settings.storage(f"Writing {lock}"):
        lock.write_text(requirements, encoding="utf-8")
    python = str(place / "bin" / "python")
    make = ("venv", "--quiet", "--no-project", "--allow-existing", "--python", interpreter(request))
    run_uv(*make, str(place), cwd=place)
    run_uv(
        *("pip", "install", "--quiet", "--python", python, "--no-deps", "--require-hashes"),
        *("--only-binary", ":all:", "--compile-bytecode", "--requirements", str(lock)),
        cwd=place,
    )
    probed = subprocess.run(
        [python, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False
    )
    if probed.returncode != 0:
        raise InstallError(
            f"The interpreter {python} does not run: {_tail(probed.stderr)}. Try again with another Python."
        )
    return tuple(dict.fromkeys(Path(p) for p in json.loads(probed.stdout)))


def run_uv(*arguments: str, cwd: Path) -> str:
    """Run uv and give its standard output.

    Raises:
        InstallError: It failed; holds its last lines.
        StorageError: It failed because the disk is full or not writable.
    """
    variables = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME")}
    return run_tool([program(), *arguments], cwd=cwd, env=variables)


def run_tool(command: Sequence[str], *, cwd: Path, env: dict[str, str]) -> str:
    """Run a package tool to its end, and turn its failure into our errors.

    Raises:
        InstallError: It failed or took too long; holds its last lines.
        StorageError: Its output says that the disk is full or not writable.
    """
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise InstallError(
            f"{name} took more than {_SECONDS:.0f} s. Check the network and try again."
        ) from exc
    except OSError as exc:
        raise InstallError(f"{name} cannot be run: {exc}. Check that it is installed.") from exc
    if done.returncode == 0:
        return done.stdout
    said = _tail(done.stderr + done.stdout)
    if any(sign in said for sign in _STORAGE):
        raise StorageError(
            f"{name} could not write below {cwd}: {said}. Free some space, or set ATLAS_CACHE to a directory "
            "you can write."
        )
    raise InstallError(
        f"{name} failed with status {done.returncode}: {said}. Check the network and the package index "
        "settings of uv or npm, then try again."
    )


def _tail(text: str, lines: int = 12) -> str:
    kept = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " | ".join(kept[-lines:])[-2000:] or "no output"

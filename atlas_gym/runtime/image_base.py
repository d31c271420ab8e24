"""Which image a server's image starts from, and what is in it.

Owns the choice, the pull and the question to the base itself. Does not know what is put on top.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.errors import InstallError
from atlas_gym.runtime import base_image, engine
from atlas_gym.runtime.manifest import Manifest, python_satisfies

DEFAULTS: Final = {"python": "python:3.11-slim", "node": "node:20-slim"}
OLDEST_NODE: Final = 20

_SECONDS: Final = 60
_GLIBC: Final = (17, 28, *range(31, 41))
"""Minor versions of glibc 2 that uv knows as platforms."""
_PROBE: Final = """
for name in python3 node "$@"; do command -v "$name" > /dev/null && echo "$name $(command -v "$name")"; done
command -v node > /dev/null && echo "node-version $(node --version)"
command -v python3 > /dev/null && python3 -I -c '
import platform, sys
print("python-version", *sys.version_info[:2])
print("libc", platform.libc_ver()[1] or "musl")'
echo "machine $(uname -m)"
"""

_lock = threading.Lock()
_probed: dict[tuple[str, tuple[str, ...]], Base] = {}
_refused: dict[str, str] = {}


@dataclass(frozen=True)
class Base:
    """What a base image holds."""

    name: str
    id: str
    programs: dict[str, str]
    """Paths of those programs that were asked for and are there, "python3" and "node" among them."""
    python: tuple[int, int] = (0, 0)
    """(major, minor); (0, 0) when it has none."""
    node: int = 0
    """Major version; 0 when it has none."""
    libc: str = ""
    """Version of glibc, or "musl"."""
    machine: str = ""

    @property
    def platform(self) -> str:
        """The platform as uv names it."""
        if self.libc == "musl":
            return f"{self.machine}-unknown-linux-musl"
        hit = re.match(r"2\.(\d+)", self.libc)
        newest = max(int(hit[1]) if hit else 0, _GLIBC[0])
        return f"{self.machine}-manylinux_2_{max(minor for minor in _GLIBC if minor <= newest)}"


def choose(
    language: str, given: str | None, say: Callable[[str], None], *, pull: bool = True
) -> tuple[str, str]:
    """The base for servers of a language: its name and id. Pulled when it is not here, unless `pull` is off.

    In this order: what is given, `ATLAS_BASE_PYTHON` or `ATLAS_BASE_NODE`, what `atlas-gym servers base`
    made, the official image.

    Raises:
        InstallError: It is neither here nor can it be pulled.
        StartError: No engine answers.
    """
    name = given or settings.base_image(language)
    if not name:
        made = base_image.find(base_image.DEFAULT)
        if made is not None:
            return base_image.DEFAULT, str(made["Id"])
        name = DEFAULTS.get(language, DEFAULTS["python"])
    found = base_image.find(name)
    if found is None:
        with _lock:
            found = base_image.find(name) or _pulled(name, say if pull else None)
    return name, str(found["Id"])


def _pulled(name: str, say: Callable[[str], None] | None) -> dict[str, Any]:
    from docker.errors import APIError, DockerException
    from requests.exceptions import RequestException

    if say is not None and name not in _refused:
        say(f"pulling {name}")
        last, _, first = name.rpartition(":")
        repository, version = (last, first) if last and "/" not in first else (name, "latest")
        try:
            engine.client().api.pull(repository, version)
        except (APIError, DockerException, RequestException) as exc:
            _refused[name] = engine.short(exc)
    found = base_image.find(name)
    if found is None:
        raise InstallError(
            f"The base image {name} is not here and cannot be pulled ({_refused.get(name, 'no reason')}). "
            "Make a base that needs no registry: atlas-gym servers base. Or name one that you have: --base, "
            "ATLAS_BASE_PYTHON, ATLAS_BASE_NODE."
        )
    return found


def probe(name: str, key: str, programs: Sequence[str] = ()) -> Base:
    """Ask a base image what it holds, in a container of it without network; once per process.

    Args:
        name: Its name, for messages.
        key: Its id.
        programs: Executables to look for.

    Raises:
        InstallError: It does not run.
    """
    wanted = tuple(sorted(programs))
    with _lock:
        if (key, wanted) not in _probed:
            _probed[key, wanted] = _read(name, key, _said(name, key, wanted))
        return _probed[key, wanted]


def _said(name: str, key: str, programs: Sequence[str]) -> str:
    api = engine.client().api
    with engine.asking(InstallError, f"Looking into the base image {name}"):
        made = api.create_container(
            key,
            entrypoint=["sh", "-c", _PROBE, "sh", *programs],
            labels=engine.labels("probe"),
            host_config=api.create_host_config(network_mode="none", cap_drop=["ALL"]),
        )["Id"]
        try:
            api.start(made)
            api.wait(made, timeout=_SECONDS)
            return str(api.logs(made, stdout=True, stderr=False).decode("utf-8", "replace"))
        finally:
            api.remove_container(made, force=True, v=True)


def _read(name: str, key: str, said: str) -> Base:
    facts: dict[str, str] = {}
    for line in said.splitlines():
        word, _, value = line.partition(" ")
        facts.setdefault(word, value.strip())
    python = [int(part) for part in facts.pop("python-version", "0 0").split()]
    node = re.match(r"v(\d+)", facts.pop("node-version", ""))
    libc, machine = facts.pop("libc", ""), facts.pop("machine", "")
    return Base(name, key, facts, (python[0], python[1]), int(node[1]) if node else 0, libc, machine)


def refuse_unfit(base: Base, manifest: Manifest) -> None:
    """Check that servers with this manifest can run on the base.

    Raises:
        InstallError: Its interpreter is missing or of another version.
    """
    other = "Name another: --base, ATLAS_BASE_{}, or make one: atlas-gym servers base."
    if manifest.language == "python" and not python_satisfies(manifest.python, base.python):
        has = "has Python {}.{}".format(*base.python) if base.python[0] else "has no Python"
        raise InstallError(
            f"Server {manifest.name!r} needs Python {manifest.python}, and the base image {base.name} {has}. "
            + other.format("PYTHON")
        )
    if manifest.language == "node" and base.node < OLDEST_NODE:
        has = f"has Node {base.node}" if base.node else "has no Node"
        raise InstallError(
            f"Server {manifest.name!r} needs Node {OLDEST_NODE} or newer, and the base image {base.name} "
            f"{has}. " + other.format("NODE")
        )

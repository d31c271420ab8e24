"""The Docker engine: whether one answers, a client of it per thread, what it can do, whose things are whose.

Owns the labels and the removal of what dead owners left in the engine. Does not know images, servers, or
how a container is made.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.errors import AtlasError, StartError
from atlas_gym.runtime.owner import Owner

LABEL: Final = "io.atlas-gym"
"""On everything of ours; its value says what it is ("server", "host", "image", "base" ...)."""
LABEL_OWNER: Final = "io.atlas-gym.owner"
"""`Owner.to_json()` of the process that it lives for."""
LABEL_USER: Final = "io.atlas-gym.user"
"""Number of the user that the owner runs as: an engine serves all users of a machine."""
LABEL_RUN: Final = "io.atlas-gym.run"
"""Directory of the runs (`settings.run_dir()`) of the owner."""
LABEL_EPISODE: Final = "io.atlas-gym.episode"
"""Name of the episode's directory; absent on what outlives episodes."""

_ANSWER_SECONDS: Final = 5.0
_REQUEST_SECONDS: Final = 120
_INSTALL: Final = "Install one and start it (Debian, Ubuntu: apt-get install docker.io), or set DOCKER_HOST."

_local = threading.local()


@dataclass(frozen=True)
class Facts:
    """What the engine on this machine can do."""

    version: str
    rootless: bool
    """The engine runs without root: root inside is its user, other ids inside are subordinate ids outside."""
    user_namespace: bool
    """The engine maps users (`userns-remap`): ids inside are other ids outside."""
    memory_limit: bool
    pids_limit: bool
    cpu_limit: bool
    cgroup: str
    """"1" or "2"; "" when there is none."""
    cpus: int
    memory: int
    """Bytes of the machine."""

    @property
    def same_ids(self) -> bool:
        """Whether user 1000 inside a container is user 1000 of this machine."""
        return not (self.rootless or self.user_namespace)

    @property
    def missing(self) -> str:
        """The limits that the engine cannot enforce, as text; "" when it has them all."""
        limits = {"memory": self.memory_limit, "pids": self.pids_limit, "cpu": self.cpu_limit}
        return ", ".join(name for name, there in limits.items() if not there)


@dataclass(frozen=True)
class Collected:
    """What `collect` did, or would do."""

    containers: tuple[str, ...] = ()
    """Names removed."""
    networks: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    """(name, reason) of what was left alone although its owner was not seen alive."""
    alive: int = 0
    """Containers, networks and volumes in use, this user's and others'."""

    def __str__(self) -> str:
        text = f"Removed {len(self.containers)} containers; {self.alive} in use."
        if self.networks or self.volumes:
            text = (
                f"Removed {len(self.containers)} containers, {len(self.networks)} networks and "
                f"{len(self.volumes)} volumes; {self.alive} in use."
            )
        return text + "".join(f"\nKept {name}: {reason}." for name, reason in self.kept)


def address() -> str:
    """Where the engine is looked for: `DOCKER_HOST`, else the system's socket, else a rootless one's."""
    given = settings.docker_host()
    if given:
        return given
    places = [Path("/var/run/docker.sock"), Path(f"/run/user/{os.getuid()}/docker.sock")]
    found = next((place for place in places if place.exists()), places[0])
    return f"unix://{found}"


def unavailable() -> str:
    """Why no container can be started: one sentence or two with the next step; "" when an engine answers.

    Takes some milliseconds, at most a few seconds when the engine hangs. Not cached: one may be started.
    """
    where = address()
    if where.startswith("unix://"):
        reason = _socket_trouble(where.removeprefix("unix://"))
        if reason:
            return reason
    try:
        made = _connect(where, _ANSWER_SECONDS)
        try:
            system = made.version().get("Os", "linux")  # not info, which waits for busy containers
        finally:
            made.close()
    except Exception as exc:  # noqa: BLE001 - the SDK leaks errors of requests, urllib3 and its own
        return f"The Docker engine at {where} does not answer ({short(exc)}). Start it, or set DOCKER_HOST."
    if system != "linux":
        return f"The Docker engine at {where} runs {system} containers. Switch it to Linux containers."
    return ""


def client() -> Any:
    """The `docker.DockerClient` of this thread and process; do not hand it to another thread.

    No connection is kept between requests: neither a fork nor an ended thread leaves a socket open.

    Raises:
        StartError: No engine answers.
    """
    kept = getattr(_local, "client", None)
    if kept is not None and _local.key == (os.getpid(), address()):
        return kept
    reason = unavailable()
    if reason:
        raise StartError(f"Containers cannot be used. {reason}")
    _local.client, _local.key = _connect(address(), _REQUEST_SECONDS), (os.getpid(), address())
    return _local.client


def facts() -> Facts:
    """Ask the engine what it can do.

    Raises:
        StartError: No engine answers.
    """
    said = client().info()
    options = " ".join(said.get("SecurityOptions") or ())
    return Facts(
        version=str(said.get("ServerVersion", "")),
        rootless="name=rootless" in options,
        user_namespace="name=userns" in options,
        memory_limit=bool(said.get("MemoryLimit")),
        pids_limit=bool(said.get("PidsLimit")),
        cpu_limit=bool(said.get("CpuCfsQuota")),
        cgroup=str(said.get("CgroupVersion", "1")),
        cpus=int(said.get("NCPU", 0)),
        memory=int(said.get("MemTotal", 0)),
    )


def labels(kind: str, episode: str = "") -> dict[str, str]:
    """Labels for something that lives as long as this process at most, for `collect`.

    Args:
        kind: What it is ("server", "host", "sandbox").
        episode: Name of the episode's directory; "" for what outlives episodes.
    """
    found = {
        LABEL: kind,
        LABEL_OWNER: Owner.current().to_json(),
        LABEL_USER: str(os.getuid()),
        LABEL_RUN: str(settings.run_dir().absolute()),
    }
    return {**found, LABEL_EPISODE: episode} if episode else found


@contextmanager
def asking(error: type[AtlasError], what: str) -> Iterator[None]:
    """Turn whatever the SDK raises inside into one of our errors, with the next step.

    Args:
        error: Its class.
        what: What was being done ("Building atlas-gym/x:1").

    Raises:
        error: With `what` and the engine's words. An `AtlasError` passes unchanged.
    """
    try:
        yield
    except AtlasError:
        raise
    except Exception as exc:
        raise error(
            f"{what} failed: {short(exc)}. Check the Docker engine and its disk space (docker info, docker "
            "system df), then try again."
        ) from exc


def collect(*, dry_run: bool = False) -> Collected:
    """Remove the containers, networks and volumes whose owner is dead.

    Only what carries our label and this user's number, and whose owner is provably dead, is touched; never
    an image. Without an engine there is nothing to remove.

    Args:
        dry_run: Only say what would be done.

    Raises:
        StartError: The engine stopped answering.
    """
    if unavailable():
        return Collected()
    with asking(StartError, "Looking for what dead runs left in the Docker engine"):
        return _collected(client().api, dry_run)


def _collected(api: Any, dry_run: bool) -> Collected:
    ours = {"label": LABEL_OWNER}  # not LABEL: a user's own container of one of our images inherits that
    dead: dict[str, list[str]] = {"containers": [], "networks": [], "volumes": []}
    kept: list[tuple[str, str]] = []
    alive = 0

    def sort(
        kind: str, found: Iterable[tuple[str, str, Mapping[str, str]]], end: Callable[[str], None]
    ) -> None:
        nonlocal alive
        for name, key, marks in found:
            verdict = _verdict(marks)
            if verdict == "alive":
                alive += 1
            elif verdict != "dead":
                kept.append((name, verdict))
            else:
                reason = "" if dry_run else _ended(end, key)
                if reason:
                    kept.append((name, reason))
                else:
                    dead[kind].append(name)

    sort(
        "containers",
        ((_name(c), c["Id"], c.get("Labels") or {}) for c in api.containers(all=True, filters=ours)),
        lambda key: api.remove_container(key, force=True, v=True),
    )
    sort(
        "networks",
        ((n["Name"], n["Id"], n.get("Labels") or {}) for n in api.networks(filters=ours)),
        api.remove_network,
    )
    sort(
        "volumes",
        ((v["Name"], v["Name"], v.get("Labels") or {}) for v in api.volumes(filters=ours)["Volumes"] or ()),
        api.remove_volume,
    )
    return Collected(
        tuple(dead["containers"]), tuple(dead["networks"]), tuple(dead["volumes"]), tuple(kept), alive
    )


def _verdict(marks: Mapping[str, str]) -> str:
    """The word alive or dead, or why it is neither."""
    owner = Owner.from_json(marks.get(LABEL_OWNER, ""))
    if owner is None:
        return "its label names no owner; remove it by hand if no run uses it"
    user = marks.get(LABEL_USER, str(os.getuid()))
    verdict = owner.verdict()
    if verdict == "dead" and user != str(os.getuid()):
        return f"it belongs to user {user}"
    return f"owned by another container or machine ({owner.node})" if verdict == "unknown" else verdict


def _ended(end: Callable[[str], None], key: str) -> str:
    """Remove one thing; why that failed, "" when it is gone or going."""
    from docker.errors import APIError

    try:
        end(key)
    except APIError as exc:
        gone = exc.status_code == 404 or (exc.status_code == 409 and "in progress" in str(exc))
        return "" if gone else f"cannot be removed: {short(exc)}"
    return ""


def _name(container: Mapping[str, Any]) -> str:
    names = container.get("Names") or [container["Id"][:12]]
    return str(names[0]).lstrip("/")


def _connect(where: str, seconds: float) -> Any:
    """A new client; one connection per request."""
    import docker

    made = docker.DockerClient.from_env(
        timeout=seconds, environment={**settings.docker_variables(), "DOCKER_HOST": where}
    )
    made.api.headers["Connection"] = "close"
    return made


def _socket_trouble(path: str) -> str:
    """What a plain connection to the socket says, more exact than the SDK's errors; "" when it is taken."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_SECONDS)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return f"There is no Docker engine: {path} is not there. {_INSTALL}"
        except PermissionError:
            return (
                f"You may not use the Docker engine at {path}. Join its group and log in again (usermod -aG "
                "docker USER), or set DOCKER_HOST to a rootless engine."
            )
        except OSError as exc:
            if exc.errno == errno.ECONNREFUSED:
                return f"No Docker engine listens at {path}. Start it (systemctl start docker, or dockerd)."
            return f"The Docker engine at {path} does not answer ({exc}). Start it again."
    return ""


def short(exc: BaseException) -> str:
    """The message of an SDK error, in one line of readable length."""
    text = getattr(exc, "explanation", None) or str(exc) or type(exc).__name__
    return " ".join(str(text).split())[:300]

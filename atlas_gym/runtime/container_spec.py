"""What one server in one container takes: the image's command, environment, mounts, limits and walls.

Owns what the engine is asked for. Does not ask it, and does not know how images are made.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.errors import StartError
from atlas_gym.runtime import engine
from atlas_gym.runtime.container_files import Identity, solid
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.launch import DISK_FILES, MARKER, MAX_FILES
from atlas_gym.runtime.manifest import Limits
from atlas_gym.runtime.workspace import AGENT_FILES, AGENT_HOME, Workspace

HOSTNAME: Final = "episode"
_SHM: Final = "16m"


@dataclass(frozen=True)
class Image:
    """What a server's image holds."""

    reference: str
    command: tuple[str, ...]
    """Program and arguments in the image; {workspace}, {state} and {home} still stand in it."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables that its paths need, such as PATH; those of the image itself where none are given."""


@dataclass(frozen=True)
class Ground:
    """What is the same for every container of one runtime on one engine."""

    who: Identity
    userns: bool
    """The engine maps users; ours have to be the host's, who own the directories."""
    cpus: float
    """Processors that one server's container may keep busy."""
    all_cpus: float
    """Processors of the engine's machine."""
    tmp_mb: int
    """Size of /tmp, in MiB; it is memory."""


@dataclass(frozen=True)
class Container:
    """A container about to be made."""

    server: str
    name: str
    """Its name at the engine, chosen here so that it can be removed whatever became of its making."""
    walls: str
    shown: str
    """A shell line that starts the same by hand; holds no secrets."""
    secrets: tuple[str, ...]
    """Values that may not be shown."""
    start_seconds: float
    memory_mb: int
    config: dict[str, Any]
    """For the SDK's `create_container`, but its host configuration."""
    host: dict[str, Any]
    """For the SDK's `create_host_config`."""
    folders: tuple[Path, ...]
    """Directories of the host that the server may write: the workspace and its state."""
    parts: tuple[Path, ...]
    """Directories in its state that are mounted on their own."""
    disk: int
    """Bytes that they may hold together."""
    files: int
    """Entries that they may have together."""


def plan(installation: Installation, workspace: Workspace, image: Image, ground: Ground) -> Container:
    """Put together everything for one container of one episode.

    Raises:
        StartError: The server has no command (a `url` server).
        StorageError: The server's directories cannot be made.
    """
    manifest = installation.server.manifest
    name = manifest.name
    if not image.command:
        raise StartError(
            f"Server {name!r} has no command to run in a container: its url is {manifest.url!r}."
        )
    state = workspace.state(name)
    # Where the agent knows them: nothing has to be translated on the way to the server and back.
    tmp = f"/tmp/{state.name}"
    inside = f"/episode/state/{state.name}"
    places: dict[str, Path | str] = {"workspace": AGENT_FILES, "state": inside, "home": AGENT_HOME}
    argv = [manifest.expand(part, places) for part in image.command]
    allowed = {key: value for key in manifest.env_allow if (value := settings.secret(key)) is not None}
    env = {
        "HOME": AGENT_HOME,
        "TMPDIR": tmp,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        **dict(image.env),
        **{key: manifest.expand(value, places) for key, value in manifest.env.items()},
        **allowed,
        MARKER: "episode",
    }
    mounts = {
        workspace.files: AGENT_FILES,
        state: inside,
        solid(state / "home"): AGENT_HOME,
        solid(state / "tmp"): tmp,
    }
    limits = manifest.limits
    network = manifest.network != "none"
    host = walls(limits, ground, network=network)
    host["binds"] = {str(path): {"bind": there, "mode": "rw"} for path, there in mounts.items()}
    private = {**allowed, **(manifest.env if manifest.registry == "user" else {})}
    title = f"atlas-gym-{workspace.root.name}-{state.name}-{secrets.token_hex(4)}"
    return Container(
        server=name,
        name=title,
        walls="container" + (" (network open)" if network else ""),
        shown=by_hand(image.reference, argv, env, private, mounts, host, ground),
        secrets=tuple(private.values()),
        start_seconds=limits.start_seconds,
        memory_mb=limits.memory_mb,
        config=config(image.reference, argv, env, ground, engine.labels("server", workspace.root.name)),
        host=host,
        folders=(workspace.files, state),
        parts=(state / "home", state / "tmp"),
        disk=DISK_FILES * (limits.file_mb << 20),
        files=MAX_FILES,
    )


def walls(limits: Limits, ground: Ground, *, network: bool, many: int = 1) -> dict[str, Any]:
    """The host configuration of a container, but its mounts: nothing that it does not need.

    The engine's own seccomp profile stays in force; no socket of any engine is ever mounted.

    Args:
        limits: Of one server.
        ground: What all containers share.
        network: Whether it may reach anything outside.
        many: Servers that share the container.
    """
    memory = many * (limits.memory_mb << 20)
    return {
        "network_mode": "bridge" if network else "none",
        "read_only": True,
        # No programs in /tmp itself: the server's own TMPDIR is a directory of the episode below it.
        "tmpfs": {"/tmp": f"rw,noexec,nosuid,nodev,size={ground.tmp_mb}m,nr_inodes=10000,mode=1777"},
        "shm_size": _SHM,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "mem_limit": memory,
        "memswap_limit": memory,
        "pids_limit": many * (limits.pids + 2),  # the engine's init is one of them
        "nano_cpus": int(ground.cpus * 1e9),
        "ulimits": [
            {"Name": kind, "Soft": value, "Hard": value}
            for kind, value in (
                ("nofile", limits.open_files),
                ("fsize", limits.file_mb << 20),
                ("cpu", limits.cpu_seconds),
                ("core", 0),
            )
        ],
        "init": True,
        "log_config": {"Type": "none"},
        "restart_policy": {"Name": "no"},
        **({"userns_mode": "host"} if ground.userns else {}),
    }


def config(
    reference: str, argv: list[str], env: dict[str, str], ground: Ground, marks: dict[str, str]
) -> dict[str, Any]:
    """The configuration of a container for `create_container`."""
    return {
        "image": reference,
        "entrypoint": argv[:1],
        "command": argv[1:],
        "environment": env,
        "user": ground.who.user,
        "hostname": HOSTNAME,
        "working_dir": AGENT_FILES,
        "labels": marks,
        "stdin_open": True,
        "tty": False,
    }


def by_hand(
    reference: str,
    argv: list[str],
    env: dict[str, str],
    private: Collection[str],
    mounts: dict[Path, str],
    host: dict[str, Any],
    ground: Ground,
) -> str:
    """A shell line that starts a server with the walls of `host`; values of `private` ones are not in it."""
    parts = ["docker", "run", "--rm", "-i", "--init", "--read-only", "--cap-drop", "ALL"]
    parts += ["--security-opt", "no-new-privileges", "--network", host["network_mode"]]
    parts += ["--memory", str(host["mem_limit"]), "--pids-limit", str(host["pids_limit"])]
    parts += ["--tmpfs", f"/tmp:{host['tmpfs']['/tmp']}", "--user", ground.who.user, "--workdir", AGENT_FILES]
    for path, there in mounts.items():
        parts += ["-v", f"{path}:{there}"]
    for key, value in env.items():
        parts += ["-e", key if key in private else f"{key}={value}"]
    parts += ["--entrypoint", argv[0], reference, *argv[1:]]
    # The workspace is gone when this is read: the command makes its directories again.
    return f"mkdir -p {shlex.join(map(str, mounts))} && {shlex.join(parts)}"

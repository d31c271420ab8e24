"""What starting one installed server in one workspace takes: command, environment, paths, limits.

Owns the allow-lists: variables, system paths, devices. Does not start anything.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.errors import StartError
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.kernel import Walls
from atlas_gym.runtime.workspace import Workspace

MARKER: Final = "ATLAS_GYM_EPISODE"
"""Variable with the name of the episode's directory: marks processes as ours, for collection."""

_SYSTEM: Final = (
    # Libraries and what the C library, Python, Node and git look up. No home, no /run, no /var, no /tmp.
    *("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libexec", "/usr/local/lib"),
    *("/usr/share", "/nix/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone"),
    *("/etc/nsswitch.conf", "/etc/passwd", "/etc/group", "/etc/host.conf", "/etc/hosts", "/etc/mime.types"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/ca-certificates"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version", "/proc/filesystems", "/proc/loadavg"),
    *("/proc/uptime", "/proc/sys/kernel", "/proc/sys/vm", "/sys/devices/system/cpu"),
)
_NETWORK: Final = (
    "/etc/resolv.conf",
    "/run/systemd/resolve",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/protocols",
)
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


DISK_FILES: Final = 8
"""Files of the largest size that the episode's files and the server's state may fill together."""
MAX_FILES: Final = 100_000
"""Entries that they may have together."""


@dataclass(frozen=True)
class Launch:
    """A server about to be started."""

    name: str
    walls: str
    command: str
    """A shell line to start it by hand; holds no secrets."""
    secrets: tuple[str, ...]
    """Values that may not be shown."""
    start_seconds: float
    spec: dict[str, Any]
    """What the launcher reads."""


def describe(walls: Walls, network: bool) -> str:
    """What stands between a server and the machine, for traces: "landlock+seccomp", "none" ..."""
    parts = (["landlock"] if walls.landlock_abi else []) + (["seccomp"] if walls.seccomp else [])
    text = "+".join(parts) or "none"
    notes = []
    if walls.landlock_abi and walls.landlock_abi < 6:
        notes.append("signals open")
    if parts and network:
        notes.append("network open")
    return text + (f" ({', '.join(notes)})" if notes else "")


def plan(installation: Installation, workspace: Workspace, walls: Walls) -> Launch:
    """Put together everything for one start.

    Args:
        installation: What to start.
        workspace: Where; the server's state directory is made.
        walls: What will be put up.

    Raises:
        StartError: The server demands walls that are not there, or has no command (a `url` server).
        StorageError: The state directory cannot be made.
    """
    manifest = installation.server.manifest
    name = manifest.name
    if manifest.walls == "required" and not (walls.landlock_abi and walls.seccomp):
        raise StartError(
            f"Server {name!r} starts only behind walls (its manifest says so), and they are not all there: "
            f"{walls.reason}. Use a Linux kernel with Landlock and seccomp, or leave the server out."
        )
    if not installation.command:
        raise StartError(
            f"Server {name!r} has no command to run here: it is reached at its url {manifest.url!r}."
        )
    state = workspace.state(name)
    places: dict[str, Path | str] = {
        "workspace": workspace.files,
        "state": state,
        "home": state / "home",
        "env": installation.directory,
    }
    argv = [manifest.expand(part, places) for part in installation.command]
    search = [*installation.path]
    for program in manifest.programs:
        found = shutil.which(program)
        if found:
            search.append(Path(found).parent)
    allowed = {key: value for key in manifest.env_allow if (value := settings.secret(key)) is not None}
    env = {
        "PATH": os.pathsep.join(dict.fromkeys(map(str, search))) or "/usr/bin:/bin",
        "HOME": str(state / "home"),
        "TMPDIR": str(state / "tmp"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",  # git gives up when /etc/gitconfig is there and cannot be read
        **{key: manifest.expand(value, places) for key, value in manifest.env.items()},
        **allowed,
        MARKER: workspace.root.name,
    }
    network = manifest.network != "none"
    limits = manifest.limits
    spec = {
        "owner": os.getpid(),
        "argv": argv,
        "env": env,
        "directory": str(workspace.files),
        "walls": [walls.landlock_abi, walls.seccomp, walls.reason],
        "network": network,
        "read": [*map(str, installation.read_paths), *_SYSTEM, *(_NETWORK if network else ())],
        "write": [str(workspace.files), str(state)],
        "devices": list(_DEVICES),
        # RLIMIT_DATA, not RLIMIT_AS: V8 reserves far more addresses than it uses. No RLIMIT_NPROC: the kernel
        # counts it per user, over all episodes; the launcher counts this server's own.
        "limits": {
            "data": limits.memory_mb << 20,
            "cpu": limits.cpu_seconds,
            "fsize": limits.file_mb << 20,
            "nofile": limits.open_files,
            "core": 0,
        },
        "pids": limits.pids,
        "memory": limits.memory_mb << 20,
        "disk": DISK_FILES * (limits.file_mb << 20),
        "files": MAX_FILES,
    }
    # What a user wrote under `env` in an mcp.json holds keys more often than not.
    private = {**allowed, **(manifest.env if manifest.registry == "user" else {})}
    shown = " ".join(f"{k}={shlex.quote(v)}" for k, v in env.items() if k not in private and k != MARKER)
    shown += "".join(f' {key}="${key}"' for key in private)
    return Launch(
        name=name,
        walls=describe(walls, network),
        # The workspace is gone when this is read: the command makes its directories again.
        command=f"mkdir -p {shlex.join(map(str, (workspace.files, state / 'home', state / 'tmp')))} && "
        f"cd {shlex.quote(str(workspace.files))} && env -i {shown} {shlex.join(argv)}",
        secrets=tuple(private.values()),
        start_seconds=limits.start_seconds,
        spec=spec,
    )

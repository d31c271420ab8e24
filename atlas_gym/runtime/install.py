"""Making a server runnable: its own environment in the cache, from its lock, once.

Owns the cache's layout (one directory per server and lock digest, complete or absent), the choice of
interpreter and the directories that a server must be able to read. Does not start servers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atlas_gym import settings
from atlas_gym.errors import InstallError, LockError
from atlas_gym.runtime import cache, http_headers, node, uv
from atlas_gym.runtime.catalog import Server

_LAYOUT: Final = 1
"""Part of every digest: raise it when what an installation holds changes."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Installation:
    """A server that can be started on this machine."""

    server: Server
    directory: Path
    """Its place in the cache: the environment, and the texts of its tools."""
    command: tuple[str, ...]
    """Absolute program and arguments; {workspace}, {state} and {home} still stand in it."""
    read_paths: tuple[Path, ...]
    """Every directory that it must be able to read and execute from, beside those of the system."""
    path: tuple[Path, ...] = ()
    """Directories for its PATH, in order."""


def _silent(_message: str) -> None:
    pass


def digest(server: Server) -> str:
    """Twelve hex digits over all that decides what is installed.

    Raises:
        LockError: The dependency lock is missing or cannot be read.
    """
    manifest = server.manifest
    parts = [str(_LAYOUT), manifest.registry, manifest.requirement, json.dumps(manifest.command)]
    if manifest.language == "python":
        parts += [".".join(map(str, uv.minor(manifest.python))), lock_text(server, "requirements.txt")]
    elif manifest.language == "node":
        parts += [lock_text(server, "package.json"), lock_text(server, "package-lock.json")]
    else:
        parts += [json.dumps(manifest.env, sort_keys=True), json.dumps(manifest.env_allow)]
        parts += [manifest.url] if manifest.url else []
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def lock_text(server: Server, file: str) -> str:
    """One of the server's own lock files, as text.

    Raises:
        LockError: Names the file and the command that writes it.
    """
    where = (server.folder or Path()) / file
    try:
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise LockError(
            f"{where}: cannot be read ({exc}). Restore it, or write it again: "
            f"atlas-gym servers lock {server.name}."
        ) from exc
    pin = f"{server.manifest.package}=={server.manifest.version}"
    if file == "requirements.txt" and not any(
        line.split(" ")[0].lower() == pin.lower() for line in text.splitlines()
    ):
        raise LockError(
            f"{where}: does not hold {pin}, which server.toml asks for. "
            f"Write it again: atlas-gym servers lock {server.name}."
        )
    return text


def directory(server: Server) -> Path:
    """Where the installation of this server is, or would be."""
    prefix = "user-" if server.manifest.registry == "user" else ""
    return settings.cache_dir().absolute() / "servers" / f"{prefix}{server.name}-{digest(server)}"


def unavailable(server: Server) -> str:
    """Why the server cannot run on this machine: one sentence with the next step; "" when it can."""
    manifest = server.manifest
    if manifest.url:
        unset = http_headers.unset(manifest)
        return f"Its entry names the variable {unset[0]}, which is not set. Set it." if unset else ""
    if not sys.platform.startswith("linux"):
        return f"Server processes need Linux; this is {sys.platform}."
    missing = [name for name in manifest.programs if shutil.which(name) is None]
    if missing:
        hint = f" (Debian, Ubuntu: apt-get install {' '.join(manifest.debian)})" if manifest.debian else ""
        return f"Not found on PATH: {', '.join(missing)}. Install it{hint}."
    if manifest.language == "python":
        return uv.unavailable(manifest.python)
    if manifest.language == "node":
        return node.unavailable()
    if _user_program(server) is None:
        return f"Command {manifest.command[0]!r} is not found. Install it, or correct your mcp.json."
    return ""


def installed(server: Server) -> Installation | None:
    """The complete installation of the server, or None. Starts nothing and touches no network."""
    if server.manifest.registry == "user":
        return _user(server)
    place = directory(server)
    about = cache.facts(place)
    try:
        found = about and Installation(
            server,
            place,
            tuple(about["command"]),
            tuple(Path(p) for p in about["read_paths"]),
            tuple(Path(p) for p in about["path"]),
        )
    except (KeyError, TypeError):
        found = None
    if not found:
        return None
    # An interpreter that was since removed or upgraded away makes the environment useless.
    programs = (found.command[0], *(a for a in found.command[1:] if a.startswith(str(place))))
    return found if all(Path(program).exists() for program in programs) else None


def install(server: Server, say: Say = _silent) -> Installation:
    """Make the server runnable; at once when it already is.

    Safe against being killed half-way and against another process doing the same.

    Args:
        server: What to install.
        say: Told, in one line each, what takes long.

    Raises:
        InstallError: It cannot run here, or the package tool failed (its last lines are in the message).
        LockError: The dependency lock is missing or does not fit the manifest.
        StorageError: The disk is full or the cache cannot be written.
    """
    reason = unavailable(server)
    if reason:
        raise InstallError(f"Server {server.name!r} is unavailable. {reason}")
    found = installed(server)
    if found is not None:
        return found
    place = directory(server)
    with cache.making(place):
        found = installed(server)
        if found is not None:
            return found
        say(f"installing {server.name} ({server.manifest.requirement})")
        cache.start(place)
        return _build(server, place, say)


def _build(server: Server, place: Path, say: Say) -> Installation:
    manifest = server.manifest
    if manifest.language == "python":
        base = uv.environment(place, manifest.python, lock_text(server, "requirements.txt"))
        # Through the interpreter, because a console script's first line may be longer than kernels allow.
        script = str(place / "bin" / _expand(server, manifest.command[0], place))
        head = [str(place / "bin" / "python"), script]
        reads, path = [place, *base], [place / "bin"]
    else:
        tool = node.require(say)
        node.clean_install(
            tool, place, lock_text(server, "package.json"), lock_text(server, "package-lock.json")
        )
        program = manifest.command[0]
        head = [str(tool.node) if program == "node" else _expand(server, program, place)]
        reads, path = [place, tool.prefix], [tool.node.parent]
    command = (*head, *(_expand(server, part, place) for part in manifest.command[1:]))
    for part in command:
        if part.startswith(str(place)) and not Path(part).exists():
            raise InstallError(
                f"{manifest.requirement} was installed but {part} is not in it. "
                f"Correct 'command' in {server.folder}/server.toml."
            )
    for name in manifest.programs:
        where = Path(shutil.which(name) or name)
        path.append(where.parent)
        reads += [where.parent, node.prefix_of(where)]
    made = Installation(server, place, command, _distinct(reads), _distinct(path))
    cache.finish(
        place,
        {
            "command": made.command,
            "read_paths": [str(p) for p in made.read_paths],
            "path": [str(p) for p in made.path],
        },
    )
    return made


def _expand(server: Server, text: str, place: Path) -> str:
    return server.manifest.expand(text, {"env": place})


def _user_program(server: Server) -> Path | None:
    name = server.manifest.command[0] if server.manifest.command else ""
    found = shutil.which(name) if name else None
    return Path(found).absolute() if found else None


def _user(server: Server) -> Installation | None:
    if server.manifest.url:  # nothing is started: only the texts of its tools are kept
        return Installation(server, directory(server), (), ())
    program = _user_program(server)
    if program is None:
        return None
    path = [program.parent, *(Path(p) for p in os.environ.get("PATH", os.defpath).split(os.pathsep) if p)]
    # What a user's own command reads (caches of npx and uvx, editable sources) cannot be known: it may read
    # everything the user can, and write only where every server may.
    command = (str(program), *server.manifest.command[1:])
    return Installation(server, directory(server), command, (Path("/"),), _distinct(path))


def _distinct(paths: list[Path]) -> tuple[Path, ...]:
    return tuple(dict.fromkeys(paths))

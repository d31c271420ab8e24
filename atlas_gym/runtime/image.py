"""Images of servers: one per server, lock and base, built when it is missing.

Owns the recipe, the tag and the build. The host of forked servers and other files of this package are not
in images: whoever starts a container mounts them read-only, so that no image is ever older than they are.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from atlas_gym.errors import AtlasError, InstallError, StartError
from atlas_gym.runtime import base_image, cache, engine, image_base, image_content, install
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.image_tar import Tree
from atlas_gym.runtime.install import Installation

ROOT: Final = image_content.ROOT
"""Directory of the server inside: `bin/python` or `bin/node`, console scripts, packages. Read-only."""
PATH: Final = f"{ROOT}/bin:/usr/local/bin:/usr/bin:/bin"
"""PATH inside."""
WORKSPACE: Final = "/workspace"
"""Where the episode's files are mounted."""
USER: Final = "65534:65534"
"""Who a server runs as, unless a container is told otherwise."""
LABEL_SERVER: Final = "io.atlas-gym.server"
"""Label with the server's name."""

Say = Callable[[str], None]

_LAYOUT: Final = 1
"""Raise it when what an image holds changes."""
_PREFIX: Final = "atlas-gym/"
_AT_ONCE: Final = 2
"""Images that are built at the same time by one process."""
_RECIPE: Final = """\
# The dependencies come with the build context: nothing is downloaded here.
ARG BASE
FROM ${BASE}
# packages
COPY server /opt/server
# bytecode
USER 65534:65534
WORKDIR /workspace
"""
"""`# packages` and `# bytecode` are replaced by steps, where they are needed. `servers/<name>/Dockerfile`, if
there is one, takes the place of all this and gets the same build context and `BASE`."""

_BYTECODE_STEP: Final = f"USER 0:0\nRUN {ROOT}/bin/python -m compileall -q {ROOT}/lib || true"
"""For a base whose version of Python is not here. Some packages carry files that are no valid Python."""

_building = threading.BoundedSemaphore(_AT_ONCE)


def _silent(_message: str) -> None:
    pass


def unavailable(server: Server) -> str:
    """Why there can be no image of this server: one sentence with the next step; "" when there can."""
    if server.folder is None:
        return (
            f"{server.name} is of your own mcp.json: it has no lock to build an image from. Use runtime "
            "'process' for it, or give it a folder with server.toml and lock."
        )
    if server.manifest.language not in image_base.DEFAULTS:
        return f"{server.name} is neither of Python nor of Node. Use runtime 'process' for it."
    return ""


def command(server: Server) -> tuple[str, ...]:
    """Program and arguments inside the image; {workspace}, {state} and {home} still stand in them."""
    manifest = server.manifest
    first, *rest = (manifest.expand(part, {"env": ROOT}) for part in manifest.command)
    if manifest.language == "python":
        # Through the interpreter, as outside: a script's first line may be longer than kernels allow.
        return (f"{ROOT}/bin/python", f"{ROOT}/bin/{first}", *rest)
    return (f"{ROOT}/bin/node" if first == "node" else first, *rest)


def ensure(what: Server | Installation, *, base: str | None = None, say: Say = _silent) -> str:
    """The image of a server, built if it is missing.

    Safe against being killed half-way and against others who build the same. Needs no network when the base
    and the packages are here.

    Args:
        what: Whose image.
        base: The image it starts from; None for the usual choice (`image_base.choose`).
        say: Told, in one line each, what takes long.

    Returns:
        Its name, `atlas-gym/<server>:<digest>`; the digest is over lock, command, recipe and base.

    Raises:
        InstallError: There can be none, the base is not to be had or unfit, or the build failed (its last
            lines are in the message).
        LockError: The dependency lock is missing or does not fit the manifest.
        StartError: No engine answers.
        StorageError: The disk is full or the cache cannot be written.
    """
    server = what.server if isinstance(what, Installation) else what
    reason = unavailable(server)
    if reason:
        raise InstallError(f"There can be no image of {reason}")
    name, key = image_base.choose(server.manifest.language, base, say)
    tag = _tag(server, key)
    if base_image.find(tag) is not None:
        return tag
    place = base_image.lock_place(tag)
    with _building, cache.making(place):
        if base_image.find(tag) is None:
            about = image_base.probe(name, key, server.manifest.programs)
            image_base.refuse_unfit(about, server.manifest)
            say(f"building the image of {server.name} on {name}")
            try:
                cache.start(place)
                _build(server, about, tag, place, say)
            finally:
                cache.remove(place)
    return tag


def from_files(
    name: str,
    files: Mapping[str, Path | str],
    *,
    base: str | None = None,
    language: str = "python",
    say: Say = _silent,
) -> str:
    """An image with some files in `ROOT`, and `bin/python` and `bin/node` as far as the base has them.

    For servers that are a script without dependencies: demonstrations and tests.

    Args:
        name: The server's name.
        files: Path below `ROOT` -> a file of this machine, or the text.
        base: The image it starts from; None for the usual choice.
        language: Decides that choice.
        say: Told what takes long.

    Returns:
        Its name, with a digest over the files and the base.

    Raises:
        InstallError: The base is not to be had, or the build failed.
        StartError: No engine answers.
    """
    base_name, key = image_base.choose(language, base, say)
    into = image_content.tree()
    seen = hashlib.sha256(f"{_LAYOUT}\0{name}\0{key}\0{_RECIPE}".encode())
    for path, source in sorted(files.items()):
        try:
            text = source if isinstance(source, str) else source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise InstallError(f"{source} cannot be read as text ({exc}). Check the file.") from exc
        seen.update(f"\0{path}\0{text}".encode())
        into.text(f"{image_content.CONTEXT}/{path}", text, 0o755 if text.startswith("#!") else 0o644)
    tag = f"{_repository(name)}:{seen.hexdigest()[:12]}"
    if base_image.find(tag) is None:
        with cache.making(base_image.lock_place(tag)):
            if base_image.find(tag) is None:
                about = image_base.probe(base_name, key)
                image_content.interpreter_links(into, about)
                _send(into, _RECIPE, base_name, tag, name)
    return tag


@dataclass(frozen=True)
class Pruned:
    """What `prune` did, or would do."""

    images: tuple[str, ...] = ()
    """Names removed."""
    kept: tuple[tuple[str, str], ...] = ()
    """(name, reason) of what could not be removed."""


def prune(servers: Iterable[Server], *, base: str | None = None, dry_run: bool = False) -> Pruned:
    """Remove our images that no lock needs now: of other locks, of other bases, and those bases.

    Images that a container uses or that somebody gave a name of his own stay, and so do all others' images.

    Args:
        servers: Those whose images are kept, as `ensure` names them now.
        base: As for `ensure`.
        dry_run: Only say what would be done.

    Raises:
        StartError: No engine answers.
    """
    wanted = {base_image.DEFAULT}
    for server in servers:
        try:
            name, key = image_base.choose(server.manifest.language, base, _silent, pull=False)
            wanted |= {name, key, _tag(server, key)}
        except AtlasError:
            continue  # without its base or lock it has no image that could be kept
    with engine.asking(StartError, "Looking for images"):
        found = engine.client().api.images(filters={"label": engine.LABEL})
    # Newest first: an image goes before the base below it, which the engine would not let go otherwise.
    stale: list[str] = []
    for about in sorted(found, key=lambda image: image["Created"], reverse=True):
        names = [name for name in about.get("RepoTags") or () if name != "<none>:<none>"]
        needed = about["Id"] in wanted or any(not name.startswith(_PREFIX) for name in names)
        if about["Labels"][engine.LABEL] == "base":
            needed = needed or any(name in wanted for name in names)
        if not needed:  # equal builds are one image with several names, of which one may be wanted
            stale += [name for name in names or [about["Id"]] if name not in wanted]
    return Pruned(tuple(stale)) if dry_run else _removed(stale)


def _removed(names: Iterable[str]) -> Pruned:
    from docker.errors import APIError

    removed: list[str] = []
    kept: list[tuple[str, str]] = []
    for name in names:
        with engine.asking(StartError, f"Removing {name}"):
            try:
                engine.client().api.remove_image(name)
            except APIError as exc:
                if exc.status_code != 404:
                    kept.append((name, engine.short(exc)))
            else:
                removed.append(name)
    return Pruned(tuple(removed), tuple(kept))


def _repository(name: str) -> str:
    return _PREFIX + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "server")


def _tag(server: Server, base: str) -> str:
    manifest = server.manifest
    files = ("requirements.txt",) if manifest.language == "python" else ("package.json", "package-lock.json")
    parts = [str(_LAYOUT), base, _recipe(server), manifest.name, manifest.registry, manifest.requirement]
    parts += [json.dumps(manifest.command), json.dumps(manifest.programs), json.dumps(manifest.debian)]
    parts += [install.lock_text(server, file) for file in files]
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    return f"{_repository(manifest.name)}:{digest}"


def _recipe(server: Server) -> str:
    own = (server.folder or Path()) / "Dockerfile"
    try:
        return own.read_text(encoding="utf-8")
    except FileNotFoundError:
        return _RECIPE
    except (OSError, UnicodeDecodeError) as exc:
        raise InstallError(f"{own} cannot be read ({exc}). Restore it, or remove it.") from exc


def _build(server: Server, about: image_base.Base, tag: str, place: Path, say: Say) -> None:
    manifest = server.manifest
    into = image_content.tree()
    compiled = True
    if manifest.language == "python":
        compiled = image_content.python(server, about, place, into)
    else:
        image_content.node(server, about, say, into)
    inside = [part for part in command(server)[:2] if part.startswith(ROOT)]
    for part in inside:
        if image_content.CONTEXT + part.removeprefix(ROOT) not in into:
            raise InstallError(
                f"{manifest.requirement} was installed but {part} is not in its image. "
                f"Correct 'command' in {server.folder}/server.toml."
            )
    recipe = _recipe(server)
    missing = [name for name in manifest.programs if name not in about.programs and recipe == _RECIPE]
    if missing and not manifest.debian:
        raise InstallError(
            f"Server {server.name!r} needs {', '.join(missing)}, which the base image {about.name} does not "
            "have. Make one that has it: atlas-gym servers base --program NAME."
        )
    if missing:
        say(f"{server.name}: installing {', '.join(manifest.debian)} from Debian's packages")
        recipe = recipe.replace("# packages", _packages_step(manifest.debian))
    if not compiled:
        recipe = recipe.replace("# bytecode", _BYTECODE_STEP)
    _send(into, recipe, about.name, tag, server.name)


def _packages_step(packages: Sequence[str]) -> str:
    return (
        "USER 0:0\nRUN apt-get update && apt-get install --yes --no-install-recommends "
        + " ".join(packages)
        + " && rm -rf /var/lib/apt/lists/*"
    )


def _send(into: Tree, recipe: str, base: str, tag: str, name: str) -> None:
    """Have the engine build the context."""
    # One step, the last: what differs between servers with equal dependencies comes after what they share.
    into.text("Dockerfile", f"{recipe.rstrip()}\nLABEL {engine.LABEL}=image {LABEL_SERVER}={name}\n")
    into.directory(image_content.CONTEXT)
    last: list[str] = []
    failed = ""
    with engine.asking(InstallError, f"Building {tag}"):
        steps = engine.client().api.build(
            fileobj=into.stream(),
            custom_context=True,
            dockerfile="Dockerfile",
            tag=tag,
            buildargs={"BASE": base},
            rm=True,
            forcerm=True,
            decode=True,
        )
        for step in steps:
            last += str(step.get("stream", "")).splitlines()
            failed = failed or str(step.get("error", ""))
    if failed:
        tail = " | ".join(line.strip() for line in last[-8:] if line.strip())[-1500:]
        raise InstallError(
            f"Building {tag} failed: {failed.strip()}. Last lines: {tail}. Check the base image {base} and "
            "the network, or make a base that holds what is missing: atlas-gym servers base."
        )

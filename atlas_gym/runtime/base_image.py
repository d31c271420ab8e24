"""A base image without any registry: copied from this machine, or a minimal Debian.

Owns both ways to make one, its tag and its labels. Does not know servers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from atlas_gym import settings
from atlas_gym.errors import InstallError, StartError
from atlas_gym.runtime import cache, engine, image_parts
from atlas_gym.runtime.image_tar import Tree

Source: TypeAlias = Literal["interpreter", "debootstrap"]
Say = Callable[[str], None]

REPOSITORY: Final = "atlas-gym/base"
DEFAULT: Final = f"{REPOSITORY}:latest"
"""The base that was made last for use: images start from it unless another is named."""
PROGRAMS: Final = ("node", "git")
_LAYOUT: Final = 1
"""Raise it when what a base image holds changes."""
_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"
_SECONDS: Final = 1800.0


def make(
    source: Source = "interpreter",
    *,
    programs: Sequence[str] = PROGRAMS,
    python: str = "",
    tag: str = "",
    as_default: bool = False,
    suite: str = "",
    mirror: str = "",
    say: Say = lambda _message: None,
) -> str:
    """Make a base image, or find the one that holds the same already.

    Args:
        source: "interpreter" copies a Python, the programs, a shell and their libraries from this machine, in
            seconds; "debootstrap" makes a minimal Debian from its packages, in minutes, as root.
        programs: What is in it beside Python and the shell.
        python: The interpreter to copy; "" for the running one.
        tag: One more name for it; "" for none.
        as_default: Whether images are built on it from now on (`DEFAULT`).
        suite: Debian's name of a release; "" for that of this machine.
        mirror: Address of a Debian mirror; "" for the usual one.
        say: Told, in one line each, what takes long.

    Returns:
        Its name, `atlas-gym/base:<digest>`, or `tag`.

    Raises:
        StartError: No engine answers.
        InstallError: Something that belongs in it is not here, or the engine or debootstrap failed.
        StorageError: The disk is full.
    """
    engine.client()
    if source == "interpreter":
        name = _copied(programs, python or image_parts.default_python(), say)
    else:
        name = _debian(programs, suite, mirror, say)
    with engine.asking(InstallError, f"Naming {name}"):
        for extra in filter(None, (tag, DEFAULT if as_default else "")):
            repository, _, version = extra.rpartition(":") if ":" in extra.split("/")[-1] else (extra, "", "")
            engine.client().api.tag(name, repository, version or "latest")
    return tag or name


def find(name: str) -> dict[str, Any] | None:
    """What the engine knows about an image that it has; None when it has none of that name.

    Raises:
        StartError: No engine answers.
    """
    from docker.errors import ImageNotFound

    with engine.asking(StartError, f"Looking for the image {name}"):
        try:
            found: dict[str, Any] = engine.client().api.inspect_image(name)
        except ImageNotFound:
            return None
        return found


def _copied(programs: Sequence[str], python: str, say: Say) -> str:
    parts = image_parts.Parts(Tree())
    image_parts.skeleton(parts.tree)
    major, minor = image_parts.python(parts, python)
    say(f"collecting Python {major}.{minor}, a shell{''.join(f', {name}' for name in programs)}")
    for name in programs:
        image_parts.program(parts, name)
    image_parts.shell(parts)
    image_parts.libraries(parts)
    tag = f"{REPOSITORY}:{_LAYOUT}-{parts.tree.digest()}"
    with cache.making(lock_place(tag)), tempfile.TemporaryDirectory(prefix="atlas-gym-base-") as work:
        if find(tag) is None:
            image_parts.bytecode(parts, python, Path(work))
            say(f"importing {len(parts.tree)} files, {parts.tree.size / 1e6:.0f} MB")
            _import(parts.tree.stream(), tag, "interpreter")
    return tag


def lock_place(name: str) -> Path:
    """The directory of the cache that is locked, and may be used, while this image is made."""
    return settings.cache_dir().absolute() / "images" / re.sub(r"[^\w.-]", "-", name)


def _import(stream: Iterator[bytes], tag: str, source: Source) -> None:
    changes = [
        f"ENV PATH={_PATH}",
        "ENV LANG=C.UTF-8",
        'CMD ["python3"]',
        f"LABEL {engine.LABEL}=base {engine.LABEL}.source={source}",
    ]
    repository, _, version = tag.rpartition(":")
    with engine.asking(InstallError, f"Importing {tag} into the Docker engine"):
        engine.client().api.import_image_from_data(stream, repository, version, changes)


def _debian(programs: Sequence[str], suite: str, mirror: str, say: Say) -> str:
    tool = shutil.which("mmdebstrap") or shutil.which("debootstrap")
    if tool is None:
        raise InstallError(
            "Neither mmdebstrap nor debootstrap is on PATH. Install one (Debian, Ubuntu: apt-get install "
            "debootstrap), or use --from interpreter."
        )
    if os.getuid() != 0 and tool.endswith("/debootstrap"):
        raise InstallError(
            "debootstrap needs root. Run this command as root, install mmdebstrap, or use --from interpreter."
        )
    suite = suite or _release()
    packages = sorted({"python3", "ca-certificates", "tzdata", *_packages(programs)})
    more = re.sub(r"[^A-Za-z0-9_.-]", "", "-".join(_packages(programs))) or "plain"
    tag = f"{REPOSITORY}:{_LAYOUT}-{suite}-{more}"
    with cache.making(lock_place(tag)), tempfile.TemporaryDirectory(prefix="atlas-gym-base-") as work:
        if find(tag) is None:
            archive = Path(work) / "root.tar"
            say(f"making a minimal Debian {suite} with {', '.join(packages)} (minutes)")
            _bootstrap(tool, suite, mirror, packages, Path(work) / "root", archive)
            say(f"importing {archive.stat().st_size / 1e6:.0f} MB")
            with open(archive, "rb") as file:
                _import(iter(lambda: file.read(1 << 20), b""), tag, "debootstrap")
    return tag


def _packages(programs: Sequence[str]) -> list[str]:
    return sorted("nodejs" if name == "node" else name for name in programs)


def _release() -> str:
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except OSError:
        text = ""
    hit = re.search(r"^VERSION_CODENAME=(\w+)", text, re.MULTILINE)
    if hit is None:
        raise InstallError("This machine is no Debian with a named release. Say which one: --suite NAME.")
    return hit[1]


def _bootstrap(
    tool: str, suite: str, mirror: str, packages: Sequence[str], root: Path, archive: Path
) -> None:
    """Run the tool and pack what it made, without caches, manuals and package lists."""
    waste = ("var/cache/apt/*", "var/lib/apt/lists/*", "var/log/*", "usr/share/doc/*", "usr/share/man/*")
    if tool.endswith("/mmdebstrap"):
        skip = [f"--dpkgopt=path-exclude=/{p}" for p in waste if p.startswith("usr")]
        made = [tool, "--variant=minbase", f"--include={','.join(packages)}", *skip, suite, str(archive)]
        _run([*made, *filter(None, [mirror])])
        return
    _run(
        [
            tool,
            "--variant=minbase",
            f"--include={','.join(packages)}",
            suite,
            str(root),
            *filter(None, [mirror]),
        ]
    )
    excluded = [f"--exclude=./{p}" for p in (*waste, "dev/*", "proc/*", "sys/*")]
    _run(["tar", "-C", str(root), "--numeric-owner", *excluded, "-cf", str(archive), "."])


def _run(command: Sequence[str]) -> None:
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as exc:
        raise InstallError(f"{name} took more than {_SECONDS:.0f} s. Check the mirror: --mirror.") from exc
    except OSError as exc:
        raise InstallError(f"{name} cannot be run: {exc}. Install it.") from exc
    if done.returncode != 0:
        last = " | ".join(done.stdout.strip().splitlines()[-6:])[-1500:]
        raise InstallError(
            f"{name} failed with status {done.returncode}: {last}. Check the network and --mirror, or use "
            "--from interpreter."
        )

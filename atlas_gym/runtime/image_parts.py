"""What a base image is made of when it is copied from this machine: an interpreter, programs, libraries.

Owns which files each part needs and where they go in the image. Does not know the engine.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from atlas_gym.errors import InstallError
from atlas_gym.runtime import node
from atlas_gym.runtime.image_tar import Tree

SHELL: Final = (
    *(
        "sh",
        "cat",
        "chmod",
        "cp",
        "cut",
        "date",
        "dirname",
        "basename",
        "echo",
        "env",
        "expr",
        "false",
        "find",
    ),
    *("grep", "head", "id", "ln", "ls", "mkdir", "mktemp", "mv", "printf", "pwd", "readlink", "rm", "rmdir"),
    *("sed", "sleep", "sort", "stat", "tail", "tee", "test", "touch", "tr", "true", "uname", "uniq", "wc"),
    "xargs",
)
"""A shell and the small programs that servers, git and shell tools call; those that are here are copied."""

_JUNK: Final = (
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "site-packages", "dist-packages"),
    *("lib2to3", "__phello__"),
)
_JUNK_FILE: Final = re.compile(
    r"(_tkinter|_test\w*|xxlimited\w*|_ctypes_test|_xx\w+)\..*\.so|turtle\.py|.*\.opt-\d\.pyc|.*\.pyc\.\d+|.*\.a"
)
_BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_EXPECTED: Final = (
    # What wheels may take for granted (PEP 600), and what the C library loads by name only when it is needed.
    *(
        "libgcc_s.so.1",
        "libstdc++.so.6",
        "libm.so.6",
        "libmvec.so.1",
        "libdl.so.2",
        "librt.so.1",
        "libanl.so.1",
    ),
    *("libnsl.so.1", "libutil.so.1", "libpthread.so.0", "libresolv.so.2", "libz.so.1", "libexpat.so.1"),
    *("libnss_files.so.2", "libnss_dns.so.2"),
)
_PROBE: Final = """
import json, os, ssl, sys, sysconfig
base = getattr(sys, "_base_executable", None) or sys.executable
paths = ssl.get_default_verify_paths()
print(json.dumps({"program": os.path.realpath(base), "stdlib": sysconfig.get_path("stdlib"),
                  "platform": sysconfig.get_path("platstdlib", vars={"base": sys.base_prefix,
                  "platbase": sys.base_exec_prefix}), "version": list(sys.version_info[:2]),
                  "cafile": paths.openssl_cafile, "capath": paths.openssl_capath}))
"""


@dataclass
class Parts:
    """A tree under way, and the programs and libraries in it whose own libraries are still to be found."""

    tree: Tree
    binaries: list[Path] = field(default_factory=list)
    modules: dict[Path, str] = field(default_factory=dict)
    """Directories of Python modules -> where they go."""


def place(path: Path | str) -> str:
    """Where a file of this machine goes: the same path, below usr/ for what is merged there."""
    parts = Path(path).parts[1:]
    merged = parts[0] in ("bin", "sbin", "lib", "lib32", "lib64")
    return "/".join(("usr", *parts) if merged else parts)


def skeleton(tree: Tree) -> None:
    """Directories, users, names, time zones and certificates."""
    for name in ("bin", "sbin", "lib", "lib64"):
        tree.directory(f"usr/{name}")
        tree.link(name, f"usr/{name}")
    for name in ("dev", "proc", "sys", "run", "etc", "opt", "root", "var", "home"):
        tree.directory(name)
    # Mounts get the rights of what they cover: an empty one must be writable for whoever the server runs as.
    for name in ("tmp", "var/tmp", "workspace", "home/agent"):
        tree.directory(name, 0o1777)
    tree.text(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    )
    tree.text("etc/group", "root:x:0:\nnogroup:x:65534:\n")
    tree.text("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    tree.text("etc/os-release", 'ID=atlas-gym\nNAME="atlas-gym base"\nPRETTY_NAME="atlas-gym base"\n')
    zones = Path("/usr/share/zoneinfo")
    if zones.is_dir():
        tree.copy("usr/share/zoneinfo", zones, lambda p: p.parts[0] in ("right", "posix"))
    for name in ("C.utf8", "C.UTF-8"):
        if Path("/usr/lib/locale", name).is_dir():
            tree.copy(f"usr/lib/locale/{name}", Path("/usr/lib/locale", name))
    for file in ("/etc/mime.types", "/etc/protocols", "/etc/services"):
        if Path(file).is_file():
            tree.file(place(file), Path(file))
    bundle = next((Path(p) for p in _BUNDLES if Path(p).is_file()), None)
    if bundle is not None:
        tree.file("etc/ssl/certs/ca-certificates.crt", bundle)


def python(parts: Parts, program: str) -> tuple[int, int]:
    """Add an interpreter with its standard library to /usr/local; gives its (major, minor).

    Args:
        parts: What it is added to.
        program: The interpreter, or that of a virtual environment made from it.

    Raises:
        InstallError: It does not run.
    """
    said = _ask([program, "-I", "-c", _PROBE])
    about = json.loads(said)
    version = (int(about["version"][0]), int(about["version"][1]))
    name = f"python{version[0]}.{version[1]}"
    source = Path(about["program"])
    parts.tree.file(f"usr/local/bin/{name}", source)
    for alias in ("python3", "python"):
        parts.tree.link(f"usr/local/bin/{alias}", name)
    parts.binaries.append(source)
    for folder in dict.fromkeys((Path(about["stdlib"]), Path(about["platform"]))):
        parts.modules[folder] = f"usr/local/{folder.parent.name}/{name}"
        parts.tree.copy(parts.modules[folder], folder, _is_junk)
        parts.binaries += [f for f in sorted(folder.glob("lib-dynload/*.so")) if not _JUNK_FILE.match(f.name)]
    parts.tree.directory(f"usr/local/lib/{name}/site-packages")
    if "etc/ssl/certs/ca-certificates.crt" in parts.tree and about["cafile"].startswith("/"):
        parts.tree.link(place(about["cafile"]), "/etc/ssl/certs/ca-certificates.crt")
    return version


def bytecode(parts: Parts, program: str, work: Path) -> None:
    """Compile the standard library where it came without: an image is read-only and could never keep it.

    Args:
        parts: What it is added to; `python` comes first.
        program: The interpreter that was given to `python`.
        work: A directory that must stay until the tree is sent.

    Raises:
        InstallError: The interpreter does not run.
    """
    for folder, inside in parts.modules.items():
        sources = [path for path in parts.tree.paths(inside) if path.endswith(".py")]
        compiled = [path for path in parts.tree.paths(inside) if path.endswith(".pyc")]
        if 2 * len(compiled) > len(sources):
            continue
        junk = r"/(config-[^/]*|" + "|".join(map(re.escape, _JUNK)) + r")(/|$)"
        # Its status is 1 when any file is no valid Python, as some are on purpose.
        compiler = ["env", f"PYTHONPYCACHEPREFIX={work}", program, "-m", "compileall", "-q"]
        _ask([*compiler, "-x", junk, "-s", str(folder), "-p", f"/{inside}", str(folder)], (0, 1))
        for file in sorted((work / folder.relative_to("/")).rglob("*.pyc")):
            where = file.relative_to(work / folder.relative_to("/"))
            parts.tree.file(f"{inside}/{where.parent}/__pycache__/{where.name}".replace("/./", "/"), file)


def _is_junk(path: Path) -> bool:
    if path.parts[0].startswith("config-") or path.name in _JUNK:
        return True
    return _JUNK_FILE.fullmatch(path.name) is not None


def program(parts: Parts, name: str) -> None:
    """Add a program of PATH, with what is known to belong to it (node, git).

    Raises:
        InstallError: It is not on PATH, or is a script, whose files cannot be known.
    """
    if name == "node":
        tool = node.require(lambda _message: None)
        # A version manager's `node` is a script: the process knows where the real one is.
        source = Path(_ask([str(tool.node), "-p", "process.execPath"]).strip())
        if Path("/usr/share/nodejs").is_dir() and source.is_relative_to("/usr/bin"):
            shared = ("undici", "cjs-module-lexer", "acorn", "acorn-walk", "minimatch", "node-undici")
            for package in shared:  # Debian's node reads these from there
                if Path("/usr/share/nodejs", package).is_dir():
                    parts.tree.copy(f"usr/share/nodejs/{package}", Path("/usr/share/nodejs", package))
    else:
        found = shutil.which(name)
        if found is None:
            raise InstallError(f"{name} is not on PATH. Install it, or leave out --program {name}.")
        source = Path(found).resolve()
    _require_binary(source, name)
    _binary(parts, source, name)
    if name == "git":
        helpers = Path(_ask([str(source), "--exec-path"]).strip())
        parts.tree.copy(place(helpers), helpers, _is_git_junk)
        parts.binaries += [
            f for f in sorted(helpers.iterdir()) if not _is_git_junk(Path(f.name)) and _is_elf(f)
        ]
        templates = Path("/usr/share/git-core/templates")
        if templates.is_dir():
            parts.tree.copy(place(templates), templates)


def _is_git_junk(path: Path) -> bool:
    """Servers, mail and foreign repositories: they bring large libraries and need the network."""
    return (
        re.match(r"git-(http|imap|daemon|shell|credential|remote-|svn|cvs|p4|send|instaweb)", path.name)
        is not None
    )


def shell(parts: Parts) -> None:
    """Add /bin/sh and the small programs of `SHELL` that this machine has as binaries."""
    for name in SHELL:
        found = shutil.which(name)
        if found is not None and _is_elf(Path(found)):
            _binary(parts, Path(found).resolve(), name)


def _binary(parts: Parts, source: Path, name: str) -> None:
    parts.tree.file(f"usr/bin/{source.name}", source)
    if source.name != name:  # busybox, dash: one program with several names
        parts.tree.link(f"usr/bin/{name}", source.name)
    parts.binaries.append(source)


def _is_elf(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def _require_binary(path: Path, name: str) -> None:
    if not _is_elf(path):
        raise InstallError(
            f"{path} is a script: what it needs cannot be copied. Leave out --program {name}, or use "
            "--from debootstrap."
        )


def libraries(parts: Parts) -> None:
    """Add every shared library that the binaries need, and the loader, where that loader looks for them.

    Raises:
        InstallError: They cannot be found.
    """
    found, loaders = needs(parts.binaries)
    libc = next((p for name, p in found.items() if name.startswith(("libc.so", "libc.musl"))), None)
    if not loaders or libc is None:
        raise InstallError(
            "The libraries of this machine's Python cannot be found with ldd. Use --from debootstrap, or set "
            "ATLAS_BASE_PYTHON and ATLAS_BASE_NODE to images you have."
        )
    folder = place(libc.parent.resolve())
    for loader in loaders:
        parts.tree.file(place(loader), loader)
    expected = {name: libc.parent / name for name in _EXPECTED if (libc.parent / name).exists()}
    for name, source in {**expected, **needs(expected.values())[0], **found}.items():
        parts.tree.file(f"{folder}/{name}", source)


def needs(binaries: Iterable[Path]) -> tuple[dict[str, Path], list[Path]]:
    """The shared libraries that binaries need, by name, and their loaders; asks `ldd`.

    Raises:
        InstallError: There is no `ldd`.
    """
    ldd = shutil.which("ldd")
    if ldd is None:
        raise InstallError("ldd is not on PATH. Use --from debootstrap instead.")
    said = subprocess.run(
        [ldd, *dict.fromkeys(map(str, binaries))],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,
        check=False,  # it fails for a static program, which needs none
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    found: dict[str, Path] = {}
    loaders: dict[Path, None] = {}
    for line in said.splitlines():
        hit = re.match(r"\s+(\S+) => (/\S+) \(", line)
        bare = re.match(r"\s+(/\S+) \(", line)
        if hit and hit[1].startswith("/"):  # musl: the loader is the C library
            loaders[Path(hit[1])] = None
        elif hit:
            found.setdefault(hit[1], Path(hit[2]))
            if hit[1].startswith("libc.musl"):
                loaders[Path(hit[2])] = None
        elif bare:
            loaders[Path(bare[1])] = None
    return found, list(loaders)


def default_python() -> str:
    """The interpreter that runs this."""
    return sys.executable


def _ask(command: list[str], good: tuple[int, ...] = (0,)) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise InstallError(f"{command[0]} does not run: {exc}. Check the path.") from exc
    if done.returncode not in good:
        raise InstallError(f"{command[0]} does not run: {done.stderr.strip()[-300:]}. Check the path.")
    return done.stdout

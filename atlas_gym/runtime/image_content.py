"""What an image of a server holds beside its base: its dependencies, put together outside the image.

Owns the layout below /opt/server, which is the same on every base. Neither a package index nor a package
tool is needed while the image is built. Does not know the engine.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from atlas_gym import settings
from atlas_gym.errors import InstallError
from atlas_gym.runtime import install, uv
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.image_base import Base
from atlas_gym.runtime.image_tar import Tree

ROOT: Final = "/opt/server"
CONTEXT: Final = "server"
"""Directory of the build context that becomes `ROOT`."""

_EPOCH: Final = 1_577_836_800
"""One time for all files: equal content makes an equal layer. Not 0, which zip files cannot hold."""


def tree() -> Tree:
    """An empty build context."""
    return Tree(_EPOCH)


def python(server: Server, base: Base, place: Path, into: Tree) -> bool:
    """Add an environment for the base's interpreter, wheels only, every hash checked.

    Args:
        server: Whose dependencies.
        base: What it will run on.
        place: An empty directory to work in.
        into: The build context.

    Returns:
        Whether bytecode is in it; otherwise it should be compiled in the image.

    Raises:
        InstallError: uv failed.
        LockError: The lock is missing or does not fit the manifest.
        StorageError: The disk is full.
    """
    version = ".".join(map(str, base.python))
    site = place / "site"
    lock = place / "requirements.txt"
    with settings.storage(f"Writing {lock}"):
        lock.write_text(install.lock_text(server, "requirements.txt"), encoding="utf-8")
    interpreter = uv.interpreter(version) or uv.interpreter(">=3.11")
    uv.run_uv(
        *("pip", "install", "--quiet", "--target", str(site), "--python", interpreter),
        *("--python-version", version, "--python-platform", base.platform),
        *("--no-deps", "--require-hashes", "--only-binary", ":all:", "--requirements", str(lock)),
        cwd=place,
    )
    packages = f"lib/python{version}/site-packages"
    compiled = uv.minor(version) == base.python and _compiled(interpreter, site, f"{ROOT}/{packages}")
    into.copy(f"{CONTEXT}/{packages}", site, lambda path: path.parts[0] == "bin" or path.name == ".lock")
    for script in sorted((site / "bin").glob("*")):
        _script(into, script)
    interpreter_links(into, base)
    return compiled


def _compiled(interpreter: str, site: Path, shown: str) -> bool:
    """Compile for the image: tracebacks name the paths inside, and files are not compared by their time."""
    done = subprocess.run(
        [
            *(interpreter, "-I", "-m", "compileall", "-q", "-j", "2"),
            *("--invalidation-mode", "unchecked-hash", "-s", str(site), "-p", shown, str(site)),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=600,
        check=False,  # packages carry templates and tests that are no valid Python
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    return done.returncode in (0, 1)


def _script(into: Tree, script: Path) -> None:
    path = f"{CONTEXT}/bin/{script.name}"
    try:
        text = script.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        into.file(path, script)  # a compiled program
        return
    first, _, rest = text.partition("\n")
    if first.startswith("#!") and "python" in first:
        text = f"#!{ROOT}/bin/python\n{rest}"
    into.text(path, text, 0o755)


def interpreter_links(into: Tree, base: Base) -> None:
    """Make `ROOT` a virtual environment of the base's interpreter: `bin/python` finds its packages itself."""
    program = base.programs.get("python3", "")
    if program:
        for name in ("python", "python3"):
            into.link(f"{CONTEXT}/bin/{name}", program)
        version = ".".join(map(str, base.python))
        into.directory(f"{CONTEXT}/lib/python{version}/site-packages")
        into.text(
            f"{CONTEXT}/pyvenv.cfg",
            f"home = {os.path.dirname(program)}\ninclude-system-site-packages = false\nversion = {version}\n",
        )
    if base.programs.get("node"):
        into.link(f"{CONTEXT}/bin/node", base.programs["node"])


def node(server: Server, base: Base, say: Callable[[str], None], into: Tree) -> None:
    """Add the modules of the locked npm install, which is made in the cache if it is not there.

    Raises:
        InstallError: npm failed, or the base is for another kind of machine.
        LockError: A lock is missing.
        StorageError: The disk is full.
    """
    if base.machine != platform.machine():
        raise InstallError(
            f"The base image {base.name} is for {base.machine} machines; this one is {platform.machine()}. "
            "Name a base for this machine: --base, ATLAS_BASE_NODE."
        )
    made = install.install(server, say)
    into.copy(f"{CONTEXT}/node_modules", made.directory / "node_modules")
    interpreter_links(into, base)

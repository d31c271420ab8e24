"""Writing a server's dependency lock: `requirements.txt`, or `package.json` and `package-lock.json`.

Owns what a lock may hold (exact versions, hashes, no registry's address). Does not install or start
anything.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from atlas_gym import settings
from atlas_gym.errors import LockError
from atlas_gym.runtime import node, uv
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Say


def write_dependencies(server: Server, say: Say, *, upgrade: bool = False) -> bool:
    """Resolve the server's package and pins again, keeping locked versions where they still fit.

    Args:
        server: A server with a folder.
        say: Told, in one line each, what takes long.
        upgrade: Take the newest versions that fit instead.

    Returns:
        Whether the lock changed.

    Raises:
        LockError: The server has no folder, or a package comes without a hash.
        InstallError: uv or npm failed.
        StorageError: The folder cannot be written.
    """
    folder = server.folder
    if folder is None:
        raise LockError(
            f"Server {server.name!r} comes from your mcp.json, which has no locks. Nothing to do."
        )
    say(f"resolving {server.manifest.requirement}")
    with tempfile.TemporaryDirectory(prefix="atlas-gym-lock-") as scratch:
        place = Path(scratch)
        if server.manifest.language == "python":
            texts = _python(server, folder, place, upgrade)
        else:
            texts = _node(server, folder, place, say, upgrade)
    changed = False
    for name, text in texts.items():
        file = folder / name
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            changed = True
            with settings.storage(f"Writing {file}"):
                part = file.with_name(f"{name}.part")
                part.write_text(text, encoding="utf-8")
                part.replace(file)
    return changed


def _python(server: Server, folder: Path, place: Path, upgrade: bool) -> dict[str, str]:
    manifest = server.manifest
    (place / "wanted.in").write_text("\n".join([manifest.requirement, *manifest.pins]), encoding="utf-8")
    lock = place / "requirements.txt"
    if (folder / lock.name).exists() and not upgrade:
        shutil.copyfile(folder / lock.name, lock)
    oldest = re.search(r"3\.\d+", manifest.python)
    uv.run_uv(
        *("pip", "compile", "--quiet", "wanted.in", "--output-file", lock.name),
        *("--universal", "--python-version", oldest[0] if oldest else "3.11"),
        *("--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate"),
        *("--no-emit-index-url", "--no-emit-find-links"),
        cwd=place,
    )
    return {lock.name: lock.read_text(encoding="utf-8")}


def _node(server: Server, folder: Path, place: Path, say: Say, upgrade: bool) -> dict[str, str]:
    manifest = server.manifest
    wanted = {
        "name": f"atlas-gym-{server.name}",
        "private": True,
        "dependencies": {manifest.package: manifest.version},
    }
    (place / "package.json").write_text(_json(wanted), encoding="utf-8")
    lock = place / "package-lock.json"
    if (folder / lock.name).exists() and not upgrade:
        shutil.copyfile(folder / lock.name, lock)
    node.run_npm(node.require(say), "install", "--package-lock-only", "--ignore-scripts", cwd=place)
    raw = json.loads(lock.read_text(encoding="utf-8"))
    return {"package.json": _json(wanted), "package-lock.json": _json(without_addresses(raw))}


def without_addresses(lock: dict[str, Any]) -> dict[str, Any]:
    """A package-lock without registry addresses and funding links; `npm ci` needs neither.

    Raises:
        LockError: A package has no integrity hash, so dropping its address would leave it unchecked.
    """
    packages = {}
    for path, entry in lock["packages"].items():
        if path and "integrity" not in entry:
            raise LockError(f"package-lock.json: {path} has no integrity hash. It cannot be locked.")
        packages[path] = {k: v for k, v in entry.items() if k not in ("resolved", "funding")}
    return {**lock, "packages": packages}


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

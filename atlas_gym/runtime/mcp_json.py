"""The user's own servers, from the ecosystem's usual `mcp.json`.

Turns each entry into a Manifest with its command unchanged. Does not know the servers: no lock, no
declared read-only tools, no claim about state. Entries with a url keep their headers as written: no secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.errors import ManifestError
from atlas_gym.runtime.manifest import Manifest, build_manifest

_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_CONNECTION: Final = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
)
"""What a command that downloads itself (npx, uvx) or calls an API may need to get out of this network."""
_REPEAT: Final = {"PYTHONHASHSEED": "0"}
"""Without it a server that lists a Python set says something else at each start."""

_ADDRESSES: Final = ("url", "httpUrl", "serverUrl")
"""How different clients call the address of a running server."""
_NAME: Final = re.compile(r"[^A-Za-z0-9._-]+")


def read(path: Path) -> tuple[Manifest, ...]:
    """Read `{"mcpServers": {name: {"command", "args", "env"} or {"url", "headers"}}}`.

    Fields of other clients are ignored; an entry with `"disabled": true` is left out.

    Raises:
        ManifestError: Not readable, not JSON, or an entry that is neither a command nor a url.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as exc:
        raise ManifestError(f"{path}: cannot be read as JSON: {exc}. Correct the file.") from exc
    entries = raw.get("mcpServers") if isinstance(raw, dict) else None
    if not isinstance(entries, dict):
        raise ManifestError(
            f'{path}: no "mcpServers" object. Expected {{"mcpServers": {{"name": {{"command": "...", '
            '"args": [], "env": {}}}}.'
        )
    return tuple(
        _manifest(name, entry, path)
        for name, entry in entries.items()
        if not (isinstance(entry, dict) and entry.get("disabled") is True)
    )


def _manifest(name: str, entry: Any, path: Path) -> Manifest:
    where = f"{path}: server {name!r}"
    if not isinstance(entry, dict):
        raise ManifestError(f"{where}: expected an object, found {type(entry).__name__}. Correct it.")
    raw: dict[str, Any] = {
        # Other clients allow spaces and the like; a name here is also a folder and a Python string.
        "name": _NAME.sub("-", name).strip("-.") or name,
        "description": "A server of your own mcp.json.",
        "registry": "user",
        "language": "other",
        "state": "memory",
        "state_bound": "import",
        "network": ("*",),
    }
    url = next((entry[key] for key in _ADDRESSES if entry.get(key)), None)
    if url is not None:
        headers = entry.get("headers") or {}
        if not isinstance(headers, Mapping):
            raise ManifestError(f"{where}: field 'headers' must be an object of strings. Correct it.")
        reached = {
            "url": _text(url, where, "url"),
            "headers": {key: _text(value, where, f"headers.{key}") for key, value in headers.items()},
            "protocol": "auto",
        }
        return build_manifest({**raw, **reached}, where)
    command = _text(entry.get("command"), where, "command")
    args = entry.get("args", [])
    if not isinstance(args, list):
        raise ManifestError(f"{where}: field 'args' must be a list of strings. Correct it.")
    plain, allowed = _variables(entry.get("env") or {}, where)
    raw["command"] = (
        _beside(path, command) if "/" in command else command,
        *(_beside(path, _text(arg, where, "args")) for arg in args),
    )
    return build_manifest({**raw, "env": {**_REPEAT, **plain}, "env_allow": (*allowed, *_CONNECTION)}, where)


def _text(value: Any, where: str, field: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ManifestError(f"{where}: field {field!r} must be a string, found {value!r}. Correct it.")
    return str(value)


def _beside(path: Path, text: str) -> str:
    """A file that is named relative to the mcp.json, as a whole path: servers start in the workspace."""
    if not text or text.startswith(("-", "/")):
        return text
    file = path.resolve().parent / text
    return str(file) if file.is_file() else text


def _variables(env: Any, where: str) -> tuple[dict[str, str], tuple[str, ...]]:
    """Split `env` into fixed values and names (`"KEY": "${KEY}"`) taken from the user's own variables."""
    if not isinstance(env, Mapping):
        raise ManifestError(f"{where}: field 'env' must be an object of strings. Correct it.")
    plain: dict[str, str] = {}
    allowed: list[str] = []
    for key, value in env.items():
        text = _text(value, where, f"env.{key}")
        hit = _REFERENCE.fullmatch(text)
        if hit is not None and hit[1] == key:
            allowed.append(key)
        else:
            plain[key] = _filled(text, f"{where}: field 'env.{key}'")
    return plain, tuple(allowed)


def _filled(text: str, where: str) -> str:
    for name in _REFERENCE.findall(text):
        value = settings.secret(name)
        if value is None:
            raise ManifestError(f"{where} refers to the variable {name}, which is not set. Set it.")
        text = text.replace(f"${{{name}}}", value).replace(f"${{env:{name}}}", value)
    return text

"""The address and headers of a server that runs elsewhere, and the secrets in them.

Owns references to the user's variables (`${TOKEN}`), what may be shown of an address, and replacing
secrets in text. Does not know HTTP clients. Nothing here shows a value in its `repr`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from atlas_gym import settings
from atlas_gym.errors import StartError
from atlas_gym.runtime.manifest import Manifest

_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_SCHEME: Final = re.compile(r"([A-Za-z]+ )?" + _REFERENCE.pattern)
"""A value that is one variable, as in `Bearer ${TOKEN}`: nothing else in it is secret."""
_PLAIN: Final = {"accept", "accept-language", "content-type", "origin", "referer", "user-agent"}
"""Headers that hold no secret unless a variable is named in them."""
_SHORTEST: Final = 4
"""Characters of a secret. Shorter ones would be found in every other word."""


@dataclass(frozen=True)
class Endpoint:
    """Where a server is reached, with every variable filled in."""

    shown: str
    """The address without user, password and query."""
    variables: tuple[str, ...]
    """The variables that address and headers name."""
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    """By names in lower case, so that none is sent twice."""
    secrets: tuple[str, ...] = field(repr=False)
    """What may not be shown, the longest first."""

    def redact(self, text: str) -> str:
        """`text` with every secret replaced."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def redact_line(self, line: bytes) -> bytes:
        """The same for JSON as it came over the wire."""
        for secret in self.secrets:
            for form in {secret, json.dumps(secret)[1:-1]}:
                line = line.replace(form.encode(), b"***")
        return line


def variables(manifest: Manifest) -> tuple[str, ...]:
    """The names of the user's variables that address and headers refer to."""
    texts = (manifest.url, *manifest.headers.values())
    return tuple(dict.fromkeys(name for text in texts for name in _REFERENCE.findall(text)))


def unset(manifest: Manifest) -> tuple[str, ...]:
    """Those of `variables` that are not set."""
    return tuple(name for name in variables(manifest) if not settings.secret(name))


def resolve(manifest: Manifest) -> Endpoint:
    """Fill the variables in, as they are now.

    Raises:
        StartError: A variable is not set, or the address or a header cannot be sent; no value is shown.
    """
    name = manifest.name
    missing = unset(manifest)
    if missing:
        raise StartError(
            f"Server {name!r} refers to the variable {missing[0]} in your mcp.json, which is not set. "
            f"Set it: export {missing[0]}=..."
        )
    url = _filled(manifest.url)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise StartError(
            f"Server {name!r}: the url {shown(manifest.url)!r} is no http:// or https:// address. Correct it "
            "in your mcp.json."
        )
    headers: dict[str, str] = {}
    secrets = {settings.secret(variable) or "" for variable in variables(manifest)}
    secrets |= {parts.password or "", *(part.partition("=")[2] for part in parts.query.split("&"))}
    for key, template in manifest.headers.items():
        value = headers[key.lower()] = _filled(template).strip()
        if not _NAME.fullmatch(key) or not _VALUE.fullmatch(value):
            raise StartError(
                f"Server {name!r}: the header {key!r} cannot be sent. Names are letters, digits "
                "and dashes, values one line of ASCII. Correct it in your mcp.json."
            )
        if not _SCHEME.fullmatch(template) and (key.lower() not in _PLAIN or _REFERENCE.search(template)):
            secrets |= {value, *value.split()[1:]}
    kept = sorted((s for s in secrets if len(s) >= _SHORTEST), key=len, reverse=True)
    return Endpoint(shown(url), variables(manifest), url, headers, tuple(kept))


def by_hand(manifest: Manifest) -> str:
    """A shell line that sends the server its first message; variables stay variables."""
    heads = ["Content-Type: application/json", "Accept: application/json, text/event-stream"]
    for key, template in manifest.headers.items():
        value = _REFERENCE.sub(r"${\1}", template) if _SCHEME.fullmatch(template) else "..."
        heads.append(f"{key}: {value}")
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "curl", "version": "0"},
        },
    }
    flags = " ".join(f'-H "{head}"' for head in heads)
    return f"curl -i {flags} -d '{json.dumps(hello)}' \"{shown(manifest.url)}\""


def shown(url: str) -> str:
    """An address without what may be secret: user, password, query, fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _filled(template: str) -> str:
    return _REFERENCE.sub(lambda hit: settings.secret(hit[1]) or "", template)

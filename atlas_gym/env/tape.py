"""The cassette of a world: how it is used, and the servers that it knows.

Owns what a server is called in it (a digest over its lock, equal on every machine) and the tools of servers
that are not installed. Does not know episodes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.env.fleet import Prepared, read_lock
from atlas_gym.errors import ConfigError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.toolspace.lock import Lock, digest_tool
from atlas_gym.toolspace.texts import load_texts
from atlas_gym.wire.cassette import Cassette, ServerRecord
from atlas_gym.wire.cassette_keys import Secrets, name_server
from atlas_gym.wire.cassette_near import missing_server

MODES: Final = ("record", "replay", "replay-or-live")

_SECRET_NAME: Final = re.compile(r"key|token|secret|pass|pwd|auth|cred|cookie", re.I)
"""Variables of a user's mcp.json whose values are not stored; the others are paths, switches and locales."""


class Tape:
    """An opened cassette and its mode.

    Args:
        path: The file.
        mode: One of `MODES`.

    Raises:
        CassetteError: Missing (in mode "replay"), no cassette, damaged, or written by a newer version.
        StorageError: It cannot be written.
    """

    def __init__(self, path: str, mode: str) -> None:
        self.mode = mode
        self._cassette = Cassette.open(path, create=mode != "replay")
        self._digest = (0, "")
        self._digests: dict[str, str] = {}
        self._records: dict[str, ServerRecord] = {}
        self._lock = threading.Lock()

    @property
    def cassette(self) -> Cassette:
        """The cassette; made anew where somebody removed the file in order to record again."""
        with self._lock:
            if not self.replays_only and not self._cassette.path.exists():
                self._cassette = Cassette.open(self._cassette.path, create=True)
                for record in self._records.values():
                    self._cassette.add_server(record)
            return self._cassette

    @property
    def replays_only(self) -> bool:
        """Whether nothing may ever be started."""
        return self.mode == "replay"

    @property
    def digest(self) -> str:
        """What is played; "" where it may still grow."""
        if not self.replays_only:
            return ""
        with settings.storage(f"Reading {self.cassette.path}"):
            changed = self.cassette.path.stat().st_mtime_ns
        if self._digest[0] != changed:
            self._digest = (changed, self.cassette.digest())
        return self._digest[1]

    def tasks(self) -> tuple[str, ...]:
        """Ids of the tasks that were recorded to their end."""
        return tuple(row.task for row in self.cassette.contents() if row.whole)

    def server_digest(self, server: Server) -> str:
        """What calls to a server are kept under; "" for one without a lock whose tools nobody has read."""
        if server.name not in self._digests:
            lock = read_lock(server)
            if lock is None:
                return ""
            self._digests[server.name] = _of_lock(server, lock)
        return self._digests[server.name]

    def recorded(self, server: Server) -> ServerRecord | None:
        """What the cassette knows of a server; None where it does not, or where everything is recorded anew.

        Raises:
            ConfigError: It does not know it, and nothing may be started to ask.
        """
        if self.mode == "record":
            return None
        digest = self.server_digest(server)
        known = (r for r in self.cassette.servers() if r.name == server.name)
        found = next((r for r in known if (r.digest == digest if digest else not r.locked)), None)
        if found is not None:
            self._digests[server.name], self._records[server.name] = found.digest, found
        elif self.replays_only:
            raise ConfigError(missing_server(self.cassette, server.name))
        return found

    def plays(self, server: Server) -> bool:
        """Whether nothing must be installed to show a server's tools."""
        try:
            return self.recorded(server) is not None
        except ConfigError:
            return False

    def missing(self, server: Server) -> str:
        """Why the cassette does not hold a server, and the next step."""
        return missing_server(self.cassette, server.name)

    def keep(
        self, server: Server, tools: Iterable[Mapping[str, Any]], prepared: Prepared | None
    ) -> tuple[dict[str, Any], ...]:
        """Record what a live server says of its tools.

        Args:
            server: Which one.
            tools: What it lists.
            prepared: Its installation; None for a server of this process.

        Returns:
            The tools as they are stored, and so as agents see them.

        Raises:
            StorageError: The cassette cannot be written.
        """
        lock = read_lock(server)
        hidden = secrets([server.manifest])
        raw = tuple(dict(hidden.value(tool)) for tool in tools)
        version = server.manifest.requirement
        pairs = [(str(tool.get("name")), digest_tool(tool)) for tool in raw]
        digest = _of_lock(server, lock) if lock else name_server(server.name, version, pairs)
        texts = load_texts(prepared.installation) if prepared else None
        record = ServerRecord(
            name=server.name,
            digest=digest,
            version=version,
            server_version=texts.server_version if texts else "",
            protocol=texts.protocol if texts else "",
            tools=raw,
            notes=tuple(map(hidden.text, texts.notes if texts else ())),
            locked=lock is not None,
        )
        if record not in self.cassette.servers():
            self.cassette.add_server(record)
        self._digests[server.name], self._records[server.name] = digest, record
        return raw


def secrets(manifests: Iterable[Manifest]) -> Secrets:
    """What may not be stored: the user's own variables that these servers see, and keys of an mcp.json."""
    values: list[str] = []
    for manifest in manifests:
        values += [value for name in manifest.env_allow if (value := settings.secret(name))]
        if manifest.registry == "user":
            values += [value for name, value in manifest.env.items() if _SECRET_NAME.search(name)]
    return Secrets(values)


def _of_lock(server: Server, lock: Lock) -> str:
    return name_server(server.name, server.manifest.requirement, [(t.name, t.digest) for t in lock.tools])

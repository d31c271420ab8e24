"""All servers that can be named: the shipped folders and the user's own mcp.json.

Does not know whether a server is installed or can run on this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from atlas_gym import settings
from atlas_gym.errors import ManifestError, unknown
from atlas_gym.runtime import mcp_json as user_file
from atlas_gym.runtime.manifest import Manifest, load_manifest


@dataclass(frozen=True)
class Server:
    """A manifest and the folder with its locks; no folder for a server of the user's mcp.json."""

    manifest: Manifest
    folder: Path | None

    @property
    def name(self) -> str:
        """The name that tasks, agents and commands use."""
        return self.manifest.name


class Catalog:
    """Servers by name, in alphabetical order."""

    def __init__(self, servers: Mapping[str, Server]) -> None:
        self._servers = dict(sorted(servers.items()))

    @classmethod
    def load(cls, folders: Sequence[Path] | None = None, mcp_json: Path | None = None) -> Catalog:
        """Read every `<folder>/<name>/server.toml`, and the user's mcp.json.

        Args:
            folders: Folders of server folders; None for the shipped `servers`.
            mcp_json: The user's own servers; None for none.

        Raises:
            ManifestError: A file that does not say what it must, or a name that is taken twice.
        """
        found: dict[str, Server] = {}
        for folder in [settings.shipped("servers")] if folders is None else folders:
            if not folder.is_dir():
                raise ManifestError(f"{folder}: no such folder of servers. Check the path.")
            for file in sorted(folder.glob("*/server.toml")):
                server = Server(load_manifest(file), file.parent)
                if server.name != file.parent.name:
                    raise ManifestError(
                        f"{file}: field 'name' is {server.name!r} but its folder is {file.parent.name!r}. "
                        "Give both the same name."
                    )
                _add(found, server, str(file))
        if mcp_json is not None:
            for manifest in user_file.read(mcp_json):
                _add(found, Server(manifest, None), str(mcp_json))
        return cls(found)

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, sorted."""
        return tuple(self._servers)

    def get(self, name: str) -> Server:
        """The server of that name.

        Raises:
            UnknownNameError: With the closest name.
        """
        server = self._servers.get(name)
        if server is None:
            raise unknown("server", name, self._servers, "See: atlas-gym servers list.")
        return server

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers.values())

    def __len__(self) -> int:
        return len(self._servers)

    def __contains__(self, name: object) -> bool:
        return name in self._servers


def _add(found: dict[str, Server], server: Server, where: str) -> None:
    if server.name in found:
        other = found[server.name].folder or "mcp.json"
        raise ManifestError(f"{where}: a server named {server.name!r} exists already ({other}). Rename one.")
    found[server.name] = server

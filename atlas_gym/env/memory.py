"""In-process servers that a suite brings along, so that it runs with nothing installed.

Owns reading `memory_servers.py` of a suite's folder. The servers speak real MCP over in-memory byte
streams; only the process is missing. Does not know episodes.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from atlas_gym.errors import ConfigError, TaskError, boundary
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.task.suite import suite_folder
from atlas_gym.wire.fake import FakeServer

FILE = "memory_servers.py"


@dataclass(frozen=True)
class MemoryServer:
    """One in-process server and what its manifest says."""

    fake: FakeServer
    description: str
    """One line for the index."""
    read_only: tuple[str, ...] = ()
    state: Literal["none", "workspace", "memory"] = "memory"

    def listing(self) -> list[dict[str, Any]]:
        """What its `tools/list` says."""
        return [dict(tool.listing) for tool in self.fake.tools.values()]

    def server(self, name: str) -> Server:
        """The catalog's entry for it."""
        manifest = Manifest(
            name=name,
            description=self.description,
            registry="user",
            command=("in-process",),
            state=self.state,
            state_bound="start",
            read_only=self.read_only,
        )
        return Server(manifest, None)

    def installation(self, name: str) -> Installation:
        """What stands for an installation where there is nothing to install."""
        server = self.server(name)
        return Installation(server=server, directory=Path(), command=server.manifest.command, read_paths=())


def memory_servers(suite: str) -> Mapping[str, MemoryServer]:
    """The servers of a suite's `memory_servers.py`, which gives them as `servers()`.

    Args:
        suite: A shipped suite's name or a folder; its Python code is run.

    Raises:
        ConfigError: The suite brings none.
        TaskError: The file fails, or gives something else.
    """
    file = suite_folder(suite) / FILE
    if not file.is_file():
        raise ConfigError(
            f"Suite {suite!r} has no in-process servers (no {FILE} in its folder). Use runtime='process' "
            "with it, or suite='toy' with runtime='memory'."
        )
    with boundary(TaskError, f"loading {file}"):
        made = _load(file).servers()
    if not isinstance(made, Mapping) or not all(isinstance(v, MemoryServer) for v in made.values()):
        raise TaskError(f"{file}: servers() must give a mapping of name to MemoryServer.")
    return made


def _load(file: Path) -> ModuleType:
    name = f"atlas_memory_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

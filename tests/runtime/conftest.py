"""What the tests of runtimes share: an installation of any program, an episode's directory, readers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.runtime import kernel, uv
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.prefork import Hosts
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

Install = Callable[..., Installation]
ReadAll = Callable[[Link], Awaitable[bytes]]


def _install(
    command: Sequence[str], *, name: str = "probe", read: Sequence[str] = (), **more: Any
) -> Installation:
    manifest = Manifest(
        name=name,
        description="a program of a test",
        registry="user",
        language="other",
        command=tuple(command),
        state="none",
        state_bound="call",
        **more,
    )
    paths = (Path("/bin"), Path("/usr/bin"), *map(Path, read))
    return Installation(Server(manifest, None), Path("/"), tuple(command), paths)


def _python(code: str, **more: Any) -> Installation:
    base = os.path.realpath(sys.base_prefix)
    program = os.path.realpath(sys.executable)
    return _install([program, "-I", "-S", "-c", code], read=[base], **more)


@pytest.fixture
def install() -> Install:
    """Make an `Installation` of a command line."""
    return _install


@pytest.fixture
def python() -> Install:
    """Make an `Installation` of a Python program."""
    return _python


@pytest.fixture
def episode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workspace]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    made = Workspace.create("test")
    yield made
    made.close()


@pytest.fixture
def read_all() -> ReadAll:
    """Read a link to its end."""

    async def read(link: Link) -> bytes:
        data = b""
        async with asyncio.timeout(60):
            while chunk := await link.receive():
                data += chunk
        return data

    return read


class Program:
    """A Python server made of files in one directory, and another directory with what it depends on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "server"
        self.library = folder / "library"
        for each in (self.folder, self.library):
            each.mkdir()
        self.python, self.base = sys.executable, sys.base_prefix

    def use(self, version: str) -> None:
        """Be run by another Python, or skip."""
        if uv.unavailable(version):
            pytest.skip(uv.unavailable(version))
        self.python = uv.interpreter(version)
        self.base = str(Path(os.path.realpath(self.python)).parent.parent)

    def __call__(
        self,
        main: str,
        *,
        state_bound: str = "start",
        files: dict[str, str] | None = None,
        depends: dict[str, str] | None = None,
        entry: tuple[str, ...] = (),
        args: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        **more: Any,
    ) -> Installation:
        for folder, texts in (
            (self.folder, {"main.py": main, **(files or {})}),
            (self.library, depends or {}),
        ):
            for name, text in texts.items():
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(text)
        manifest = Manifest.model_validate(
            {
                "name": "probe",
                "description": "a program of a test",
                "registry": "pypi",
                "package": "probe-server",
                "version": "1",
                "language": "python",
                "command": ("main.py",),
                "state": "memory",
                "state_bound": state_bound,
                "env": {"PYTHONPATH": str(self.library), "PYTHONDONTWRITEBYTECODE": "1", **(env or {})},
                **more,
            }
        )
        base = Path(os.path.realpath(self.base))
        command = (
            os.path.realpath(self.python),
            "-S",
            *(entry or (str(self.folder / "main.py"),)),
            *args,
        )
        return Installation(
            Server(manifest, None), self.folder, command, (self.folder, self.library, base, Path("/usr/bin"))
        )


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def forking(episode: Workspace) -> Iterator[ProcessRuntime]:
    """A runtime that forks, without rehearsals: most programs here say something else than MCP."""
    runtime = ProcessRuntime(prefork=Hosts(kernel.probe(), rehearsal=()))
    yield runtime
    assert runtime.hosts
    runtime.hosts.close()
    assert not [p for p in episode.root.parent.iterdir() if p.name.startswith("host-")]

"""What the tests of runtimes share: an installation of any program, an episode's directory, readers."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.manifest import Manifest
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

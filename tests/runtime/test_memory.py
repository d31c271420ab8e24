"""The in-process runtime keeps the same promises as the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from atlas_gym.errors import StartError, WireError
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.memory import MemoryRuntime, MemoryStream
from atlas_gym.runtime.workspace import Workspace

Install = Callable[..., Installation]


async def echo(stream: MemoryStream) -> None:
    while data := await stream.receive():
        await stream.send(data.upper())


async def crash(stream: MemoryStream) -> None:
    await stream.receive()
    raise ValueError("broken server")


async def leave(stream: MemoryStream) -> None:
    await stream.send(str(stream.workspace.files).encode())


@pytest.mark.asyncio
async def test_talk_and_close(install: Install, episode: Workspace) -> None:
    link = await MemoryRuntime({"probe": echo}).start(install(["x"]), episode)
    await link.send(b"hello")
    assert await link.receive() == b"HELLO"
    assert (link.walls, link.exit_status, link.stderr_tail()) == ("memory", None, "")
    await link.aclose()
    await link.aclose()
    assert link.exit_status == -15
    assert await link.receive() == b""
    with pytest.raises(WireError):
        await link.send(b"x")


@pytest.mark.asyncio
async def test_back_pressure(install: Install, episode: Workspace) -> None:
    link = await MemoryRuntime({"probe": echo}).start(install(["x"]), episode)
    size = 1 << 20
    sending = asyncio.create_task(link.send(b"x" * size))
    received = 0
    while received < size:
        chunk = await link.receive()
        assert 0 < len(chunk) <= 1 << 16
        received += len(chunk)
    await sending
    await link.aclose()


@pytest.mark.asyncio
async def test_crash_is_an_end_with_a_traceback(install: Install, episode: Workspace) -> None:
    link = await MemoryRuntime({"probe": crash}).start(install(["x"]), episode)
    await link.send(b"x")
    assert await link.receive() == b""
    await link.aclose()
    assert link.exit_status == 1
    assert "ValueError: broken server" in link.stderr_tail()


@pytest.mark.asyncio
async def test_what_was_said_before_the_end_arrives(install: Install, episode: Workspace) -> None:
    link = await MemoryRuntime({"probe": leave}).start(install(["x"]), episode)
    assert await link.receive() == str(episode.files).encode()
    assert await link.receive() == b""
    await link.aclose()
    assert link.exit_status == 0


@pytest.mark.asyncio
async def test_unknown_server(install: Install, episode: Workspace) -> None:
    with pytest.raises(StartError, match="Did you mean 'probes'"):
        await MemoryRuntime({"probes": echo}).start(install(["x"]), episode)

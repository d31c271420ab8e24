"""Containers whose start is cancelled, or whose engine does not answer, goes away or falls silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atlas_gym.errors import StartError, WireError
from atlas_gym.runtime import base_image, container_link, engine
from atlas_gym.runtime.attach import attach
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.workspace import Workspace

Install = Callable[..., Installation]
ReadAll = Callable[[Link], Awaitable[bytes]]

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(engine.unavailable() != "", reason=engine.unavailable()),
    pytest.mark.asyncio,
]


@pytest.fixture(scope="module")
def base() -> str:
    return base_image.make(programs=())


@pytest.fixture
def runtime(base: str) -> ContainerRuntime:
    return ContainerRuntime(prefork=False, images={"probe": base})


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    yield
    found = engine.client().api.containers(all=True, filters={"label": f"{engine.LABEL_RUN}={tmp_path}/run"})
    assert [c["Names"] for c in found] == []


def python(install: Install, code: str, **more: Any) -> Installation:
    return install(["python3", "-I", "-S", "-c", code], **more)


@pytest.mark.parametrize("point", range(6))
async def test_a_start_that_is_cancelled_leaves_nothing(
    runtime: ContainerRuntime,
    install: Install,
    episode: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    point: int,
) -> None:
    reached = asyncio.Event()
    passed = 0

    def through(inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any) -> Any:
            nonlocal passed
            passed += 1
            if passed == point + 1:
                reached.set()
                await asyncio.sleep(0)
            result = await inner(*args)
            passed += 1
            if passed == point + 1:
                reached.set()
            return result

        return call

    monkeypatch.setattr(container_link, "ask", through(container_link.ask))
    monkeypatch.setattr(container_link, "attach", through(attach))
    starting = asyncio.create_task(runtime.start(python(install, "input()"), episode))
    await reached.wait()
    starting.cancel()
    done, _ = await asyncio.wait({starting}, timeout=60)
    assert done
    if not starting.cancelled():  # it was through before the word came
        await starting.result().aclose()


async def test_where_none_answers_the_next_step_is_said(
    runtime: ContainerRuntime, install: Install, episode: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{episode.root}/none.sock")
    with pytest.raises(StartError, match="no Docker engine"):
        await runtime.start(python(install, ""), episode)
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(StartError):
        await runtime.start(python(install, ""), episode)


class Proxy:
    """Stands between us and the engine, and can fall silent or go away."""

    def __init__(self, place: Path, real: str) -> None:
        self.place = place
        self._real = real
        self.silent = False
        self._ends: set[asyncio.StreamWriter] = set()

    async def listen(self) -> None:
        """Begin to serve."""
        self._server = await asyncio.start_unix_server(self._serve, str(self.place))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(self._real)
        self._ends |= {writer, ours}
        await asyncio.gather(self._pump(reader, ours), self._pump(theirs, writer))
        for end in (writer, ours):
            end.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not self.silent:
                    writer.write(data)
                    await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

    def close(self) -> None:
        """Go away, in the middle of whatever is said."""
        self._server.close()
        self.place.unlink(missing_ok=True)
        for writer in self._ends:
            writer.transport.abort()


@pytest_asyncio.fixture
async def proxy(episode: Workspace, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Proxy]:
    """Every engine is reached through it; containers that it kept from being removed are removed."""
    made = Proxy(episode.root / "proxy.sock", container_link.socket_path())
    await made.listen()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{made.place}")
    yield made
    made.close()
    monkeypatch.delenv("DOCKER_HOST")
    api = engine.client().api
    for found in api.containers(all=True, filters={"label": f"{engine.LABEL_EPISODE}={episode.root.name}"}):
        api.remove_container(found["Id"], force=True)


async def test_one_that_goes_away_is_the_servers_end(
    runtime: ContainerRuntime, install: Install, episode: Workspace, read_all: ReadAll, proxy: Proxy
) -> None:
    link = await runtime.start(python(install, "print('here', flush=True); input()"), episode)
    async with asyncio.timeout(60):
        assert await link.receive() == b"here\n"
    proxy.close()
    assert await read_all(link) == b""
    assert link.exit_status == -9
    with pytest.raises(WireError, match="gone"):
        await link.send(b"x")
    async with asyncio.timeout(60):
        await link.aclose()
    with pytest.raises(StartError, match="could not be removed"):  # it may still write what would be mounted
        await runtime.start(python(install, ""), episode)


async def test_one_that_falls_silent_is_waited_for_no_longer_than_a_start_may_take(
    runtime: ContainerRuntime,
    install: Install,
    episode: Workspace,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(container_link, "_PATIENCE", 0.2)
    installation = python(install, "input()", limits={"start_seconds": 2.0})

    async def fall_silent(*args: Any) -> Any:
        found = await attach(*args)
        proxy.silent = True
        return found

    monkeypatch.setattr(container_link, "attach", fall_silent)
    async with asyncio.timeout(60):
        with pytest.raises(StartError, match=r"the engine did not start it within 2\.0 s"):
            await runtime.start(installation, episode)

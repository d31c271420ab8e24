"""What an episode's sessions promise, the same on every runtime.

A runtime is one entry of `RUNTIMES`: how to make it, how to install the demonstration server in it, and how
that is then started.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from atlas_gym.errors import LockError, StartError, WireError
from atlas_gym.runtime import base_image, engine, image, kernel
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link, Runtime
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.memory import MemoryRuntime
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.types import ToolCall
from atlas_gym.wire import fake
from atlas_gym.wire.session import Session
from atlas_gym.wire.sessions import Sessions

NAMES = ("one", "two", "files")
Episode: TypeAlias = Callable[..., AbstractAsyncContextManager[Sessions]]


def program(name: str) -> Installation:
    """The demonstration server as a user's own program."""
    return _installation(name, registry="user", language="other")


def package(name: str) -> Installation:
    """The same as a Python package, which may be imported ahead."""
    return _installation(name, registry="pypi", language="python", package="demonstration", version="1")


def imaged(name: str) -> Installation:
    """The same as its image holds it."""
    command = ("/opt/server/bin/python", "-I", "/opt/server/fake.py")
    return _installation(
        name, command, registry="pypi", language="python", package="demonstration", version="1"
    )


def _installation(
    name: str, command: tuple[str, ...] = (sys.executable, "-I", str(Path(fake.__file__))), **more: Any
) -> Installation:
    manifest = Manifest(
        name=name,
        description="A demonstration.",
        command=command,
        state="workspace" if name == "files" else "memory",
        state_bound="call",
        read_only=("echo", "add", "read_file", "stall"),
        **more,
    )
    return Installation(Server(manifest, None), Path("/nonexistent"), manifest.command, (Path("/"),))


@dataclass(frozen=True)
class Place:
    """A runtime, and how the demonstration server gets there."""

    make: Callable[[], Runtime]
    how: str
    """What `Link.how` must say."""
    install: Callable[[str], Installation] = program


def containers(prefork: bool) -> ContainerRuntime:
    """The container runtime, and an image of the demonstration server."""
    files: dict[str, Path | str] = {"fake.py": Path(fake.__file__)}
    held = image.from_files("demonstration", files, base=base_image.make(programs=()))
    return ContainerRuntime(prefork=prefork, images=dict.fromkeys(NAMES, held))


RUNTIMES: dict[str, Place] = {
    "memory": Place(lambda: MemoryRuntime({name: fake.demo().serve for name in NAMES}), "memory"),
    "process": Place(lambda: ProcessRuntime(prefork=False), "spawn"),
    "process-prefork": Place(lambda: ProcessRuntime(), "fork", package),
    "process-no-walls": Place(lambda: ProcessRuntime(walls="off"), "spawn"),
    "container": Place(lambda: containers(prefork=False), "container", imaged),
    "container-fork": Place(lambda: containers(prefork=True), "container-fork", imaged),
}
_NO_ENGINE = engine.unavailable()
_NO_FORKS = _NO_ENGINE or ("" if kernel.probe().landlock_abi and kernel.probe().seccomp else "no walls")
_WITHOUT = {"container": _NO_ENGINE, "container-fork": _NO_FORKS}
PARAMETERS = [
    pytest.param(name, marks=[pytest.mark.docker, pytest.mark.skipif(why != "", reason=why)])
    if (why := _WITHOUT.get(name)) is not None
    else name
    for name in RUNTIMES
]


class Counting:
    """A runtime that counts its starts."""

    def __init__(self, place: Place) -> None:
        self.inner = place.make()
        self.name = self.inner.name
        self.how = place.how
        self.install = place.install
        self.starts: list[str] = []

    async def start(self, installation: Installation, workspace: Workspace) -> Link:
        self.starts.append(installation.server.name)
        link = await self.inner.start(installation, workspace)
        assert link.how == self.how
        return link

    async def aclose(self) -> None:
        await self.inner.aclose()


@pytest.fixture(params=PARAMETERS)
def runtime(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Counting]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    made = Counting(RUNTIMES[request.param])
    yield made
    asyncio.run(made.aclose())


@pytest.fixture
def episode(runtime: Counting) -> Episode:
    @asynccontextmanager
    async def enter(**how: Any) -> AsyncIterator[Sessions]:
        workspace = Workspace.create()
        sessions = Sessions(runtime, {name: runtime.install(name) for name in NAMES}, workspace, **how)
        try:
            async with asyncio.timeout(60):
                yield sessions
        finally:
            await sessions.close()
            workspace.close()

    return enter


@pytest.mark.asyncio
async def test_a_server_starts_at_its_first_call_and_once(runtime: Counting, episode: Episode) -> None:
    async with episode() as sessions:
        assert runtime.starts == []
        results = await asyncio.gather(
            *(sessions.call(ToolCall("one", "add", {"a": i, "b": 1})) for i in range(10))
        )
        assert [r.value for r in results] == list(range(1, 11))
        assert runtime.starts == ["one"]
        assert list(sessions.versions) == list(sessions.walls) == ["one"]
        await sessions.start("two")
        await sessions.start("two")
        assert runtime.starts == ["one", "two"]


@pytest.mark.asyncio
async def test_values_texts_errors_and_pictures(episode: Episode) -> None:
    async with episode() as sessions:
        echo = await sessions.call(ToolCall("one", "echo", {"text": "grüße \U0001f600 [1,"}))
        assert (echo.outcome, echo.value, echo.text) == ("ok", "grüße \U0001f600 [1,", "grüße \U0001f600 [1,")
        parsed = await sessions.call(ToolCall("one", "echo", {"text": "{'a': [1]}"}))
        assert parsed.value == {"a": [1]}
        added = await sessions.call(ToolCall("one", "add", {"a": 1.5}))
        assert (added.value, added.text) == (2.5, "2.5")
        failed = await sessions.call(ToolCall("one", "fail", {"message": "no cheese"}))
        assert (failed.outcome, failed.value, failed.text) == ("tool_error", None, "ValueError: no cheese")
        missing = await sessions.call(ToolCall("one", "no_such_tool", {}))
        assert (missing.outcome, missing.text) == ("tool_error", "Unknown tool: no_such_tool")
        wrong = await sessions.call(ToolCall("one", "echo", {"txt": "x"}))
        assert wrong.outcome == "tool_error"
        picture = await sessions.call(ToolCall("one", "picture", {}))
        assert picture.value[0] == "a picture"
        assert picture.value[1]["handle"] in picture.text
        assert sessions.blobs[picture.value[1]["handle"]].mime == "image/png"


@pytest.mark.asyncio
async def test_an_unknown_server_is_the_callers_mistake(episode: Episode) -> None:
    async with episode() as sessions:
        result = await sessions.call(ToolCall("onne", "echo", {}))
        assert result.outcome == "invalid_call"
        assert "'one'" in result.text
        assert sessions.lost == ""


@pytest.mark.asyncio
async def test_paths_are_the_agents_own_in_both_directions(episode: Episode) -> None:
    async with episode() as sessions:
        wrote = await sessions.call(
            ToolCall("files", "write_file", {"path": "/workspace/a.txt", "text": "hi"})
        )
        assert (wrote.outcome, wrote.text) == ("ok", "wrote /workspace/a.txt")
        read = await sessions.call(ToolCall("files", "read_file", {"path": "/workspace/a.txt"}))
        assert read.value == "hi"
        other = await sessions.call(ToolCall("one", "read_file", {"path": "/workspace/a.txt"}))
        assert other.value == "hi"
        gone = await sessions.call(ToolCall("files", "read_file", {"path": "/workspace/b.txt"}))
        assert gone.outcome == "tool_error"
        assert "'/workspace/b.txt'" in gone.text


@pytest.mark.asyncio
async def test_state_is_one_episodes_and_one_servers(episode: Episode) -> None:
    async with episode() as first, episode() as second:
        kept = await first.call(ToolCall("one", "remember", {"key": "a", "value": "1"}))
        assert kept.value == {"a": "1"}
        assert (await first.call(ToolCall("one", "remember", {"key": "b", "value": "2"}))).value == {
            "a": "1",
            "b": "2",
        }
        assert (await first.call(ToolCall("two", "remember", {"key": "c", "value": "3"}))).value == {"c": "3"}
        assert (await second.call(ToolCall("one", "remember", {"key": "d", "value": "4"}))).value == {
            "d": "4"
        }


@pytest.mark.asyncio
async def test_a_silent_server_holds_up_its_own_callers_only(episode: Episode) -> None:
    async with episode() as sessions:
        stalled = asyncio.create_task(sessions.call(ToolCall("one", "stall", {})))
        beside = await sessions.call(ToolCall("two", "echo", {"text": "beside"}))
        assert beside.value == "beside"
        assert not stalled.done()
        await sessions.close()
        assert (await stalled).outcome == "crashed"
        assert (sessions.lost, sessions.infra_errors) == ("", 0)


@pytest.mark.asyncio
async def test_a_silent_read_is_tried_twice_then_scored_and_the_server_replaced(
    runtime: Counting, episode: Episode
) -> None:
    async with episode() as sessions:
        result = await sessions.call(ToolCall("files", "stall", {}), seconds=0.2)
        assert result.outcome == "tool_error"
        assert sessions.lost == ""
        assert (await sessions.call(ToolCall("files", "echo", {"text": "back"}))).value == "back"
        assert runtime.starts == ["files"] * 3


@pytest.mark.asyncio
async def test_a_death_that_loses_state_ends_the_episode(runtime: Counting, episode: Episode) -> None:
    async with episode() as sessions:
        await sessions.call(ToolCall("one", "remember", {"key": "a", "value": "1"}))
        result = await sessions.call(ToolCall("one", "leave", {}))
        assert result.outcome == "crashed"
        assert "its state is gone" in sessions.lost
        assert (await sessions.call(ToolCall("one", "echo", {"text": "x"}))).outcome == "crashed"
        with pytest.raises(StartError, match="its state is gone"):
            await sessions.start("one")
        assert (await sessions.call(ToolCall("two", "echo", {"text": "x"}))).outcome == "ok"
        assert runtime.starts == ["one", "two"]


@pytest.mark.asyncio
async def test_a_cancelled_caller_abandons_the_answer_and_not_the_call(episode: Episode) -> None:
    async with episode() as sessions:
        await sessions.start("one")
        call = asyncio.create_task(sessions.call(ToolCall("one", "remember", {"key": "a", "value": "1"})))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        after = await sessions.call(ToolCall("one", "remember", {"key": "b", "value": "2"}))
        assert after.value == {"a": "1", "b": "2"}
        assert sessions.infra_errors == 0


@pytest.mark.asyncio
async def test_verification_comes_before_the_first_call_and_its_failure_is_a_failed_start(
    episode: Episode,
) -> None:
    seen: list[str] = []

    async def accept(name: str, session: Session) -> None:
        listing = await session.list_tools(seconds=10)
        seen.append(f"{name}: {len(listing.tools)} tools of {session.info.name}")

    async def refuse(name: str, session: Session) -> None:
        raise LockError(f"tool 'echo' of {name} differs from its lock")

    async with episode(verify=accept) as sessions:
        assert (await sessions.call(ToolCall("one", "echo", {"text": "x"}))).outcome == "ok"
        assert seen == ["one: 9 tools of demo"]
    async with episode(verify=refuse) as sessions:
        with pytest.raises(LockError):
            await sessions.start("one")
        assert (await sessions.call(ToolCall("one", "echo", {"text": "x"}))).outcome == "crashed"
        assert "differs from its lock" in sessions.lost


@pytest.mark.asyncio
async def test_resources_are_read(episode: Episode) -> None:
    async with episode() as sessions:
        session = await sessions.start("one")
        assert (await session.read_resource("memo://hello", seconds=10)).value == "hello"
        with pytest.raises(WireError, match="Unknown resource"):
            await session.read_resource("memo://other", seconds=10)


@pytest.mark.asyncio
async def test_nothing_starts_after_the_end(runtime: Counting, episode: Episode) -> None:
    async with episode() as sessions:
        await sessions.close()
        await sessions.close()
        assert (await sessions.call(ToolCall("one", "echo", {"text": "x"}))).outcome == "crashed"
        with pytest.raises(StartError, match="closed"):
            await sessions.start("two")
        assert runtime.starts == []


@pytest.mark.asyncio
async def test_large_arguments_and_results_pass(episode: Episode) -> None:
    async with episode() as sessions:
        big = "x" * 2**21
        assert (await sessions.call(ToolCall("one", "echo", {"text": big}))).value == big


@pytest.mark.asyncio
async def test_many_episodes_at_once(episode: Episode) -> None:
    async def one(number: int) -> Any:
        async with episode() as sessions:
            result = await sessions.call(ToolCall("one", "remember", {"key": "n", "value": str(number)}))
            return result.value["n"]

    assert await asyncio.gather(*(one(i) for i in range(6))) == [str(i) for i in range(6)]

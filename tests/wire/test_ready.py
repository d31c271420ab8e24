"""Sessions that were made ready before an episode, and servers that know the agent's paths as their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.errors import LockError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.memory import MemoryRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.types import ToolCall
from atlas_gym.wire import fake
from atlas_gym.wire.infra import open_session
from atlas_gym.wire.session import Session
from atlas_gym.wire.sessions import Sessions

ECHO = {"text": "/workspace/a and /home/agent/b"}


def install(name: str) -> Installation:
    manifest = Manifest(
        name=name,
        description="A demonstration.",
        registry="user",
        command=("in-process",),
        state="memory",
        state_bound="start",
        read_only=("echo",),
    )
    return Installation(Server(manifest, None), Path(), manifest.command, ())


class Counting:
    """In-process servers, counted, with the agent's paths for their own where that is wanted."""

    name = "counting"

    def __init__(self, own_paths: bool = False) -> None:
        self.inner = MemoryRuntime({name: fake.demo().serve for name in ("a", "b")})
        self.links: list[Link] = []
        self.own_paths = own_paths

    async def start(self, installation: Installation, workspace: Workspace) -> Link:
        link: Any = await self.inner.start(installation, workspace)
        link.own_paths = self.own_paths
        self.links.append(link)
        given: Link = link
        return given

    async def aclose(self) -> None:
        await self.inner.aclose()


@asynccontextmanager
async def spared(
    runtime: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **how: Any
) -> AsyncIterator[tuple[Sessions, dict[str, Session]]]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    workspace = Workspace.create()
    async with asyncio.timeout(60):
        ready = {name: await open_session(runtime, install(name), workspace, name) for name in ("a", "b")}
        sessions = Sessions(
            runtime, {name: install(name) for name in ("a", "b")}, workspace, ready=ready, **how
        )
        try:
            yield sessions, ready
        finally:
            await sessions.close()
            workspace.close()
    assert all(link.exit_status is not None for link in runtime.links)


@pytest.mark.asyncio
async def test_a_ready_session_is_verified_once_used_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified: list[tuple[str, Session]] = []

    async def verify(name: str, session: Session) -> None:
        verified.append((name, session))

    runtime = Counting()
    async with spared(runtime, tmp_path, monkeypatch, verify=verify) as (sessions, ready):
        assert (sessions.versions, sessions.walls, sessions.how) == ({}, {}, {})
        for _ in range(2):
            assert (await sessions.call(ToolCall("a", "echo", ECHO))).value == ECHO["text"]
        assert await sessions.start("a") is ready["a"]
        assert verified == [("a", ready["a"])]
        assert len(runtime.links) == 2
        assert sessions.versions == {"a": "a"}
        assert (sessions.walls, sessions.how) == ({"a": "memory"}, {"a": "memory"})
        assert sessions.infra_errors == 0


@pytest.mark.asyncio
async def test_a_ready_session_that_died_is_replaced_for_nothing_was_done_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Counting()
    async with spared(runtime, tmp_path, monkeypatch) as (sessions, ready):
        await runtime.links[0].aclose()
        assert await ready["a"].ends(seconds=20)
        assert (await sessions.call(ToolCall("a", "echo", ECHO))).outcome == "ok"
        assert (len(runtime.links), sessions.lost) == (3, "")


@pytest.mark.asyncio
async def test_a_ready_session_that_differs_from_its_lock_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def verify(name: str, session: Session) -> None:
        raise LockError(f"{name} differs")

    runtime = Counting()
    async with spared(runtime, tmp_path, monkeypatch, verify=verify) as (sessions, ready):
        assert (await sessions.call(ToolCall("a", "echo", ECHO))).outcome == "crashed"
        assert "a differs" in sessions.lost
        assert ready["a"].broken
        assert not ready["b"].broken


@pytest.mark.asyncio
@pytest.mark.parametrize("own", [True, False])
async def test_paths_are_translated_only_for_servers_that_do_not_know_them(
    own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Counting(own_paths=own)
    async with spared(runtime, tmp_path, monkeypatch) as (sessions, _):
        result = await sessions.call(ToolCall("a", "write_file", {"path": "/workspace/none/x", "text": ""}))
        assert result.outcome == "tool_error"
        assert "'/workspace/none/x'" in result.text  # as the agent knows it, in either case
        session = await sessions.start("b")
        said = await sessions.call(ToolCall("b", "remember", {"key": "/workspace/k", "value": "v"}))
        assert said.value == {"/workspace/k": "v"}
        raw = await session.call("remember", {"key": "seen", "value": "x"}, seconds=20)
        assert ("/workspace/k" in raw.value) is own

"""Episodes with misbehaving servers, each a real process of the process runtime."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Limits, Manifest
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.wire.session import Session
from atlas_gym.wire.sessions import Sessions

SCRIPT = Path(__file__).with_name("misbehaving.py")

State = Literal["none", "workspace", "memory"]


def install(
    mode: str,
    state: State = "none",
    read_only: tuple[str, ...] = (),
    protocol: Literal["legacy", "auto"] = "legacy",
    start_seconds: float = 20.0,
    call_seconds: float = 20.0,
) -> Installation:
    manifest = Manifest(
        name=mode,
        description="A server that misbehaves.",
        registry="user",
        language="other",
        command=(sys.executable, "-I", str(SCRIPT), mode),
        state=state,
        state_bound="call",
        read_only=read_only,
        protocol=protocol,
        limits=Limits(start_seconds=start_seconds, call_seconds=call_seconds),
    )
    return Installation(Server(manifest, None), Path("/nonexistent"), manifest.command, (Path("/"),))


Episode = Callable[..., AbstractAsyncContextManager[Sessions]]
Opened = Callable[..., AbstractAsyncContextManager[Session]]


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProcessRuntime:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    return ProcessRuntime()


@pytest.fixture
def episode(runtime: ProcessRuntime) -> Episode:
    """An episode with the server `bad` of a mode and the server `good`; entered inside of the test's task."""

    @asynccontextmanager
    async def enter(mode: str, **how: Any) -> AsyncIterator[Sessions]:
        verify = how.pop("verify", None)
        workspace = Workspace.create()
        sessions = Sessions(
            runtime, {"bad": install(mode, **how), "good": install("plain")}, workspace, verify=verify
        )
        try:
            yield sessions
        finally:
            await sessions.close()
            workspace.close()

    return enter


@pytest.fixture
def opened(runtime: ProcessRuntime) -> Opened:
    """One session with a server of a mode."""

    @asynccontextmanager
    async def enter(mode: str, seconds: float = 20.0, **how: Any) -> AsyncIterator[Session]:
        workspace = Workspace.create()
        try:
            link = await runtime.start(install(mode, **how), workspace)
            session = await Session.open(
                link, name=mode, protocol=how.get("protocol", "legacy"), seconds=seconds
            )
            try:
                yield session
            finally:
                await session.close()
        finally:
            workspace.close()

    return enter

"""Sessions over HTTP leave nothing behind on this side: no descriptor, no task, however they end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from atlas_gym.errors import StartError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.http import HttpRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.wire.session import Session

MODES = (
    "stream",
    "hang",
    "reset",
    "stream-stays",
    "page",
    "half",
    "delete-hangs",
    "start-401",
    "start-reset",
)


@pytest.fixture
def address() -> Iterator[str]:
    script = str(Path(__file__).parents[1] / "http_faults.py")
    with subprocess.Popen([sys.executable, "-B", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


@pytest.mark.asyncio
async def test_nothing_is_left_of_sessions(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    workspace = Workspace.create()

    async def play(mode: str) -> str:
        manifest = Manifest(
            name="far",
            description="A server that misbehaves.",
            registry="user",
            state="memory",
            state_bound="import",
            url=f"{address}/{mode}",
        )
        made = Installation(Server(manifest, None), Path("/nonexistent"), (), ())
        link = await HttpRuntime().start(made, workspace)
        try:
            session = await Session.open(link, name="far", seconds=20)
        except StartError:
            return "refused"
        reply = await session.call("bad", {}, seconds=0.3 if mode == "hang" else 20)
        await session.close()
        await session.close()
        return reply.outcome

    def held() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())

    async with asyncio.timeout(60):
        await play("stream")
        before = held()
        for _ in range(2):
            outcomes = await asyncio.gather(*(play(mode) for mode in MODES))
            assert outcomes == [
                *("ok", "timeout", "crashed", "ok", "crashed", "crashed", "ok", "refused", "refused")
            ]
            assert held() == before
    workspace.close()

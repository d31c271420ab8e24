"""Two episodes on the same server, interleaved, on every runtime: neither sees what the other wrote.

The calls are each server's own examples. One episode plays all of them; the other only reads, before and
after, and then plays them all itself and must be answered as the first one was.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from atlas_gym.env.housing import laid_out
from atlas_gym.errors import LockError
from atlas_gym.runtime.catalog import Catalog, Server
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.install import install, unavailable
from atlas_gym.runtime.link import Runtime
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.toolspace.examples import Example, fill, load_examples
from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire.loop import portal
from atlas_gym.wire.sessions import Sessions
from tests.docker_base import base_or_skip

SERVERS: Final = {s.name: s for s in Catalog.load() if s.manifest.state != "none"}
RUNTIMES: Final[dict[str, Callable[[], Runtime]]] = {
    "process": lambda: ProcessRuntime(prefork=False),
    "process-prefork": lambda: ProcessRuntime(prefork=True),
    "container": lambda: ContainerRuntime(prefork=False),
    "container-fork": lambda: ContainerRuntime(prefork=True),
}
HOW: Final = {
    "process": "spawn",
    "process-prefork": "fork",
    "container": "container",
    "container-fork": "container-fork",
}
pytestmark = [pytest.mark.servers]


@pytest.fixture(
    scope="module",
    params=[
        "process-prefork",
        pytest.param("process", marks=pytest.mark.slow),
        pytest.param("container", marks=[pytest.mark.docker, pytest.mark.slow]),
        pytest.param("container-fork", marks=[pytest.mark.docker, pytest.mark.slow]),
    ],
)
def runtime(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Runtime]]:
    kind = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATLAS_RUN", str(tmp_path_factory.mktemp("run")))
        if kind.startswith("container"):
            base = base_or_skip()
            patch.setenv("ATLAS_BASE_PYTHON", base)
            patch.setenv("ATLAS_BASE_NODE", base)
        made = RUNTIMES[kind]()
        yield kind, made
        portal().run(made.aclose())


class Player:
    """One episode of one server."""

    def __init__(self, runtime: Runtime, server: Server, workspace: Workspace) -> None:
        self.server = server
        self.sessions = Sessions(runtime, {server.name: install(server)}, workspace)
        self.saved: dict[str, Any] = {}

    async def call(self, example: Example) -> ToolResult:
        arguments = fill(example.arguments, self.saved)
        result = await self.sessions.call(ToolCall(self.server.name, example.tool, arguments))
        assert not result.is_infra, (example, result, self.sessions.lost)
        if example.save:
            self.saved[example.save] = result.value
        return result

    async def reads(self, calls: list[Example]) -> list[str]:
        return [shown(await self.call(example)) for example in calls]


def shown(result: ToolResult) -> str:
    return json.dumps([result.outcome, result.value, result.text], sort_keys=True)


def free_reads(calls: tuple[Example, ...], manifest: Manifest) -> list[Example]:
    """Reading calls that repeat and that need no earlier result."""
    found = []
    for example in calls:
        if example.tool not in manifest.read_only or example.tool in manifest.nondeterministic:
            continue
        try:
            fill(example.arguments, {})
        except LockError:
            continue
        found.append(Example(tool=example.tool, arguments=example.arguments))
    return found


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("name", SERVERS)
def test_interleaved_episodes_share_nothing(name: str, runtime: tuple[str, Runtime]) -> None:
    server = SERVERS[name]
    reason = unavailable(server)
    if reason:
        pytest.skip(reason)
    portal().run(interleave(server, *runtime), timeout=240)


async def interleave(server: Server, kind: str, runtime: Runtime) -> None:
    examples, manifest = load_examples(server), server.manifest
    reads = free_reads(examples.calls, manifest)
    places = [await asyncio.to_thread(laid_out, f"isolation-{i}", examples.setup) for i in range(3)]
    writer, reader, late = players = [Player(runtime, server, place) for place in places]
    try:
        await asyncio.gather(writer.sessions.start(server.name), reader.sessions.start(server.name))
        first = await asyncio.gather(writer.reads(reads), reader.reads(reads))
        assert first[0] == first[1]
        before = files(places[1].root)
        played: list[ToolResult] = []
        for example in examples.calls:
            played.append(await writer.call(example))
        assert files(places[1].root) == before, "one episode's files hold what the other wrote"
        after = await asyncio.gather(writer.reads(reads), reader.reads(reads))
        assert after[1] == first[1], "one episode reads what the other wrote"
        wrote = after[0] != first[0] or files(places[0].files) != files(places[1].files)
        private = [path for path in files(places[0].root / "state") if path not in before]
        assert wrote or private, "the examples change nothing, so that nothing was shown"
        # A third one, started after all that, is where the first one was.
        assert await late.reads(reads) == first[0]
        for example, was in zip(examples.calls, played, strict=True):
            now = await late.call(example)
            if example.tool not in manifest.nondeterministic and not tainted(example, manifest):
                assert shown(now) == shown(was), example
        method = HOW[kind]
        if manifest.language != "python" or manifest.respawn:
            method = {"fork": "spawn", "container-fork": "container"}.get(method, method)
        assert [p.sessions.how for p in players] == [{server.name: method}] * 3
    finally:
        await asyncio.gather(*(p.sessions.close() for p in players))
        for place in places:
            place.close()


def tainted(example: Example, manifest: Manifest) -> bool:
    """Whether it can show what a nondeterministic tool wrote earlier (new ids, times)."""
    return bool(manifest.nondeterministic) and (
        "$" in json.dumps(example.arguments) or manifest.state != "memory"
    )

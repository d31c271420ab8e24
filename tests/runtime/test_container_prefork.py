"""Forks of a warmed parent in a container: fast, apart from each other, and gone with parent and owner."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atlas_gym.errors import WireError
from atlas_gym.runtime import base_image, engine, gc, image, kernel
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.container_host import Shared
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.owner import start_time
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.types import ToolCall
from atlas_gym.wire import fake
from atlas_gym.wire.sessions import Sessions

ReadAll = Callable[[Link], Awaitable[bytes]]

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(engine.unavailable() != "", reason=engine.unavailable()),
    pytest.mark.skipif(
        kernel.probe().landlock_abi < 6 or not kernel.probe().seccomp,
        reason=f"walls: {kernel.probe().reason}",
    ),
    pytest.mark.asyncio,
]

ODD = """
import json, os, signal, sys, time
for line in sys.stdin:
    wanted = json.loads(line)
    if isinstance(wanted, dict):
        if "id" in wanted:
            print(json.dumps({"id": wanted["id"]}), flush=True)
        continue
    print("heard", flush=True)
    exec(wanted)
"""


@pytest.fixture(scope="module")
def held() -> str:
    files: dict[str, Path | str] = {"fake.py": Path(fake.__file__), "odd.py": ODD}
    return image.from_files("demonstration", files, base=base_image.make(programs=()))


def demonstration(script: str = "fake.py", **more: Any) -> Installation:
    command = ("/opt/server/bin/python", "-I", f"/opt/server/{script}")
    fields: dict[str, Any] = {
        "name": "demo",
        "description": "A demonstration.",
        "registry": "pypi",
        "package": "demonstration",
        "version": "1",
        "language": "python",
        "command": command,
        "state": "memory",
        "state_bound": "call",
    }
    return Installation(Server(Manifest(**(fields | more)), None), Path("/"), command, ())


@pytest.fixture
def run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest_asyncio.fixture
async def runtime(held: str, run_directory: Path) -> AsyncIterator[ContainerRuntime]:
    made = ContainerRuntime(images={"demo": held})
    yield made
    await made.aclose()
    await made.aclose()


@pytest.fixture(autouse=True)
def nothing_left(run_directory: Path) -> Iterator[None]:
    yield
    assert containers(run_directory) == []
    assert os.listdir(run_directory) == []


def containers(run: Path) -> list[dict[str, Any]]:
    """What the engine has of one run directory's owners, ended ones too."""
    found = engine.client().api.containers(all=True, filters={"label": f"{engine.LABEL_RUN}={run}"})
    return list(found)


def ended(container: str) -> None:
    """Wait until a container does not run, or is not there."""
    from docker.errors import NotFound

    with contextlib.suppress(NotFound):
        engine.client().api.wait(container, timeout=60)


async def say(link: Link, code: str) -> None:
    """Have the odd server run some Python."""
    await link.send(json.dumps(code).encode() + b"\n")
    async with asyncio.timeout(60):
        assert await link.receive() == b"heard\n"


async def test_episodes_are_forks_of_one_container_and_do_not_see_each_other(
    runtime: ContainerRuntime, run_directory: Path
) -> None:
    async def one(number: int) -> tuple[Any, Any, str]:
        workspace = Workspace.create()
        sessions = Sessions(runtime, {"demo": demonstration()}, workspace)
        note = {"key": "n", "value": str(number)}
        kept = await sessions.call(ToolCall("demo", "remember", note))
        file = {"path": "/workspace/n", "text": str(number)}
        wrote = await sessions.call(ToolCall("demo", "write_file", file))
        assert wrote.text == "wrote /workspace/n"
        read = await sessions.call(ToolCall("demo", "read_file", {"path": "/workspace/n"}))
        walls = sessions.walls["demo"]
        await sessions.close()
        workspace.close()
        return kept.value, read.value, walls

    results = await asyncio.gather(*(one(i) for i in range(20)))
    assert results == [({"n": str(i)}, i, "container+landlock+seccomp") for i in range(20)]
    assert len(containers(run_directory)) == 1
    assert runtime.hosts is not None
    assert [(h.server, h.children) for h in runtime.hosts.hosts()] == [("demo", 0)]
    assert runtime.hosts.hosts()[0].resident > 0


async def test_large_arguments_and_results_pass(runtime: ContainerRuntime, run_directory: Path) -> None:
    workspace = Workspace.create()
    sessions = Sessions(runtime, {"demo": demonstration()}, workspace)
    big = "grüße \U0001f600" * 500_000
    result = await sessions.call(ToolCall("demo", "echo", {"text": big}))
    assert (result.outcome, result.value) == ("ok", big)
    left = await sessions.call(ToolCall("demo", "leave", {"message": "for good"}))
    assert left.outcome == "crashed"
    await sessions.close()
    workspace.close()


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("sys.stderr.write('bye'); sys.stderr.flush(); sys.exit(3)", 3, "bye"),
        ("os.kill(os.getpid(), 9)", -9, ""),
        ("raise ValueError('odd')", 1, "ValueError: odd"),
    ],
)
async def test_how_a_fork_ends_is_told(
    runtime: ContainerRuntime, run_directory: Path, read_all: ReadAll, code: str, status: int, words: str
) -> None:
    workspace = Workspace.create()
    link = await runtime.start(demonstration("odd.py"), workspace)
    assert (link.how, link.own_paths) == ("container-fork", False)
    await say(link, code)
    assert await read_all(link) == b""
    await link.aclose()
    assert link.exit_status == status
    assert words in link.stderr_tail()
    workspace.close()


async def test_what_will_not_end_is_ended_with_all_it_started(
    runtime: ContainerRuntime, run_directory: Path
) -> None:
    workspace, beside = Workspace.create(), Workspace.create()
    link = await runtime.start(demonstration("odd.py"), workspace)
    other = await runtime.start(demonstration("odd.py"), beside)
    mark = workspace.root.name
    await say(
        link,
        "for n in range(1, 65):\n    if n not in (9, 19, 32, 33): signal.signal(n, 1)\n"
        "for i in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        break\n"
        "print('up', flush=True)\nwhile True: time.sleep(1000)",
    )
    got = b""
    async with asyncio.timeout(60):
        while got.count(b"up\n") < 4:
            got += await link.receive()
    assert len(_in_container(runtime)) >= 7
    await link.aclose()
    assert link.exit_status is not None
    assert runtime.hosts is not None
    assert [h.children for h in runtime.hosts.hosts()] == [1]
    left = _in_container(runtime)
    assert len(left) <= 3, (mark, left)  # the parent, and the other's supervisor and server
    await say(other, "pass")
    await other.aclose()
    workspace.close()
    beside.close()


def _in_container(runtime: ContainerRuntime) -> list[int]:
    """The warmed parent and everything below it that lives."""
    assert runtime.hosts is not None
    found = [runtime.hosts.hosts()[0].pid]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                found += map(int, task.read_text().split())
    return [pid for pid in found if start_time(pid)]


async def test_a_cancelled_start_leaves_no_fork(runtime: ContainerRuntime, run_directory: Path) -> None:
    workspace = Workspace.create()
    await (await runtime.start(demonstration("odd.py"), workspace)).aclose()
    for turns in range(0, 60, 4):
        starting = asyncio.create_task(runtime.start(demonstration("odd.py"), workspace))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait({starting})
        if not starting.cancelled():  # it was through before the word came
            await starting.result().aclose()
    assert runtime.hosts is not None
    assert [h.children for h in runtime.hosts.hosts()] == [0]
    workspace.close()


async def test_a_parent_that_is_killed_ends_its_forks_and_is_replaced(
    runtime: ContainerRuntime, run_directory: Path, read_all: ReadAll
) -> None:
    workspace = Workspace.create()
    link = await runtime.start(demonstration("odd.py"), workspace)
    api = engine.client().api
    await asyncio.to_thread(api.kill, containers(run_directory)[0]["Id"])
    assert await read_all(link) == b""
    assert link.exit_status == -9
    with pytest.raises(WireError, match="gone"):
        await link.send(b"x")
    again = await runtime.start(demonstration("odd.py"), workspace)
    assert again.how == "container-fork"
    await say(again, "pass")
    await link.aclose()
    await again.aclose()
    workspace.close()


async def test_after_the_end_of_a_runtime_its_forks_are_gone_and_it_can_start_again(
    runtime: ContainerRuntime, run_directory: Path, read_all: ReadAll
) -> None:
    workspace = Workspace.create()
    link = await runtime.start(demonstration("odd.py"), workspace)
    await runtime.aclose()
    assert await read_all(link) == b""
    await link.aclose()
    assert containers(run_directory) == []
    again = await runtime.start(demonstration("odd.py"), workspace)
    await say(again, "pass")
    await again.aclose()
    workspace.close()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"walls": "required"}, "must not share a parent"),
        ({"respawn": "it keeps a clock"}, "it keeps a clock"),
        ({"registry": "user", "language": "other"}, "only Python servers"),
    ],
)
async def test_what_may_not_be_forked_has_a_container_of_its_own(
    runtime: ContainerRuntime, run_directory: Path, more: dict[str, Any], why: str
) -> None:
    workspace = Workspace.create()
    link = await runtime.start(demonstration("odd.py", **more), workspace)
    assert (link.how, link.own_paths) == ("container", True)
    assert runtime.hosts is not None
    assert why in runtime.hosts.why_not("demo")
    await say(link, "pass")
    await link.aclose()
    workspace.close()


async def test_without_walls_of_the_kernel_nothing_is_forked(
    held: str, run_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "probe", lambda: kernel.NO_WALLS)
    runtime = ContainerRuntime(images={"demo": held})
    workspace = Workspace.create()
    link = await runtime.start(demonstration("odd.py"), workspace)
    assert (link.how, link.walls, runtime.hosts) == ("container", "container", None)
    await link.aclose()
    await runtime.aclose()
    workspace.close()


async def test_a_parent_that_cannot_be_warmed_says_why(held: str, run_directory: Path) -> None:
    runtime = ContainerRuntime(images={"demo": held}, shared=Shared(children=1, idle=1.0))
    workspace = Workspace.create()
    link = await runtime.start(demonstration("missing.py"), workspace)
    assert link.how == "container"
    assert runtime.hosts is not None
    assert "missing.py" in runtime.hosts.why_not("demo")
    await link.aclose()
    await runtime.aclose()
    workspace.close()


async def test_an_idle_parent_ends_by_itself(held: str, run_directory: Path) -> None:
    runtime = ContainerRuntime(images={"demo": held}, shared=Shared(idle=0.2))
    workspace = Workspace.create()
    link = await runtime.start(demonstration("odd.py"), workspace)
    await link.aclose()
    (parent,) = containers(run_directory) or [{"Id": ""}]
    await asyncio.to_thread(ended, parent["Id"])
    assert runtime.hosts is not None
    assert runtime.hosts.hosts() == []
    again = await runtime.start(demonstration("odd.py"), workspace)
    assert again.how == "container-fork"
    await again.aclose()
    await runtime.aclose()
    workspace.close()


OWNER = """
import asyncio, sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.owner import start_time
from atlas_gym.runtime.workspace import Workspace

async def main(image):
    command = ("/opt/server/bin/python", "-I", "/opt/server/odd.py")
    manifest = Manifest(name="demo", description="x", registry="pypi", package="demonstration", version="1",
                        language="python", command=command, state="memory", state_bound="call")
    installation = Installation(Server(manifest, None), Path("/"), command, ())
    runtimes = [ContainerRuntime(images={"demo": image}, prefork=prefork) for prefork in (True, False)]
    links = []
    for runtime in runtimes:
        links.append(await runtime.start(installation, Workspace.create()))
    print(*(link.how for link in links), runtimes[0].hosts.why_not("demo"), flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


async def test_after_a_killed_owner_nothing_is_left(held: str, run_directory: Path) -> None:
    owner = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", OWNER, held), *filter(None, sys.path), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert owner.stdout is not None
        async with asyncio.timeout(90):
            assert await owner.stdout.readline() == b"container-fork container \n"
        found = containers(run_directory)
        assert len(found) == 2
    finally:
        owner.kill()
        await owner.wait()
    # By themselves: the parent sees its owner's end, and the other the end of its stdin.
    await asyncio.gather(*(asyncio.to_thread(ended, about["Id"]) for about in found))
    removed = await asyncio.to_thread(engine.collect)
    assert len(removed.containers) <= 1
    gc.collect(run_directory)

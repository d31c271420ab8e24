"""Servers in containers of their own: their streams, their ends, whose their files are, and what is left."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.errors import StartError, WireError
from atlas_gym.runtime import base_image, engine
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.types import ToolCall
from atlas_gym.wire import fake
from atlas_gym.wire.sessions import Sessions

Install = Callable[..., Installation]
ReadAll = Callable[[Link], Awaitable[bytes]]

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(engine.unavailable() != "", reason=engine.unavailable()),
    pytest.mark.asyncio,
]

DEMO = Path(fake.__file__).read_text(encoding="utf-8")


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


def _running(word: str) -> list[int]:
    """Processes of this machine with a word in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line and b"pytest" not in line:
                found.append(int(entry.name))
    return found


async def test_bytes_pass_unchanged_in_both_directions(
    runtime: ContainerRuntime, install: Install, episode: Workspace
) -> None:
    code = (
        "import sys\nwhile data := sys.stdin.buffer.read1(1 << 20):\n"
        "    sys.stdout.buffer.write(data); sys.stdout.flush()"
    )
    link = await runtime.start(python(install, code), episode)
    assert (link.how, link.own_paths, link.walls, link.exit_status) == (
        "container",
        True,
        "container",
        None,
    )
    data = random.Random(1).randbytes(5_000_000) + b"\r\n\r\n"
    sending = asyncio.create_task(link.send(data))
    got = b""
    async with asyncio.timeout(60):
        while len(got) < len(data):
            got += await link.receive()
        await sending
    assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    await link.aclose()
    await link.aclose()
    with pytest.raises(WireError, match="'probe' is gone"):
        await link.send(b"more")


async def test_the_demonstration_server_answers_large_and_small(
    runtime: ContainerRuntime, install: Install, episode: Workspace
) -> None:
    sessions = Sessions(runtime, {"probe": install(["python3", "-I", "-c", DEMO])}, episode)
    big = "grüße \U0001f600" * 500_000
    result = await sessions.call(ToolCall("probe", "echo", {"text": big}))
    assert (result.outcome, result.value) == ("ok", big)
    wrote = await sessions.call(
        ToolCall("probe", "write_file", {"path": "/workspace/a.txt", "text": "in a container"})
    )
    assert wrote.text == "wrote /workspace/a.txt"
    assert (episode.files / "a.txt").read_text() == "in a container"
    left = await sessions.call(ToolCall("probe", "leave", {"message": "for good"}))
    assert left.outcome == "crashed"
    await sessions.close()


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ("import sys; sys.stderr.write('bye'); sys.exit(3)", 3, "bye"),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("import os; os.kill(os.getpid(), 15)", -15, ""),
        ("raise ValueError('odd')", 1, "ValueError: odd"),
        ("kept = bytearray(200 << 20); kept[::4096] = b'x' * len(kept[::4096])", -9, "limit is 64 MiB"),
    ],
)
async def test_how_a_server_ends_is_told(
    runtime: ContainerRuntime,
    install: Install,
    episode: Workspace,
    read_all: ReadAll,
    code: str,
    status: int,
    words: str,
) -> None:
    link = await runtime.start(python(install, code, limits={"memory_mb": 64}), episode)
    assert await read_all(link) == b""
    assert link.exit_status == status
    assert words in link.stderr_tail()
    await link.aclose()
    assert link.exit_status == status


@pytest.mark.parametrize(
    ("network", "walls", "open_"),
    [("none", "container", b"False\n"), (("example.com",), "container (network open)", b"True\n")],
)
async def test_the_network_is_open_only_where_the_manifest_says_so(
    runtime: ContainerRuntime,
    install: Install,
    episode: Workspace,
    network: Any,
    walls: str,
    open_: bytes,
) -> None:
    code = "print('eth0' in open('/proc/net/dev').read(), flush=True); input()"
    link = await runtime.start(python(install, code, network=network), episode)
    async with asyncio.timeout(60):
        assert await link.receive() == open_
    assert link.walls == walls
    await link.aclose()


async def test_noise_is_bounded_and_secrets_are_not_shown(
    runtime: ContainerRuntime,
    install: Install,
    episode: Workspace,
    read_all: ReadAll,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROBE_KEY", "hunter2hunter2")
    code = (
        "import os, sys\nfor i in range(40000): sys.stderr.write(f'noise {i} ' + 'x' * 50 + '\\n')\n"
        "sys.stderr.write(os.environ['PROBE_KEY'] + ' is the key\\n'); print('done', flush=True); input()"
    )
    link = await runtime.start(python(install, code, env_allow=("PROBE_KEY",)), episode)
    async with asyncio.timeout(60):
        assert await link.receive() == b"done\n"
    found = engine.client().api.containers(filters={"label": f"{engine.LABEL_EPISODE}={episode.root.name}"})
    assert len(found) == 1
    assert "hunter2" not in str(found)
    assert "hunter2" not in link.command
    await link.aclose()
    tail = link.stderr_tail()
    assert "\n*** is the key\n" in tail
    assert "hunter2" not in tail
    assert len(tail) <= 8192


async def test_a_server_that_will_not_end_is_ended_with_all_it_started(
    runtime: ContainerRuntime, install: Install, episode: Workspace
) -> None:
    code = (
        "import os, signal, time\nfor n in range(1, 65):\n"
        "    if n not in (9, 19, 32, 33): signal.signal(n, 1)\n"
        "for i in range(3):\n    if os.fork() == 0:\n        os.setsid()\n        break\n"
        "print('here', flush=True)\nwhile True: time.sleep(98765)"
    )
    link = await runtime.start(python(install, code), episode)
    got = b""
    async with asyncio.timeout(60):
        while got.count(b"here") < 4:
            got += await link.receive()
    assert len(_running("98765")) >= 4
    await link.aclose()
    assert _running("98765") == []
    assert link.exit_status == -9


@pytest.mark.parametrize("how", ["kill", "remove_container"])
async def test_an_end_from_outside_is_an_end(
    runtime: ContainerRuntime, install: Install, episode: Workspace, read_all: ReadAll, how: str
) -> None:
    link = await runtime.start(python(install, "input()"), episode)
    api = engine.client().api
    found = api.containers(filters={"label": f"{engine.LABEL_EPISODE}={episode.root.name}"})
    await asyncio.to_thread(getattr(api, how), found[0]["Id"], **({} if how == "kill" else {"force": True}))
    assert await read_all(link) == b""
    assert link.exit_status == -9
    with pytest.raises(WireError, match="gone"):
        await link.send(b"x")
    await link.aclose()


async def test_what_cannot_be_started_says_why_and_what_to_try(
    runtime: ContainerRuntime, install: Install, episode: Workspace, read_all: ReadAll
) -> None:
    missing = ContainerRuntime(prefork=False, images={"probe": "atlas-gym/none:none"})
    with pytest.raises(StartError, match=r"(?s)No such image.*Try it by hand: .*docker run --rm -i"):
        await missing.start(python(install, ""), episode)
    with pytest.raises(StartError, match=r"'probe' cannot be started in a container: .*no lock to build"):
        await ContainerRuntime(prefork=False).start(python(install, ""), episode)
    link = await runtime.start(install(["no-such-program"]), episode)
    assert await read_all(link) == b""
    assert link.exit_status == 127
    assert "no-such-program" in link.stderr_tail()
    await link.aclose()


async def test_many_episodes_at_once_do_not_see_each_other(
    base: str, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    runtime = ContainerRuntime(prefork=False, images={"probe": base})
    installation = install(["python3", "-I", "-c", DEMO])

    async def one(number: int) -> tuple[Any, Any]:
        workspace = Workspace.create()
        sessions = Sessions(runtime, {"probe": installation}, workspace)
        note = {"key": "n", "value": str(number)}
        kept = await sessions.call(ToolCall("probe", "remember", note))
        file = {"path": "/workspace/n", "text": str(number)}
        await sessions.call(ToolCall("probe", "write_file", file))
        read = await sessions.call(ToolCall("probe", "read_file", {"path": "/workspace/n"}))
        await sessions.close()
        workspace.close()
        return kept.value, read.value

    results = await asyncio.gather(*(one(i) for i in range(20)))
    assert results == [({"n": str(i)}, i) for i in range(20)]


async def test_files_of_the_episode_are_the_servers_and_end_with_it(
    runtime: ContainerRuntime, install: Install, episode: Workspace, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("PRIVATE")
    outside.chmod(0o600)
    (episode.files / "sub" / "deep").mkdir(parents=True)
    (episode.files / "sub" / "deep" / "data").write_text("given")
    (episode.files / "link").symlink_to(outside)
    code = (
        "import os\n"
        "print(open('/workspace/sub/deep/data').read(), os.getcwd(), os.environ['HOME'], flush=True)\n"
        "open('/workspace/sub/made', 'w').write('made')\n"
        "os.makedirs('/workspace/dark/in'); os.chmod('/workspace/dark', 0)\n"
        "open(os.environ['HOME'] + '/kept', 'w'); open(os.environ['TMPDIR'] + '/kept', 'w')\n"
        "print(os.path.exists('/workspace/link'), flush=True); input()"
    )
    link = await runtime.start(python(install, code), episode)
    got = b""
    async with asyncio.timeout(60):
        while got.count(b"\n") < 2:
            got += await link.receive()
    assert got == b"given /workspace /home/agent\nFalse\n"
    await link.aclose()
    assert outside.stat().st_uid == os.getuid()
    assert (episode.state("probe") / "home" / "kept").exists()
    assert (episode.state("probe") / "tmp" / "kept").exists()
    copy = episode.snapshot()
    assert (copy.files / "sub" / "made").read_text() == "made"
    copy.close()
    episode.close()
    assert not episode.root.exists()


async def test_a_link_in_place_of_a_directory_is_not_mounted(
    runtime: ContainerRuntime, install: Install, episode: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "private").write_text("PRIVATE")
    code = (
        "import os, shutil\nstate = '/episode/state/probe'\nfor name in ('home', 'tmp'):\n"
        "    shutil.rmtree(f'{state}/{name}')\n"
        f"    os.symlink({str(tmp_path / 'host')!r}, f'{{state}}/{{name}}')\n"
        "print('ready', flush=True); input()"
    )
    first = await runtime.start(python(install, code), episode)
    async with asyncio.timeout(60):
        assert await first.receive() == b"ready\n"
    assert (episode.root / "state" / "probe" / "home").is_symlink()
    look = "import os; print(*(os.listdir(os.environ[v]) for v in ('HOME', 'TMPDIR')), flush=True); input()"
    second = await runtime.start(python(install, look), episode)
    async with asyncio.timeout(60):
        assert await second.receive() == b"[] []\n"
    assert first.exit_status is not None
    await second.aclose()


async def test_a_full_disk_is_the_servers_end(
    runtime: ContainerRuntime, install: Install, episode: Workspace, read_all: ReadAll
) -> None:
    code = (
        "import time\nfor i in range(24): open(f'fill-{i}', 'wb').write(b'x' * 1000 * 1000)\ntime.sleep(1000)"
    )
    link = await runtime.start(python(install, code, limits={"file_mb": 1}), episode)
    assert await read_all(link) == b""
    assert "MiB, the limit is 8" in link.stderr_tail()
    await link.aclose()

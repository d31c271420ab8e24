"""Starting, talking to and ending local servers, the misbehaving ones above all; spawned and forked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from atlas_gym.errors import StartError, WireError
from atlas_gym.runtime import kernel
from atlas_gym.runtime import process as process_module
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.prefork import Hosts
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

Install = Callable[..., Installation]
MakeRuntime = Callable[..., ProcessRuntime]
ReadAll = Callable[[Link], Awaitable[bytes]]

ECHO = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"


@pytest.fixture(params=["spawn", "fork"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def runtime(how: str) -> Iterator[MakeRuntime]:
    """Make a runtime that starts servers so."""
    made: list[ProcessRuntime] = []

    def make(walls: Literal["auto", "off"] = "auto", max_starting: int = 4) -> ProcessRuntime:
        up = kernel.probe() if walls == "auto" else kernel.NO_WALLS
        hosts = Hosts(up, rehearsal=()) if how == "fork" else None
        made.append(ProcessRuntime(walls=walls, max_starting=max_starting, prefork=hosts))
        return made[-1]

    yield make
    for each in made:
        if each.hosts:
            each.hosts.close()


@pytest.fixture
def python(how: str, python: Install, tmp_path: Path) -> Install:
    """Make an installation of a Python program that is started so."""

    def make(code: str, **more: Any) -> Installation:
        if how == "spawn":
            return python(code, **more)
        folder = Path(tempfile.mkdtemp(dir=tmp_path, prefix="server-"))
        (folder / "main.py").write_text(code)
        manifest = Manifest(
            name="probe",
            description="a program of a test",
            registry="pypi",
            package="probe-server",
            version="1",
            language="python",
            command=("main.py",),
            state="none",
            state_bound="start",
            **more,
        )
        command = (os.path.realpath(sys.executable), "-I", "-S", str(folder / "main.py"))
        paths = (folder, Path(os.path.realpath(sys.base_prefix)))
        return Installation(Server(manifest, None), folder, command, paths)

    return make


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends within a bound (waits on a handle of it, does not poll)."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


@pytest.mark.asyncio
async def test_talk(how: str, runtime: MakeRuntime, python: Install, episode: Workspace) -> None:
    link = await runtime().start(python(ECHO), episode)
    assert link.how == how
    await link.send(b"hello\n")
    assert await link.receive() == b"HELLO\n"
    assert link.exit_status is None
    assert link.walls == "landlock+seccomp"
    await link.aclose()
    await link.aclose()
    assert link.exit_status is not None
    assert await link.receive() == b""
    with pytest.raises(WireError, match="'probe' is gone"):
        await link.send(b"x")


@pytest.mark.asyncio
async def test_back_pressure_both_ways(runtime: MakeRuntime, python: Install, episode: Workspace) -> None:
    link = await runtime().start(
        python(
            "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer); sys.stdout.flush()"
        ),
        episode,
    )
    size = 4 << 20
    sending = asyncio.create_task(link.send(b"x" * size))
    received = 0
    while received < size - (64 << 10):  # what is left sits in the server's own buffer
        received += len(await link.receive())
    await sending
    await link.aclose()


@pytest.mark.asyncio
async def test_environment_is_exactly_what_was_allowed(
    install: Install, episode: Workspace, monkeypatch: pytest.MonkeyPatch, read_all: ReadAll
) -> None:
    monkeypatch.setenv("ALLOWED_KEY", "s3cr3t-value")
    monkeypatch.setenv("OTHER_KEY", "not for you")
    link = await ProcessRuntime().start(
        install(["/usr/bin/env"], env={"A": "b"}, env_allow=("ALLOWED_KEY", "ABSENT")), episode
    )
    env = dict(line.split("=", 1) for line in (await read_all(link)).decode().splitlines())
    state = episode.state("probe")
    assert env == {
        "PATH": "/usr/bin:/bin",
        "HOME": f"{state}/home",
        "TMPDIR": f"{state}/tmp",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "GIT_CONFIG_NOSYSTEM": "1",
        "A": "b",
        "ALLOWED_KEY": "s3cr3t-value",
        "ATLAS_GYM_EPISODE": episode.root.name,
    }
    assert "s3cr3t" not in link.command
    await link.aclose()


@pytest.mark.asyncio
async def test_secrets_are_not_in_the_tail(
    runtime: MakeRuntime,
    python: Install,
    episode: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    read_all: ReadAll,
) -> None:
    monkeypatch.setenv("API_KEY", "s3cr3t-value")
    code = "import os, sys; [print(i, os.environ['API_KEY'], file=sys.stderr) for i in range(5000)]"
    link = await runtime().start(python(code, env_allow=("API_KEY",)), episode)
    await read_all(link)
    tail = link.stderr_tail()
    await link.aclose()
    assert tail.endswith("4999 ***")
    assert "s3cr" not in tail
    assert "value" not in tail
    assert len(tail) <= 8192


@pytest.mark.asyncio
async def test_flood_of_stderr_blocks_nobody(
    runtime: MakeRuntime, python: Install, episode: Workspace, read_all: ReadAll
) -> None:
    code = "import sys\nfor i in range(3000): sys.stderr.write('x' * 1000 + chr(10))\nprint('done')"
    link = await runtime().start(python(code), episode)
    assert await read_all(link) == b"done\n"
    assert link.exit_status == 0
    await link.aclose()


@pytest.mark.asyncio
async def test_missing_program(install: Install, episode: Workspace) -> None:
    with pytest.raises(
        StartError,
        match=r"(?s)FileNotFoundError.*/no/such.*Try it by hand: mkdir -p .* && cd .*env -i .*/no/such",
    ):
        await ProcessRuntime().start(install(["/no/such", "x"]), episode)


@pytest.mark.asyncio
async def test_server_that_dies_at_once(
    runtime: MakeRuntime, python: Install, episode: Workspace, read_all: ReadAll
) -> None:
    link = await runtime().start(python("raise SystemExit('no licence')"), episode)
    assert await read_all(link) == b""
    assert link.exit_status == 1
    assert link.stderr_tail() == "no licence"
    with pytest.raises(WireError, match=r"exit status 1.*\n?.*no licence"):
        await link.send(b"x" * (1 << 20))
    await link.aclose()


STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
r, w = os.pipe()
for setsid in (False, True):
    if os.fork() == 0:
        if setsid:
            os.setsid()
        os.fork()
        os.write(w, b"%d " % os.getpid())
        while True:
            time.sleep(1000)
found = b""
while found.count(b" ") < 4:
    found += os.read(r, 100)
print(os.getpid(), found.decode(), flush=True)
EXIT
while True:
    time.sleep(1000)
"""


@pytest.mark.asyncio
@pytest.mark.parametrize("ends", [False, True], ids=["told to end", "ends by itself"])
@pytest.mark.parametrize("walls", ["auto", "off"])
async def test_whole_tree_ends(
    runtime: MakeRuntime, python: Install, episode: Workspace, ends: bool, walls: str
) -> None:
    started = runtime("off" if walls == "off" else "auto")
    link = await started.start(python(STUBBORN.replace("EXIT", "os._exit(3)" if ends else "")), episode)
    pids = [int(pid) for pid in (await link.receive()).split()]
    assert len(pids) == 5
    if ends:
        assert await link.receive() == b""
        assert link.exit_status == 3
    await link.aclose()
    assert all(gone(pid) for pid in pids)
    assert link.exit_status == (3 if ends else -signal.SIGKILL)


@pytest.mark.asyncio
async def test_memory_limit(
    runtime: MakeRuntime, python: Install, episode: Workspace, read_all: ReadAll
) -> None:
    code = "x = []\ntry:\n  while True: x.append(bytearray(8 << 20))\nexcept MemoryError: print('refused')"
    link = await runtime().start(python(code, limits={"memory_mb": 64}), episode)
    assert await read_all(link) == b"refused\n"
    await link.aclose()


@pytest.mark.asyncio
@pytest.mark.slow
async def test_tree_that_grows_too_large_is_ended(
    runtime: MakeRuntime, python: Install, episode: Workspace, read_all: ReadAll
) -> None:
    code = (
        "import mmap, time\nm = mmap.mmap(-1, 100 << 20)\n"
        "for _ in range(100): m.write(bytes(1 << 20))\ntime.sleep(1000)"
    )
    link = await runtime().start(python(code, limits={"memory_mb": 64}), episode)
    assert await read_all(link) == b""
    assert "its limit is 64" in link.stderr_tail()
    await link.aclose()
    code = "import os, time\nfor _ in range(30): os.fork() or time.sleep(1000)\ntime.sleep(1000)"
    link = await runtime().start(python(code, limits={"pids": 16}), episode)
    assert await read_all(link) == b""
    assert "31 processes and threads, its limit is 16" in link.stderr_tail()
    await link.aclose()


@pytest.mark.asyncio
async def test_large_files_are_refused(
    runtime: MakeRuntime, python: Install, episode: Workspace, read_all: ReadAll
) -> None:
    code = """
try:
    with open("big", "wb") as f:
        for _ in range(3): f.write(bytes(1 << 20)); f.flush()
except OSError as exc: print(exc.errno)
"""
    link = await runtime().start(python(code, limits={"file_mb": 1}), episode)
    assert await read_all(link) == b"27\n"
    await link.aclose()
    assert (episode.files / "big").stat().st_size == 1 << 20


@pytest.mark.asyncio
async def test_cycles_leave_nothing(
    runtime: MakeRuntime, python: Install, episode: Workspace, descendants: Callable[[], set[int]]
) -> None:
    started = runtime()
    installation = python(ECHO)

    async def cycle() -> None:
        link = await started.start(installation, episode)
        await link.send(b"a\n")
        assert await link.receive() == b"A\n"
        await link.aclose()

    await cycle()
    fds, processes = sorted(os.listdir("/proc/self/fd")), descendants()
    for _ in range(25):
        await asyncio.gather(cycle(), cycle())
    assert sorted(os.listdir("/proc/self/fd")) == fds
    assert descendants() <= processes


@pytest.mark.asyncio
async def test_starting_is_bounded(runtime: MakeRuntime, python: Install, episode: Workspace) -> None:
    started = runtime(max_starting=1)
    first = await started.start(python(ECHO), episode)
    second = asyncio.create_task(started.start(python(ECHO), episode))
    await asyncio.sleep(0)
    assert not second.done()
    await first.send(b"x\n")
    await first.receive()
    link = await second
    await asyncio.gather(first.aclose(), link.aclose())


def held() -> list[str]:
    """Open descriptors, but for looks into /proc, which other threads take at any time."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the look at the directory itself
            if not os.readlink(f"/proc/self/fd/{fd}").startswith("/proc/"):
                found.append(fd)
    return sorted(found)


@pytest.mark.asyncio
async def test_cancelled_start_leaves_nothing(
    runtime: MakeRuntime, python: Install, episode: Workspace
) -> None:
    started = runtime(max_starting=1)
    await (await started.start(python(ECHO), episode)).aclose()  # what outlives episodes is there now
    before = held()
    task = asyncio.create_task(started.start(python(ECHO), episode))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert set(held()) <= set(before)  # what an earlier test left to a thread may be closed meanwhile
    link = await started.start(python(ECHO), episode)
    await link.aclose()


OWNER = """
import asyncio, os, sys
from pathlib import Path
from atlas_gym.runtime import kernel
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.prefork import Hosts
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

async def main(script, how):
    command = (os.path.realpath(sys.executable), "-I", "-S", script)
    fork = how == "fork"
    manifest = Manifest(name="s", description="", state="none", state_bound="call", command=command,
                        registry="pypi" if fork else "user", language="python" if fork else "other",
                        package="p", version="1")
    reads = (Path(os.path.realpath(sys.base_prefix)), Path(script).parent)
    workspace = Workspace.create()
    installation = Installation(Server(manifest, None), Path("/"), command, reads)
    runtime = ProcessRuntime(prefork=Hosts(kernel.probe(), rehearsal=()) if fork else None)
    link = await runtime.start(installation, workspace)
    assert link.how == how
    text = await link.receive()
    if os.fork() == 0:  # a fork of the owner keeps its descriptors open, and must not keep the server alive
        os.close(1)
        os.read(0, 1)
        os._exit(0)
    above = runtime.hosts.hosts()[0].pid if fork else link._process.pid
    print(above, text.decode(), flush=True)
    await asyncio.sleep(1000)
asyncio.run(main(*sys.argv[1:]))
"""


def test_nothing_outlives_a_killed_owner(how: str, tmp_path: Path) -> None:
    env = {**os.environ, "ATLAS_RUN": str(tmp_path / "run")}
    script = tmp_path / "main.py"
    script.write_text(STUBBORN.replace("EXIT", ""))
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, script, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 6
        owner.kill()
        owner.wait()
        assert all(gone(pid) for pid in pids)


def test_grace_is_short() -> None:
    assert process_module.GRACE <= 0.5

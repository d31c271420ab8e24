"""A server with a shell in a container, of its own and shared: whatever it tries stays in the episode."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from atlas_gym import settings
from atlas_gym.runtime import base_image, engine, image, kernel
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.container import ContainerRuntime
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.manifest import Limits, Manifest
from atlas_gym.runtime.workspace import Workspace

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(engine.unavailable() != "", reason=engine.unavailable()),
    pytest.mark.skipif(
        kernel.probe().landlock_abi < 6 or not kernel.probe().seccomp,
        reason=f"walls: {kernel.probe().reason}",
    ),
    pytest.mark.asyncio,
]

SHELL = """
import json, subprocess, sys
for line in sys.stdin:
    wanted = json.loads(line)
    if isinstance(wanted, str):
        done = subprocess.run(wanted, shell=True, capture_output=True)
        print(json.dumps((done.stdout + done.stderr).decode("utf-8", "replace")), flush=True)
    elif "id" in wanted:
        print(json.dumps({"id": wanted["id"]}), flush=True)
"""
PYTHON = "/opt/server/bin/python -I -S -c"
REFUSED = re.compile(
    "denied|No such file|not permitted|cross-device|Read-only|cannot access|nonexistent", re.IGNORECASE
)


class Shell:
    """Runs one command after another in a server of one episode."""

    def __init__(self, link: Link, episode: Workspace) -> None:
        self.link = link
        self.episode = episode
        self._buffer = b""

    async def send(self, command: str) -> None:
        said = command if self.link.own_paths else self.episode.to_host(command, "shell")
        await self.link.send((json.dumps(said) + "\n").encode())

    async def __call__(self, command: str) -> str:
        """What a command printed, with the agent's names of paths."""
        await self.send(command)
        async with asyncio.timeout(100):
            while b"\n" not in self._buffer:
                chunk = await self.link.receive()
                assert chunk, self.link.stderr_tail()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return str(self.episode.to_agent(json.loads(line)))

    async def ended(self) -> str:
        """Wait until the server is ended; why."""
        async with asyncio.timeout(100):
            while await self.link.receive():
                pass
        await self.link.aclose()
        return self.link.stderr_tail()


Start = Callable[..., Any]


@pytest.fixture(scope="module")
def held() -> str:
    return image.from_files("shell", {"shell.py": SHELL}, base=base_image.make(programs=()))


@pytest.fixture(params=["container", "container-fork"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    return tmp_path / "run"


@pytest_asyncio.fixture
async def start(held: str, how: str, run_directory: Path) -> AsyncIterator[Start]:
    """Start a shell in an episode of its own."""
    runtime = ContainerRuntime(prefork=how == "container-fork", images={"shell": held})
    shells: list[Shell] = []

    async def begin(episode: Workspace | None = None, **limits: Any) -> Shell:
        command = ("/opt/server/bin/python", "-I", "/opt/server/shell.py")
        manifest = Manifest(
            name="shell",
            description="A shell.",
            registry="pypi",
            package="shell",
            version="1",
            language="python",
            command=command,
            state="none",
            state_bound="call",
            limits=Limits(**limits),
        )
        place = episode or Workspace.create("test")
        link = await runtime.start(Installation(Server(manifest, None), Path("/"), command, ()), place)
        assert link.how == how, runtime.hosts and runtime.hosts.why_not("shell")
        shells.append(Shell(link, place))
        return shells[-1]

    yield begin
    for shell in shells:
        await shell.link.aclose()
    await runtime.aclose()
    for shell in shells:
        shell.episode.close()


@pytest.fixture(autouse=True)
def nothing_left(run_directory: Path) -> Iterator[None]:
    yield
    found = engine.client().api.containers(all=True, filters={"label": f"{engine.LABEL_RUN}={run_directory}"})
    assert [c["Names"] for c in found] == []
    assert os.listdir(run_directory) == []


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A file of this machine that all its users may read and write."""
    made = tmp_path / "host"
    made.write_text("PRIVATE")
    made.chmod(0o666)
    tmp_path.chmod(0o755)
    return made


async def test_walls_are_named(start: Start, how: str) -> None:
    shell = await start()
    assert shell.link.walls == {"container": "container"}.get(how, "container+landlock+seccomp")


async def test_nothing_outside_can_be_read(start: Start, host: Path, run_directory: Path) -> None:
    mine, other = await start(), await start()
    await other(
        "echo PRIVATE > /workspace/private; chmod 777 /workspace/private /workspace; echo PRIVATE > ~/key"
    )
    theirs = other.episode.root
    for command in (
        *(f"cat {path}" for path in (host, f"{theirs}/files/private", f"{theirs}/state/shell/home/key")),
        *(f"ls {path}" for path in (host.parent, theirs.parent, theirs, f"{theirs}/files")),
        *(f"ls {path}" for path in ("/var/run/docker.sock", "/run/docker.sock", settings.shipped("tasks"))),
        f"cat /proc/{os.getpid()}/environ",
        f"cat {run_directory}/host-*/host.log {run_directory}/host-*/owner.json",
        f"ln -s {host} /workspace/l && cat /workspace/l",
        f"ln -s {theirs}/files/private /workspace/m && cat /workspace/m",
        f"ln {host} /workspace/hard",
        f"ln {theirs}/files/private /workspace/hard2",
        *("cat /workspace/../owner.json", "cat /workspace/../../../*/host", f"cat /proc/1/root{host}"),
        f"cat /workspace/../../{theirs.name}/files/private",
        f"mv {theirs}/files/private /workspace/moved; cat /workspace/moved",
        "cat /dev/mem; cat /dev/vda; cat /dev/kmsg",
    ):
        said = await mine(command)
        assert "PRIVATE" not in said, command
        assert REFUSED.search(said), (command, said)
    assert "PRIVATE" in await other("cat /workspace/private")


async def test_nothing_outside_can_be_written(start: Start, host: Path) -> None:
    host_text = host.read_text
    mine, other = await start(), await start()
    await other("echo PRIVATE > /workspace/private; chmod 777 /workspace/private /workspace")
    theirs = other.episode.root
    for command in (
        *(
            f"echo x > {path}"
            for path in (host, "/pwned", "/usr/pwned", "/etc/passwd", "/opt/server/shell.py")
        ),
        *("echo x > /opt/atlas-gym/forkhost.py", "echo x > /var/pwned", f"echo x > {theirs}/files/private"),
        *(f"mkdir {theirs}/files/made", f"mv {theirs}/files {theirs}/gone", f"rm {theirs}/files/private"),
        f"echo x > {theirs}/owner.json",
    ):
        said = await mine(command)
        assert REFUSED.search(said), (command, said)
    await mine(f"touch {theirs}/files/touched; chmod 000 {theirs}/files {host}")
    await mine(f"rm -rf {theirs} {host} /usr /opt /proc/* /dev/*")
    assert host_text() == "PRIVATE"
    assert await other("cat /workspace/private; ls /workspace") == "PRIVATE\nprivate\n"
    assert await mine("echo here") == "here\n"


@pytest.fixture
def port() -> Iterator[int]:
    """A port of this machine where somebody listens, as on the abstract socket "atlas-test-<port>"."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        number = tcp.getsockname()[1]
        abstract.bind(f"\0atlas-test-{number}")
        abstract.listen()
        yield number


async def test_no_network_no_sockets_and_no_privileges(start: Start, port: int) -> None:
    code = f"""
import ctypes, os, signal, socket
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, f):
    try: f(); print("REACHED", name)
    except OSError as e: print(name, e.errno)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)
for address in ("127.0.0.1", "172.17.0.1", "1.1.1.1"):
    attempt(address, lambda: socket.create_connection((address, {port}), timeout=5))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW))
for path in ("/var/run/docker.sock", "/run/docker.sock", "\\0atlas-test-{port}"):
    attempt(path.strip("\\0"), lambda: socket.socket(socket.AF_UNIX).connect(path))
attempt("setuid", lambda: os.setuid(0))
attempt("setgid", lambda: os.setgid(0))
attempt("groups", lambda: os.setgroups([0]))
attempt("chroot", lambda: os.chroot("."))
attempt("mknod", lambda: os.mknod("dev", 0o60600, 2048))
attempt("mount", lambda: call("mount", b"proc", b"/workspace", b"proc", 0, 0))
attempt("unshare", lambda: call("unshare", 0x10000000))
attempt("hostname", lambda: call("sethostname", b"x", 1))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -10))
print("user", os.getuid() == 0 and os.path.exists("/proc/self/uid_map") and "root")
print("privileges", libc.prctl(39, 0, 0, 0, 0), libc.prctl(21, 0, 0, 0, 0))
"""
    shell = await start()
    (shell.episode.files / "attack.py").write_text(code)
    said = await shell("/opt/server/bin/python -I -S attack.py")
    lines = said.splitlines()
    assert len(lines) == 19, said
    assert "REACHED" not in said
    assert lines[-2:] == ["user False", "privileges 1 2"]


async def test_processes_of_others_are_neither_seen_nor_reached(start: Start) -> None:
    mine, other = await start(), await start()
    theirs = (await other("echo $PPID")).strip()
    said = await mine(
        f"for pid in {theirs} 1 {os.getpid()}; do cat /proc/$pid/environ; done; "
        f"kill -9 1; kill -9 {os.getpid()}; "
        + (f"kill -9 {theirs}; " if not mine.link.own_paths else "")
        + "ls /proc | grep -c '^[0-9]'"
    )
    assert other.episode.root.name not in said
    assert await other("echo alive") == "alive\n"
    assert await mine("echo alive") == "alive\n"
    await mine.link.aclose()
    assert await other("echo alive") == "alive\n"


async def test_the_environment_holds_nothing_of_the_host(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "hunter2")
    shell = await start()
    said = await shell("env; pwd; echo ~; ls -la /workspace; ls -la ~")
    assert "hunter2" not in said
    assert shell.episode.root.name not in said
    assert "ATLAS_GYM_EPISODE=episode\n" in said
    assert "HOME=/home/agent\n" in said
    assert "TMPDIR=/tmp/shell\n" in said


async def test_a_fork_bomb_is_bounded(start: Start, how: str) -> None:
    shell, other = await start(pids=40), await start()
    code = (
        "import os, signal, time\nmade = []\ntry:\n    for _ in range(300):\n        pid = os.fork()\n"
        "        if pid == 0: time.sleep(1000)\n        made.append(pid)\n"
        "except OSError as e: print(len(made), e.errno, flush=True)\n"
    ) + ("time.sleep(1000)" if how == "container-fork" else "for pid in made: os.kill(pid, 9)")
    (shell.episode.files / "bomb.py").write_text(code)
    bomb = f"{PYTHON} 'import runpy; runpy.run_path(\"bomb.py\")'"
    if how == "container-fork":
        await shell.send(bomb)
        assert "processes and threads, its limit is 40" in await shell.ended()
    else:
        made, error = map(int, (await shell(bomb)).split())
        assert made <= 40
        assert error == 11
    assert await other("echo alive") == "alive\n"


async def test_a_memory_bomb_is_bounded(start: Start) -> None:
    shell, other = await start(memory_mb=128), await start()
    await shell.send(f'{PYTHON} \'x = b"x" * (400 << 20); print("DONE", len(x))\'')
    async with asyncio.timeout(100):
        said = await shell.link.receive()
    assert b"DONE" not in said
    assert await other("echo alive") == "alive\n"


async def test_a_hostile_tree_is_copied_and_removed(start: Start, tmp_path: Path) -> None:
    (tmp_path / "host").write_text("PRIVATE")
    shell = await start()
    await shell(
        rf"""
echo fine > /workspace/fine.txt
ln -s {tmp_path}/host /workspace/link.txt; ln -s / /workspace/root; ln -s /workspace /workspace/loop
mkdir -p /workspace/locked/in; echo x > /workspace/locked/in/f
chmod 000 /workspace/locked/in /workspace/locked
(umask 777; mkdir /workspace/dark; echo x > /workspace/dark2)
mkfifo /workspace/fifo; truncate -s 100M /workspace/sparse
mkdir "/workspace/$(printf 'new\nline')" '/workspace/ü"'
"""
    )
    await shell.link.aclose()
    copy = shell.episode.snapshot(max_bytes=1 << 20)
    assert (copy.files / "fine.txt").read_text() == "fine\n"
    everything = [Path(root) / name for root, _, names in os.walk(copy.root) for name in names]
    assert not any(path.is_symlink() or b"PRIVATE" in path.read_bytes() for path in everything)
    copy.close()
    assert (tmp_path / "host").read_text() == "PRIVATE"

"""A server with a shell behind walls: whatever its commands try stays in the episode, and ends with it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.runtime import gc, kernel
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.process import ProcessLink, ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

Install = Callable[..., Installation]
Run = Callable[[str], Awaitable[str]]

pytestmark = [
    pytest.mark.skipif(
        kernel.probe().landlock_abi < 6 or not kernel.probe().seccomp,
        reason=f"walls: {kernel.probe().reason}",
    ),
    pytest.mark.asyncio,
]

SHELL = """
import json, subprocess, sys
for line in sys.stdin:
    done = subprocess.run(json.loads(line), shell=True, capture_output=True)
    print(json.dumps((done.stdout + done.stderr).decode("utf-8", "replace")), flush=True)
"""


INTERPRETER = os.path.realpath(sys.executable)
PREFIX = os.path.realpath(sys.base_prefix)
PYTHON = f"{INTERPRETER} -I -S -c"
REFUSED = re.compile("denied|No such file|not permitted|cross-device")


def exists(*paths: object) -> list[bool]:
    return [os.path.exists(str(path)) for path in paths]


class Shell:
    """Runs one command after another in a server of one episode."""

    def __init__(self, link: ProcessLink, episode: Workspace) -> None:
        self.link = link
        self._episode = episode
        self._buffer = b""

    async def send(self, command: str) -> None:
        line = json.dumps(self._episode.to_host(command, "shell")) + "\n"
        await self.link.send(line.encode())

    async def __call__(self, command: str) -> str:
        """What a command printed, with the agent's names of paths."""
        await self.send(command)
        async with asyncio.timeout(120):
            while b"\n" not in self._buffer:
                chunk = await self.link.receive()
                assert chunk, self.link.stderr_tail()
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return str(self._episode.to_agent(json.loads(line)))

    async def ended(self) -> str:
        """Wait until the server is ended; why."""
        async with asyncio.timeout(120):
            while await self.link.receive():
                pass
            await self.link.aclose()
        return self.link.stderr_tail()


async def start(install: Install, episode: Workspace, **limits: Any) -> Shell:
    command = [INTERPRETER, "-I", "-S", "-c", SHELL]
    installation = install(command, name="shell", read=[PREFIX], walls="required", limits=limits)
    return Shell(await ProcessRuntime().start(installation, episode), episode)


async def test_nothing_outside_can_be_read_or_written(
    install: Install, episode: Workspace, tmp_path: Path
) -> None:
    other = Workspace.create("other")
    (other.files / "private").write_text("PRIVATE")
    host = tmp_path / "host"
    host.write_text("PRIVATE")
    shell = await start(install, episode)
    mine = os.getpid()
    for command in (
        *(
            f"cat {path}"
            for path in ("/etc/shadow", str(host), f"{other.files}/private", f"/proc/{mine}/environ")
        ),
        *("ls /root", "ls /home", "ls /var", "ls /run", f"ls {other.root.parent}", "cat /proc/*/environ"),
        *(f"ln -s {host} /workspace/l && cat /workspace/l", f"ln {host} /workspace/hard"),
        *("cat /workspace/../owner.json", "cat /workspace/../../../*/host", "cd / && cat etc/shadow"),
        f"cp {host} /workspace/copy; cat /workspace/copy",
        f"mv {host} /workspace/moved; cat /workspace/moved",
        "cat /proc/self/root/etc/shadow",
        "cat /proc/$PPID/root/etc/shadow",
        f"cat /proc/self/cwd/../../../{other.root.name}/files/private",
        "dd if=/dev/mem bs=1 count=1; dd if=/dev/sda bs=1 count=1; cat /dev/kmsg",
    ):
        said = await shell(command)
        assert "PRIVATE" not in said, command
        assert "root:" not in said, command
        assert REFUSED.search(said), (command, said)
    for command in (
        *(
            f"echo x > {path}"
            for path in (str(host), "/tmp/pwned", "/dev/shm/pwned", "/pwned", "/var/tmp/pwned")
        ),
        *(f"rm -rf {path}" for path in (str(host), f"{other.files}", f"{episode.root}/owner.json")),
        *(f"mkdir {episode.root}/made", f"mv {episode.files} {episode.root}/gone", f"rmdir {episode.files}"),
        f"chmod 777 {host}; chown 1 {host}; touch -d 2001-01-01 {host}; truncate -s 0 {host}",
        f"{PYTHON} 'import os; os.utime(\"{host}\", (1, 1))'",
    ):
        await shell(command)
    assert host.read_text() == "PRIVATE"
    assert host.stat().st_mtime > 1e9
    assert (other.files / "private").read_text() == "PRIVATE"
    assert not any(exists("/tmp/pwned", "/dev/shm/pwned", "/pwned", "/var/tmp/pwned"))
    assert sorted(p.name for p in episode.root.iterdir()) == ["files", "owner.json", "state"]
    await shell.link.aclose()
    other.close()


async def test_no_network_and_no_signals(install: Install, episode: Workspace) -> None:
    folder = tempfile.mkdtemp(prefix="atlas-test-")  # the path of a socket must be short
    listeners = [
        socket.create_server(("127.0.0.1", 0)),
        socket.socket(socket.AF_UNIX),
        socket.socket(socket.AF_UNIX),
    ]
    listeners[1].bind(f"{folder}/docker.sock")
    listeners[2].bind("\0atlas-test-abstract")
    for listener in listeners[1:]:
        listener.listen()
    port = listeners[0].getsockname()[1]
    code = f"""
import os, signal, socket, ctypes
U, I, S, D = socket.AF_UNIX, socket.AF_INET, socket.SOCK_STREAM, socket.SOCK_DGRAM
def attempt(name, f):
    try: f(); print("REACHED", name)
    except OSError as e: print(name, e.errno)
attempt("tcp", lambda: socket.socket(I, S).connect(("127.0.0.1", {port})))
attempt("tcp6", lambda: socket.socket(socket.AF_INET6, S).connect(("::1", {port})))
attempt("udp", lambda: socket.socket(I, D).sendto(b"x", ("127.0.0.1", 53)))
attempt("raw", lambda: socket.socket(I, socket.SOCK_RAW, 1))
attempt("netlink", lambda: socket.socket(16, socket.SOCK_RAW, 0))
attempt("vsock", lambda: socket.socket(40, S))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW))
attempt("unix", lambda: socket.socket(U, S).connect("{folder}/docker.sock"))
attempt("abstract", lambda: socket.socket(U, S).connect("\\0atlas-test-abstract"))
attempt("pair", lambda: socket.socketpair(U, D)[0].connect("{folder}/docker.sock"))
attempt("listen", lambda: socket.socket(I, S).bind(("127.0.0.1", 0)))
for who in ({os.getpid()}, os.getppid(), 1, -1, -{os.getpgid(0)}):
    attempt(f"kill {{who}}", lambda: os.kill(who, 0))
attempt("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open({os.getpid()}), 0))
attempt("setuid", lambda: os.setuid(0) if os.getuid() else os.setgroups([0]))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, {os.getpid()}, 5))
attempt("affinity", lambda: os.sched_setaffinity({os.getpid()}, [0]))
attempt("chroot", lambda: os.chroot("."))
attempt("mknod", lambda: os.mknod("dev", 0o60600, 2048))
"""
    shell = await start(install, episode)
    (episode.files / "attack.py").write_text(code)
    said = await shell(f"{PYTHON} 'import runpy; runpy.run_path(\"attack.py\")'")
    lines = said.splitlines()
    assert len(lines) == 22, said
    reached = [line for line in lines if not line.split()[-1].isdigit() or "REACHED" in line]
    assert len(reached) == 1, said
    assert reached[0].startswith("REACHED kill")  # its parent, the shell
    await shell.link.aclose()
    for listener in listeners:
        listener.close()
    shutil.rmtree(folder)


async def test_the_environment_holds_nothing_of_the_host(
    install: Install, episode: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "hunter2")
    shell = await start(install, episode)
    said = await shell("env; pwd; cat /proc/self/environ; echo ~; ls -la; ls -la ..")
    assert "hunter2" not in said
    assert episode.root.name not in said
    assert str(episode.root) not in said
    assert "ATLAS_GYM_EPISODE=episode\n" in said
    assert "HOME=/home/agent\n" in said
    await shell.link.aclose()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/workspace/a.txt", True),
        ("/workspace/./sub/../a.txt", True),
        ("'/workspace/a.txt'", True),
        ("/workspace//a.txt", True),
        ("/workspace/../files/a.txt", True),
        ("/workspace/../../../../../../../etc/shadow", False),
        ("/workspace/../state/other/home/key", False),
        ("/workspacex/a.txt", False),
        ("/workspace.bak/a.txt", False),
        ("/tmp/shell/../../../other/home/key", False),
        ("/home/agent/../../other/home/key", False),
        ("/WORKSPACE/a.txt", False),
        ("$(printf '/work%s' space/a.txt)", False),
    ],
)
async def test_paths_lead_into_the_episode_only(
    install: Install, episode: Workspace, path: str, found: bool
) -> None:
    (episode.files / "sub").mkdir()
    (episode.files / "a.txt").write_text("CONTENT")
    (episode.state("other") / "home" / "key").write_text("PRIVATE")
    shell = await start(install, episode)
    said = await shell(f"cat {path}")
    assert ("CONTENT" in said) is found, said
    assert "PRIVATE" not in said
    assert "root:" not in said
    assert str(episode.root) not in said
    await shell.link.aclose()


async def test_descendants_end_with_the_server(install: Install, episode: Workspace) -> None:
    shell = await start(install, episode)
    code = """
import os, sys
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for n in range(1, 65):
                if n not in (9, 19, 32, 33):
                    __import__("signal").signal(n, 1)
            for fd in range(3): os.close(fd)
            open(f"alive-{os.getpid()}", "w").close()
            while True: __import__("time").sleep(1000)
        os._exit(0)
for _ in range(3): os.wait()
while len([n for n in os.listdir(".") if n.startswith("alive")]) < 3: pass
"""
    (episode.files / "daemons.py").write_text(code)
    await shell(f"{PYTHON} 'import runpy; runpy.run_path(\"daemons.py\")'")
    pids = [int(p.name.partition("-")[2]) for p in episode.files.glob("alive-*")]
    assert len(pids) == 3
    assert all(exists(*(f"/proc/{pid}" for pid in pids)))
    await shell.link.aclose()
    assert not any(exists(*(f"/proc/{pid}" for pid in pids)))


async def test_a_fork_bomb_is_ended(install: Install, episode: Workspace) -> None:
    shell = await start(install, episode, pids=40)
    code = "import os, time\nfor _ in range(300):\n    if os.fork() == 0: time.sleep(1000)\ntime.sleep(1000)"
    (episode.files / "bomb.py").write_text(code)
    await shell.send(f"{PYTHON} 'import runpy; runpy.run_path(\"bomb.py\")'")
    assert "processes and threads, its limit is 40" in await shell.ended()


@pytest.mark.parametrize("removed", [False, True])
async def test_a_full_disk_is_the_servers_end(install: Install, episode: Workspace, removed: bool) -> None:
    shell = await start(install, episode, file_mb=1)
    code = (
        "import os, time\nkept = []\nfor i in range(24):\n    f = open(f'fill-{i}', 'wb')\n"
        "    f.write(b'x' * 1000 * 1000)\n    f.flush()\n    kept.append(f)\n"
        + ("    os.unlink(f'fill-{i}')\n" if removed else "")
        + "time.sleep(1000)"
    )
    (episode.files / "fill.py").write_text(code)
    await shell.send(f"{PYTHON} 'import runpy; runpy.run_path(\"fill.py\")'")
    assert "MiB, the limit is 8" in await shell.ended()


async def test_a_hostile_tree_is_copied_and_removed(
    install: Install, episode: Workspace, tmp_path: Path
) -> None:
    (tmp_path / "host").write_text("PRIVATE")
    shell = await start(install, episode)
    said = await shell(
        rf"""
echo fine > /workspace/fine.txt
ln -s {tmp_path}/host /workspace/link.txt; ln -s / /workspace/root; ln -s /workspace /workspace/loop
ln -s {tmp_path} ~/outside; rm -rf ~/../tmp; ln -s /etc ~/../tmp
mkdir -p /workspace/locked/in; echo x > /workspace/locked/in/f
chmod 000 /workspace/locked/in /workspace/locked
(umask 777; mkdir /workspace/dark; echo x > /workspace/dark2)
mkfifo /workspace/fifo; truncate -s 200M /workspace/sparse; truncate -s 100G /workspace/huge
mkdir "/workspace/$(printf 'new\nline')" /workspace/-rf '/workspace/ü"'
i=0; while [ $i -lt 30 ]; do mkdir deep; cd deep; i=$((i+1)); done
"""
    )
    assert "PRIVATE" not in said
    await shell.link.aclose()
    copy = episode.snapshot(max_bytes=1 << 20, max_depth=10)
    assert (copy.files / "fine.txt").read_text() == "fine\n"
    everything = [Path(root) / name for root, _, names in os.walk(copy.root) for name in names]
    assert all(path.is_file() and not path.is_symlink() for path in everything)
    assert not any(b"PRIVATE" in path.read_bytes() for path in everything)
    skipped = dict(copy.skipped)
    links = ("files/link.txt", "files/root", "files/loop", "state/shell/tmp")
    assert {skipped[link] for link in links} == {"a symbolic link"}
    assert skipped["files/fifo"] == "not a regular file"
    assert "too large" in skipped["files/sparse"]
    copy.close()
    episode.close()
    assert not episode.root.exists()
    assert (tmp_path / "host").read_text() == "PRIVATE"


async def test_a_server_cannot_pass_for_another_episode(install: Install, episode: Workspace) -> None:
    other = Workspace.create("other")
    shell = await start(install, episode)
    await shell(f"ATLAS_GYM_EPISODE={other.root.name} sleep 1000 > /dev/null 2>&1 &")
    removed = gc.collect()
    assert (removed.episodes, removed.processes, removed.alive) == ((), (), 2)
    await shell.link.aclose()
    other.close()

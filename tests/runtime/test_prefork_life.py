"""The life of a warmed parent: shared, killed, idle, ended, and bound to the process that owns it."""

from __future__ import annotations

import asyncio
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from atlas_gym.runtime import gc, kernel
from atlas_gym.runtime.host import HostPlan, HostProcess
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.prefork import Hosts
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

Program = Callable[..., Installation]


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends within a bound."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def reasons(runtime: ProcessRuntime) -> str:
    assert runtime.hosts
    return runtime.hosts.why_not("probe")


SLEEPER: Final = """
import os, time
pids = [os.getpid()]
for setsid in (False, True):
    pid = os.fork()
    if pid == 0:
        setsid and os.setsid()
        time.sleep(1000)
    pids.append(pid)
print(*pids, flush=True)
time.sleep(1000)
"""


@pytest.mark.asyncio
async def test_a_killed_parent_takes_its_children_along_and_is_replaced(
    program: Program, forking: ProcessRuntime, episode: Workspace
) -> None:
    assert forking.hosts
    installation = program(SLEEPER)
    link = await forking.start(installation, episode)
    pids = [int(pid) for pid in (await link.receive()).split()]
    (first,) = forking.hosts.hosts()
    assert (first.server, first.children, first.resident > 1 << 20) == ("probe", 1, True)
    os.kill(first.pid, signal.SIGKILL)
    assert all(gone(pid) for pid in pids)
    assert await link.receive() == b""
    assert link.exit_status == -signal.SIGKILL
    again = await forking.start(installation, episode)
    assert again.how == "fork"
    (second,) = forking.hosts.hosts()
    assert second.pid != first.pid
    await link.aclose()
    await again.aclose()
    assert forking.hosts.hosts()[0].children == 0


@pytest.mark.asyncio
async def test_a_parent_is_ended_by_its_name(
    program: Program, forking: ProcessRuntime, episode: Workspace
) -> None:
    assert forking.hosts
    link = await forking.start(program(SLEEPER), episode)
    pids = [int(pid) for pid in (await link.receive()).split()]
    (host,) = forking.hosts.hosts()
    assert not forking.hosts.end("host-of-another")
    assert forking.hosts.end(host.name)
    assert not forking.hosts.end(host.name)
    assert gone(host.pid)
    assert all(gone(pid) for pid in pids)
    await link.aclose()


@pytest.mark.asyncio
async def test_an_idle_parent_ends_and_one_in_use_does_not(program: Program, episode: Workspace) -> None:
    hosts = Hosts(kernel.probe(), idle=0.05, rehearsal=())
    runtime = ProcessRuntime(prefork=hosts)
    installation = program("import sys\nfor line in sys.stdin: print(line, end='', flush=True)")
    link = await runtime.start(installation, episode)
    (host,) = hosts.hosts()
    for _ in range(20):
        await link.send(b"x\n")
        assert await link.receive() == b"x\n"
    await link.aclose()
    assert gone(host.pid)
    assert hosts.hosts() == []
    link = await runtime.start(installation, episode)
    assert link.how == "fork"
    await link.aclose()
    await runtime.aclose()


@pytest.mark.asyncio
async def test_a_parent_that_keeps_dying_is_given_up(
    program: Program, forking: ProcessRuntime, episode: Workspace
) -> None:
    assert forking.hosts
    installation = program("import os; print(os.getpid())")
    for how in ("fork", "fork", "fork", "spawn", "spawn"):
        link = await forking.start(installation, episode)
        assert link.how == how
        await link.aclose()
        for host in forking.hosts.hosts():
            os.kill(host.pid, signal.SIGKILL)
            assert gone(host.pid)
    assert reasons(forking) == "its warmed parent has died 3 times"


class FirstFails(Hosts):
    """The machine cannot start a parent the first time."""

    tries = 0

    def launch(self, host: HostPlan) -> HostProcess:
        self.tries += 1
        if self.tries == 1:
            raise OSError("no more processes")
        return super().launch(host)


@pytest.mark.asyncio
@pytest.mark.parametrize(("again", "second"), [(0.0, "fork"), (3600.0, "spawn")])
async def test_a_parent_that_could_not_be_started_is_tried_again_later(
    again: float, second: str, program: Program, episode: Workspace
) -> None:
    runtime = ProcessRuntime(prefork=FirstFails(kernel.probe(), rehearsal=(), again=again))
    installation = program("print('here', flush=True)")
    for how in ("spawn", second):
        link = await runtime.start(installation, episode)
        assert (link.how, await link.receive()) == (how, b"here\n")
        await link.aclose()
    if second == "spawn":
        assert "no more processes" in reasons(runtime)
    await runtime.aclose()


@pytest.mark.asyncio
async def test_many_starts_share_one_parent(
    program: Program, forking: ProcessRuntime, episode: Workspace
) -> None:
    installation = program("import os; print(os.getpid())")

    async def one() -> tuple[Link, bytes]:
        link = await forking.start(installation, episode)
        return link, await link.receive()

    links, pids = zip(*await asyncio.gather(*(one() for _ in range(8))), strict=True)
    assert len(set(pids)) == 8
    assert forking.hosts
    assert [host.children for host in forking.hosts.hosts()] == [8]
    await asyncio.gather(*(link.aclose() for link in links))


OWNER: Final = """
import asyncio, os, pickle, sys
from atlas_gym.runtime import kernel
from atlas_gym.runtime.prefork import Hosts
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

installation = pickle.loads(bytes.fromhex(sys.argv[1]))
runtime = ProcessRuntime(prefork=Hosts(kernel.probe(), rehearsal=()))

async def main():
    workspace = Workspace.create()
    link = await runtime.start(installation, workspace)
    assert link.how == "fork", runtime.hosts.why_not("probe")
    pids = (await link.receive()).decode().split()
    hosts = [host.pid for host in runtime.hosts.hosts()]
    print(*hosts, *pids, flush=True)
    sys.stdin.readline()
    await link.aclose()
    workspace.close()
    return hosts

first = asyncio.run(main())
pid = os.fork()
if pid == 0:
    assert runtime.hosts.hosts() == []
    second = asyncio.run(main())
    assert len(second) == 1 and second != first
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert [host.pid for host in runtime.hosts.hosts()] == first
"""


@pytest.fixture
def owner(program: Program, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    code = pickle.dumps(program(SLEEPER)).hex()
    env = {**os.environ, "ATLAS_RUN": str(tmp_path / "run")}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as process:
        yield process
        process.kill()


def _pids(owner: subprocess.Popen[bytes]) -> list[int]:
    assert owner.stdout
    return [int(pid) for pid in owner.stdout.readline().split()]


def test_a_fork_of_the_owner_has_parents_of_its_own(owner: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert owner.stdin
    first = _pids(owner)
    owner.stdin.write(b"\n")
    owner.stdin.flush()
    assert all(gone(pid) for pid in first[1:])
    second = _pids(owner)
    owner.stdin.write(b"\n")
    owner.stdin.flush()
    assert owner.wait() == 0
    assert all(gone(pid) for pid in (*first, *second))
    assert list((tmp_path / "run").iterdir()) == []


def test_a_killed_owners_parents_are_gone_and_collected(
    owner: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    pids = _pids(owner)
    assert len(pids) == 4
    owner.kill()
    owner.wait()
    assert all(gone(pid) for pid in pids)
    removed = gc.collect(tmp_path / "run")
    assert (len(removed.episodes), len(removed.hosts)) == (1, 1)
    assert str(removed).startswith("Removed 1 episodes, 1 warmed parents and ")
    assert list((tmp_path / "run").iterdir()) == []

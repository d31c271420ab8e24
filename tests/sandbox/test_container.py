"""The zygote in a container: what it may not, who ends it, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.errors import NotFound

from atlas_gym.errors import SandboxError
from atlas_gym.runtime import engine
from atlas_gym.sandbox import available, choose, container, open_sandbox
from atlas_gym.sandbox.container import ContainerParent
from atlas_gym.sandbox.parent import parent, running, shut_down
from tests.docker_base import scratch_image

pytestmark = pytest.mark.docker

OWNER = """
import asyncio, sys
from atlas_gym.sandbox import open_sandbox
from atlas_gym.sandbox.parent import parent
async def call(op, payload):
    zygote = parent("container")
    print(zygote._name, zygote.pid, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
async def main():
    prelude = '__all__ = ["ask"]\\ndef ask(**k):\\n    return host_call("x", k)\\n'
    box = await open_sandbox("container", call=call, prelude=prelude)
    await box.run("ask()")
asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def own_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: None) -> Iterator[None]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / ("run" * 40)))  # longer than the name of a socket may be
    shut_down()
    yield
    shut_down()


async def nothing(op: str, payload: dict[str, Any]) -> None:
    return None


def value(code: str) -> str | None:
    async def main() -> str | None:
        box = await open_sandbox("container", call=nothing)
        try:
            result = await box.run(code)
            assert result.status == "ok", result
            return result.value
        finally:
            await box.close()

    return asyncio.run(main())


def zygote() -> ContainerParent:
    found = parent("container")
    assert isinstance(found, ContainerParent)
    return found


def there(name: str) -> bool:
    """Whether the engine knows the container, after it has done what it is at."""
    try:
        engine.client().api.wait(name, timeout=60, condition="removed")
    except NotFound:
        return False
    return name in {c["Names"][0].lstrip("/") for c in engine.client().api.containers(all=True)}


def ended(pidfd: int) -> bool:
    """Wait for a process's end; False only when it hangs."""
    return bool(select.select([pidfd], [], [], 60)[0])


def test_the_container_has_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    assert value("6 * 7") == "42"
    said = engine.client().api.inspect_container(zygote()._name)
    host, config = said["HostConfig"], said["Config"]
    assert (host["NetworkMode"], host["IpcMode"], host["ReadonlyRootfs"]) == ("none", "none", True)
    assert (host["CapDrop"], host["CapAdd"], host["Privileged"]) == (["ALL"], None, False)
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert not [host.get(kind) for kind in ("PidMode", "Tmpfs", "Devices") if host.get(kind)]
    assert 0 < host["Memory"] == host["MemorySwap"] < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert host["PidsLimit"] > 0
    assert config["User"].partition(":")[0] not in ("", "0")
    assert config["Labels"][engine.LABEL] == "sandbox"
    assert json.loads(config["Labels"][engine.LABEL_OWNER])["pid"] == os.getpid()
    assert [mount["RW"] for mount in said["Mounts"]] == [False] * 9
    assert not [m["Source"] for m in said["Mounts"] if m["Source"].endswith((".json", ".toml", ".sock"))]
    assert list((tmp_path / ("run" * 40)).iterdir()) == []


def test_the_first_process_itself_can_write_nothing() -> None:
    """Below the interpreter's walls stand those of the container: tried without the former."""
    value("1")
    api = engine.client().api
    probe = api.exec_create(zygote()._name, ["python3", "-c", PROBE])
    assert api.exec_start(probe["Id"]).split() == [b"no"] * 6


PROBE = """
import os, socket
def tried(what):
    try:
        what()
    except OSError:
        print("no")
    else:
        print("YES")
for place in ("/tmp/x", "/x", "/atlas-gym/x", "/dev/shm/x"):
    tried(lambda: open(place, "w").close())
tried(lambda: open("/atlas-gym/sandbox/zygote.py", "a").close())
tried(lambda: socket.create_connection(("192.0.2.1", 80), 1))
"""


def test_sandboxes_beside_each_other_share_one_container() -> None:
    async def main() -> None:
        boxes = await asyncio.gather(*(open_sandbox("container", call=nothing) for _ in range(20)))
        await asyncio.gather(*(box.run(f"x = {n}") for n, box in enumerate(boxes)))
        results = await asyncio.gather(*(box.run("x") for box in boxes))
        assert [r.value for r in results] == [str(n) for n in range(20)]
        await asyncio.gather(*(box.close() for box in boxes))

    value("1")
    name, before = zygote()._name, sorted(os.listdir("/proc/self/fd"))
    asyncio.run(main())
    assert zygote()._name == name
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert Path(f"/proc/{zygote().pid}/task/{zygote().pid}/children").read_text() == ""


@pytest.mark.parametrize("how", ["the zygote is killed", "the container is removed"])
def test_the_next_cell_gets_another_container(how: str) -> None:
    async def main() -> None:
        box: Any = await open_sandbox("container", call=nothing)
        assert (await box.run("x = 5\nx")).value == "5"
        old = zygote()
        if how == "the zygote is killed":
            os.kill(old.pid, signal.SIGKILL)
        else:
            engine.client().api.remove_container(old._name, force=True)
        assert await asyncio.to_thread(ended, box._worker.pidfd)
        result = await box.run("7")
        assert (result.value, result.restarted) == ("7", True)
        assert zygote()._name != old._name
        assert not await asyncio.to_thread(there, old._name)
        await box.close()

    asyncio.run(main())


def test_shut_down_removes_it() -> None:
    value("1")
    name, pid = zygote()._name, zygote().pid
    shut_down()
    assert not running("container")
    assert not there(name)
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("how", ["ends", "is killed"])
def test_it_goes_with_its_owner(how: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        name, pid = owner.stdout.readline().split()
        handle = os.pidfd_open(int(pid))
        if how == "is killed":
            owner.kill()
        else:
            owner.communicate("\n")
        assert ended(handle)
    os.close(handle)
    assert not there(name)


def test_one_that_cannot_see_its_owner_die_is_collected() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        name, _ = owner.stdout.readline().split()
        engine.client().api.pause(name)
        owner.kill()
    assert name in engine.collect().containers
    assert not there(name)


def check_in_child(name: str) -> None:
    assert not running("container")
    assert zygote()._name != name
    shut_down()
    raise StopIteration  # so that what fails above ends in another exit status than this


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_owner_leaves_its_parents_container_alone() -> None:
    async def main() -> None:
        box = await open_sandbox("container", call=nothing)
        await box.run("x = 5")
        name = zygote()._name
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with pytest.raises(StopIteration):
                    check_in_child(name)
                code = 0
            finally:
                os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert (await box.run("x")).value == "5"
        assert zygote()._name == name
        await box.close()

    asyncio.run(main())


def test_why_it_cannot_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available("container") == ""
    monkeypatch.setenv("ATLAS_BASE_PYTHON", "atlas-gym/not-there:1")
    with pytest.raises(SandboxError, match=r"atlas-gym/not-there:1 is not here\. Pull it .*servers base"):
        choose("container")


def test_an_image_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_BASE_PYTHON", scratch_image())
    with pytest.raises(
        SandboxError, match=r"cannot be started from atlas-gym/empty.*python3.*ATLAS_BASE_PYTHON"
    ):
        value("1")
    assert not running("container")


def test_an_image_whose_python_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "_FILES", ("seal.py",))
    with pytest.raises(
        SandboxError, match=r"ended at once; .* needs Python 3\.11 or newer\. .*docker run --rm"
    ):
        value("1")
    left = engine.client().api.containers(all=True, filters={"label": f"{engine.LABEL}=sandbox"})
    mine = [c for c in left if json.loads(c["Labels"][engine.LABEL_OWNER])["pid"] == os.getpid()]
    assert not [c for c in mine if there(c["Names"][0].lstrip("/"))]

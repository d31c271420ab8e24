"""Processes: one zygote per owner, none left over, no descriptor leaked, whoever dies first."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import select
import signal
import subprocess
import sys
from typing import Any

import pytest

from atlas_gym.errors import SandboxError
from atlas_gym.sandbox import CellLimits, available, open_sandbox
from atlas_gym.sandbox.parent import parent, shut_down

pytestmark = pytest.mark.skipif(bool(available("local")), reason=available("local") or "available")


async def nothing(op: str, payload: dict[str, Any]) -> None:
    return None


def value(code: str, kind: str = "local") -> str | None:
    async def main() -> str | None:
        sandbox = await open_sandbox(kind, call=nothing)
        try:
            return (await sandbox.run(code)).value
        finally:
            await sandbox.close()

    return asyncio.run(main())


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def ended(pidfd: int) -> bool:
    """Wait for a process's end; False only when it hangs."""
    return bool(select.select([pidfd], [], [], 60)[0])


def test_many_sandboxes_leave_nothing_behind() -> None:
    value("1")
    before = descriptors(), children(os.getpid())

    async def main() -> None:
        for _ in range(10):
            sandboxes = await asyncio.gather(*(open_sandbox("local", call=nothing) for _ in range(4)))
            await asyncio.gather(*(s.run("x = 1") for s in sandboxes))
            await asyncio.gather(*(s.close() for s in sandboxes))

    asyncio.run(main())
    assert (descriptors(), children(os.getpid())) == before
    assert children(parent().pid) == []


def test_timeouts_and_deaths_leave_nothing_behind() -> None:
    value("1")
    before = descriptors()

    async def main() -> None:
        sandbox = await open_sandbox("local", call=nothing, limits=CellLimits(seconds=0.2))
        for code in ("while True: pass", "import os; os._exit(3)", "import os; os.write(3, b'garbage!')"):
            assert (await sandbox.run(code)).status in ("timeout", "died", "breach")
        await sandbox.close()

    asyncio.run(main())
    assert descriptors() == before
    assert children(parent().pid) == []


def test_a_dead_zygote_is_replaced() -> None:
    async def main() -> None:
        sandbox: Any = await open_sandbox("local", call=nothing)
        zygote = parent()
        os.kill(zygote.pid, signal.SIGKILL)
        assert await asyncio.to_thread(ended, sandbox._worker.pidfd)
        first = await sandbox.run("1")
        assert (first.value, first.restarted) == ("1", True)
        assert parent().pid != zygote.pid
        await sandbox.close()

    asyncio.run(main())


def test_a_zygote_that_cannot_fork_says_so_and_its_workers_live_on() -> None:
    async def main() -> None:
        sandbox = await open_sandbox("local", call=nothing)
        await sandbox.run("x = 5")
        zygote = parent().pid
        soft, hard = resource.prlimit(zygote, resource.RLIMIT_NOFILE)
        held = len(os.listdir(f"/proc/{zygote}/fd"))
        for more in range(4):
            resource.prlimit(zygote, resource.RLIMIT_NOFILE, (held + more, hard))
            with contextlib.suppress(SandboxError):
                await (await open_sandbox("local", call=nothing)).close()
        resource.prlimit(zygote, resource.RLIMIT_NOFILE, (held, hard))
        with pytest.raises(SandboxError, match="No interpreter could be forked"):
            await open_sandbox("local", call=nothing)
        resource.prlimit(zygote, resource.RLIMIT_NOFILE, (soft, hard))
        assert (await sandbox.run("x")).value == "5"
        another = await open_sandbox("local", call=nothing)
        assert (await another.run("2")).value == "2"
        assert parent().pid == zygote
        await another.close()
        await sandbox.close()

    asyncio.run(main())


def test_the_end_does_not_wait_for_copies_of_the_control_socket() -> None:
    value("1")
    zygote = parent()
    copy = os.dup(zygote._control.fileno())  # what a process forked at a bad moment would hold
    shut_down()
    assert not os.path.exists(f"/proc/{zygote.pid}")
    os.close(copy)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_waits_for_a_spawn_and_inherits_nothing_of_it() -> None:
    async def main() -> None:
        boxes: list[Any] = []

        async def spawn_many() -> None:
            for _ in range(20):
                boxes.append(await open_sandbox("local", call=nothing))

        before = sockets()
        work = asyncio.create_task(spawn_many())
        for _ in range(10):
            pid = os.fork()
            if pid == 0:
                os._exit(min(99, sockets()))
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
            assert os.waitstatus_to_exitcode(status) <= before
        await work
        assert [(await box.run("1")).value for box in boxes] == ["1"] * 20
        for box in boxes:
            await box.close()

    value("1")
    asyncio.run(main())


def sockets() -> int:
    """How many sockets this process holds."""
    held = 0
    for fd in descriptors():
        with contextlib.suppress(OSError):  # the descriptor that listed them
            held += os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    return held


def test_the_next_sandbox_starts_another_zygote_after_shut_down() -> None:
    value("1")
    old = parent().pid
    shut_down()
    assert not os.path.exists(f"/proc/{old}")
    assert value("3") == "3"


# Python 3.12 and newer warn of every fork beside threads; owners do fork (Gymnasium's AsyncVectorEnv).
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_owner_has_its_own_zygote_and_leaves_the_parents_alone() -> None:
    async def main() -> None:
        sandbox = await open_sandbox("local", call=nothing)
        await sandbox.run("x = 5")
        mine = parent().pid
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with pytest.raises(SandboxError, match="another process"):
                    asyncio.new_event_loop().run_until_complete(_run_in_child(sandbox))
                code = 0
            finally:
                shut_down()
                os._exit(code)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert (await sandbox.run("x")).value == "5"
        assert parent().pid == mine
        await sandbox.close()

    asyncio.run(main())


async def _run_in_child(inherited: Any) -> None:
    asyncio.events._set_running_loop(asyncio.get_running_loop())
    own = await open_sandbox("local", call=nothing)
    assert (await own.run("7")).value == "7"
    await own.close()
    await inherited.close()
    await inherited.run("x")


def test_everything_dies_with_an_owner_that_is_killed() -> None:
    script = (
        "import asyncio, sys\n"
        "from atlas_gym.sandbox import open_sandbox\n"
        "from atlas_gym.sandbox.parent import parent\n"
        "async def call(op, payload):\n"
        "    print(parent().pid, payload['pid'], flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "async def main():\n"
        '    prelude = \'__all__ = ["ask"]\\ndef ask(**k):\\n    return host_call("x", k)\\n\'\n'
        "    box = await open_sandbox('local', call=call, prelude=prelude)\n"
        "    await box.run('import os\\nask(pid=os.getpid())')\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pidfds = [os.pidfd_open(int(pid)) for pid in owner.stdout.readline().split()]
        owner.kill()
        assert all(ended(pidfd) for pidfd in pidfds)
    for pidfd in pidfds:
        os.close(pidfd)


def test_an_owner_that_ends_leaves_nothing() -> None:
    script = (
        "import asyncio\n"
        "from atlas_gym.sandbox import open_sandbox\n"
        "from atlas_gym.sandbox.parent import parent\n"
        "async def call(op, payload): pass\n"
        "async def main():\n"
        "    box = await open_sandbox('local', call=call)\n"
        "    print(parent().pid, flush=True)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True
    )
    assert not os.path.exists(f"/proc/{done.stdout.strip()}")


def test_a_thread_of_an_earlier_cell_goes_on_only_while_a_cell_runs() -> None:
    async def main() -> None:
        asked: list[Any] = []

        async def call(op: str, payload: dict[str, Any]) -> None:
            asked.append(payload["n"])

        prelude = '__all__ = ["ask"]\ndef ask(**k):\n    return host_call("x", k)\n'
        sandbox = await open_sandbox("local", call=call, prelude=prelude)
        await sandbox.run(
            "import threading\ngo = threading.Event()\nsaid = []\n"
            "def late():\n    go.wait()\n    ask(n=1)\n    said.append(1)\n"
            "t = threading.Thread(target=late)\nt.start()"
        )
        result = await sandbox.run("go.set()\nt.join()\nask(n=2)\nsaid")
        assert (result.value, asked) == ("[1]", [1, 2])
        await sandbox.close()

    asyncio.run(main())


def test_a_forged_end_of_a_cell_ends_the_interpreter() -> None:
    async def main() -> None:
        sandbox = await open_sandbox("local", call=nothing)
        forged = b'{"t":"done","id":1,"status":"ok","stdout":"forged"}'
        frame = len(forged).to_bytes(4, "big") + forged
        first = await sandbox.run(f"import os\nn = os.write(3, {frame!r})")
        assert first.stdout == "forged"
        second = await sandbox.run("1")  # the true end of the first cell comes now, or came already
        assert second.status == "breach" or (second.value, second.restarted) == ("1", True)
        assert (await sandbox.run("2")).value == "2"
        await sandbox.close()

    asyncio.run(main())


def test_modules_that_were_not_preloaded_can_be_imported() -> None:
    assert value("import sched, wave, colorsys, cmd\n'ok'", "local") == "'ok'"


@pytest.mark.skipif(bool(available("sealed")), reason=available("sealed") or "available")
def test_the_standard_library_is_there_behind_the_walls() -> None:
    skip = (
        "antigravity idlelib lib2to3 msilib nis nt ntpath ossaudiodev this tkinter turtle turtledemo "
        "winreg winsound"
    )
    code = (
        "import sys, importlib, warnings\nwarnings.simplefilter('ignore')\nmissing = []\n"
        f"skip = set({skip.split()!r})\n"
        "for name in sorted(sys.stdlib_module_names):\n"
        "    if name in skip or name.startswith('_'):\n        continue\n"
        "    try:\n        importlib.import_module(name)\n"
        "    except ImportError as e:\n        missing.append(name)\n"
        "    except OSError as e:\n        missing.append((name, str(e)))\n"
        "missing"
    )
    allowed = {
        "crypt",
        "curses",
        "dbm",
        "ensurepip",
        "msvcrt",
        "pydoc_data",
        "readline",
        "ssl",
        "venv",
        "winreg",
        "_winapi",
    }
    missing = set(eval(value(code, "sealed") or "None"))
    assert missing <= allowed

"""What an import binds that forks must not share is found; a server that declares it is forked before."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

Program = Callable[..., Installation]
ReadAll = Callable[[Link], Awaitable[bytes]]


def reasons(runtime: ProcessRuntime) -> str:
    assert runtime.hosts
    return runtime.hosts.why_not("probe")


UNSAFE: Final = {
    "thread": (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\nvalue = 1",
        "started 1 threads",
    ),
    "event loop": ("import asyncio\nvalue = asyncio.new_event_loop().time()", "opened anon_inode:.eventpoll"),
    "database": (
        "import os, sqlite3\ndb = sqlite3.connect(os.path.join(os.environ['HOME'], 'my.db'))\n"
        "db.execute('create table t (a)')\nvalue = 1",
        r"opened state/probe/home/my\.db.*made state/probe/home/my\.db",
    ),
    "socket": ("import socket\nserver = socket.socketpair()\nvalue = 1", "opened socket"),
    "random": ("import random\nvalue = random.random()", r"drew random numbers \(in mine\)"),
    "uuid": ("import uuid\nvalue = str(uuid.uuid4())", r"drew random numbers \(in mine\)"),
    "token": ("import secrets\nvalue = secrets.token_hex()", r"drew random numbers \(in mine\)"),
    "temporary name": ("import tempfile\nvalue = tempfile.mktemp()", "kept the path state/probe/tmp/tmp"),
    "home": ("import os\nvalue = os.path.expanduser('~/notes')", "kept the path state/probe/home/notes"),
    "path object": ("from pathlib import Path\nvalue = str(Path.cwd() / 'x')", "kept the path files/x"),
    "variable": ("import os\nvalue = os.environ['WHERE']", "kept the path state/probe/where"),
    "argument": ("import sys\nvalue = sys.argv[1]", "kept the path files/data"),
    "default argument": (
        "import os\ndef f(where=os.environ['WHERE']):\n    return where\nvalue = f()",
        "kept the path state/probe/where",
    ),
    "dictionary": ("import os\nC = {'root': os.getcwd()}\nvalue = C['root']", "kept the path files"),
    "keyword default": (
        "import os\ndef f(*, where=os.getcwd()):\n    return where\nvalue = f()",
        "kept the path files",
    ),
    "bytes": ("import os\nvalue = len(os.environb[b'WHERE'])\nkept = os.environb[b'WHERE']", "kept the path"),
    "glob": ("import glob\nvalue = 1 + len(glob.glob('*'))", "looked for files of the episode"),
    "configuration": (
        "import configparser\nfound = configparser.ConfigParser().read('my.ini')\nvalue = 1 + len(found)",
        "looked for files of the episode",
    ),
    "directory": ("import os\nos.mkdir('made')\nos.chdir('made')\nvalue = 1", "changed the directory"),
    "umask": ("import os\nos.umask(0)\nvalue = 1", "changed the umask"),
    "shared memory": ("import mmap\nm = mmap.mmap(-1, 4096)\nvalue = 1", "mapped shared memory"),
    "child": (
        "import os, time\nif os.fork() == 0:\n    time.sleep(1000)\nvalue = 1",
        "left a child process running",
    ),
}
MAIN: Final = """
import os, random, sys, mine
print(os.getpid(), random.random(), mine.value, flush=True)
sys.stdin.read()
"""


@pytest.mark.asyncio
@pytest.mark.parametrize("what", UNSAFE)
async def test_what_an_import_binds_is_found_and_the_server_spawned(
    what: str, program: Program, forking: ProcessRuntime, episode: Workspace
) -> None:
    code, reason = UNSAFE[what]
    installation = program(
        MAIN, files={"mine.py": code}, args=("{workspace}/data",), env={"WHERE": "{state}/where"}
    )
    link = await forking.start(installation, episode)
    assert link.how == "spawn"
    assert len((await link.receive()).split()) == 3
    await link.aclose()
    assert re.search(reason, reasons(forking)), reasons(forking)
    assert forking.hosts
    assert forking.hosts.hosts() == []


@pytest.mark.asyncio
@pytest.mark.parametrize("what", [what for what in UNSAFE if what != "child"])
async def test_what_an_import_binds_is_each_episodes_own_when_declared(
    what: str, program: Program, forking: ProcessRuntime, episode: Workspace
) -> None:
    installation = program(
        MAIN,
        files={"mine.py": UNSAFE[what][0]},
        args=("{workspace}/data",),
        env={"WHERE": "{state}/where"},
        state_bound="import",
    )
    other = Workspace.create()
    links = [await forking.start(installation, workspace) for workspace in (episode, other)]
    assert [link.how for link in links] == ["fork", "fork"], reasons(forking)
    said = [(await link.receive()).decode().split() for link in links]
    for (_, chance, value), workspace in zip(said, (episode, other), strict=True):
        if what in ("home", "path object", "variable", "argument", "default argument", "temporary name"):
            assert value.startswith(str(workspace.root))
        assert 0 < float(chance) < 1
    assert said[0][1] != said[1][1]
    if what in ("random", "uuid", "token"):
        assert said[0][2] != said[1][2]
    await asyncio.gather(*(link.aclose() for link in links))
    other.close()


@pytest.mark.asyncio
async def test_an_import_that_ends_the_interpreter(
    program: Program, forking: ProcessRuntime, episode: Workspace, read_all: ReadAll
) -> None:
    link = await forking.start(program("import mine", files={"mine.py": "import os; os._exit(3)"}), episode)
    assert await read_all(link) == b""
    assert (link.how, link.exit_status) == ("spawn", 3)
    assert "ended its interpreter" in reasons(forking)
    await link.aclose()

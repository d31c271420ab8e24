"""Forks of a warmed parent: what they find, how they end, what may not be shared."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from atlas_gym.runtime.link import Link
from atlas_gym.runtime.prefork import entry_of, refusal
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

Program = Any
"""The class of the fixture; see conftest."""
ReadAll = Callable[[Link], Awaitable[bytes]]


def reasons(runtime: ProcessRuntime) -> str:
    assert runtime.hosts
    return runtime.hosts.why_not("probe")


LOOK: Final = """
import json, locale, os, signal, site, sys, tempfile, threading, time
print(json.dumps({
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": list(sys.flags),
    "executable": sys.executable, "prefix": sys.prefix, "env": dict(os.environ), "cwd": os.getcwd(),
    "name": __name__, "file": globals().get("__file__"), "main": sorted(vars(sys.modules["__main__"])),
    "spec": __spec__ and __spec__.name, "package": __package__, "doc": __doc__,
    "temp": tempfile.gettempdir(), "user": site.USER_BASE, "home": os.path.expanduser("~"),
    "zone": time.tzname, "locale": locale.setlocale(locale.LC_ALL), "umask": os.umask(0o22),
    "leader": os.getsid(0) == os.getpid(), "fds": sorted(map(int, os.listdir("/proc/self/fd"))),
    "signals": {s.name: str(signal.getsignal(s)) for s in signal.Signals},
    "threads": len(os.listdir("/proc/self/task")), "main_thread": threading.current_thread().name,
    "streams": [(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, s.seekable(),
                 s.isatty(), s.closed) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "frames": sys._getframe().f_back is None or sys._getframe().f_back.f_code.co_filename,
}))
"""


@pytest.mark.asyncio
@pytest.mark.parametrize("entry", ["script", "module", "package"])
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
async def test_a_fork_finds_what_a_new_interpreter_finds(
    version: str,
    entry: str,
    program: Program,
    forking: ProcessRuntime,
    episode: Workspace,
    read_all: ReadAll,
) -> None:
    program.use(version)
    depends = {"lone.py": LOOK, "pack/__init__.py": "", "pack/__main__.py": LOOK}
    installation = program(
        LOOK,
        depends=depends,
        entry={"script": (), "module": ("-m", "lone"), "package": ("-m", "pack")}[entry],
        args=("--data", "{workspace}/data", "{home}"),
        env={"WHERE": "{state}/x", "PYTHONHASHSEED": "0"},
    )
    found = {}
    for runtime, how in ((forking, "fork"), (ProcessRuntime(prefork=False), "spawn")):
        link = await runtime.start(installation, episode)
        assert link.how == how, reasons(forking)
        found[how] = json.loads(await read_all(link))
        assert link.exit_status == 0, link.stderr_tail()
        await link.aclose()
    frames = {how: seen.pop("frames") for how, seen in found.items()}
    assert found["fork"] == found["spawn"]
    assert frames["spawn"] in (True, "<frozen runpy>")
    assert found["fork"]["env"]["WHERE"] == str(episode.state("probe") / "x")


ENDS: Final = {
    "the last line": "print('bye')",
    "a number": "import sys; print('x', end=''); sys.exit(7)",
    "a large number": "raise SystemExit(256 + 3)",
    "none": "raise SystemExit",
    "a text": "raise SystemExit('no licence')",
    "an exception": "def f():\n    raise ValueError('broken')\nf()",
    "a cause": "try:\n    1/0\nexcept Exception as e:\n    raise RuntimeError('after') from e",
    "its own hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__)\n1/0",
    "a syntax error later": "import time\nexec('x = = 1')",
    "at exit": "import atexit\natexit.register(print, 'last')\natexit.register(lambda: 1/0)\nprint('first')",
    "a thread": (
        "import threading, time\n"
        "def work():\n    time.sleep(0.05)\n    print('worked')\n"
        "threading.Thread(target=work).start()"
    ),
    "a daemon": "import threading as t, time\nt.Thread(target=time.sleep, args=(100,), daemon=True).start()",
    "at once": "import os\nprint('lost')\nos._exit(4)",
    "a signal": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "an interrupt": "raise KeyboardInterrupt",
    "a closed stream": "import os\nprint('x')\nos.close(1)",
    "a pipe without a reader": "import os\nr, w = os.pipe()\nos.close(r)\nos.write(w, b'x')",
}


@pytest.mark.asyncio
@pytest.mark.parametrize("end", ENDS)
async def test_a_fork_ends_as_a_new_interpreter_does(
    end: str, program: Program, forking: ProcessRuntime, episode: Workspace, read_all: ReadAll
) -> None:
    installation = program(ENDS[end])
    seen = []
    for runtime in (forking, ProcessRuntime(prefork=False)):
        link = await runtime.start(installation, episode)
        output = await read_all(link)
        await link.aclose()
        seen.append((output, link.exit_status, re.sub("0x[0-9a-f]+", "0x", link.stderr_tail())))
    assert seen[0] == seen[1]


STATE: Final = """
import os, random, sys, tempfile, dep
line = sys.stdin.readline()
dep.shared.append(line)
os.environ["SEEN"] = line
with open("note", "a") as note:
    note.write(line)
with tempfile.NamedTemporaryFile(delete=False) as file:
    print(dep.shared, random.random(), dep.dice.random(), dep.seeded.random(), file.name, dep.CHANGED,
          os.environ["CHANGED"], open("note").read().strip(), flush=True)
sys.stdin.read()
"""
DEP: Final = """
import os, random
shared = []
dice, seeded = random.Random(), random.Random(4)
os.environ["CHANGED"] = CHANGED = "yes"
HERE = os.getcwd()
"""


@pytest.mark.asyncio
async def test_forks_share_nothing_that_they_change(
    program: Program, forking: ProcessRuntime, episode: Workspace
) -> None:
    installation = program(STATE + "import dep\nassert dep.HERE == os.getcwd()", depends={"dep.py": DEP})
    other = Workspace.create()
    links = [await forking.start(installation, each) for each in (episode, other)]
    assert [link.how for link in links] == ["fork", "fork"], reasons(forking)
    for number, link in enumerate(links):
        await link.send(b"%d\n" % number)
    lines = [(await link.receive()).decode().split() for link in links]
    for number, (line, workspace) in enumerate(zip(lines, (episode, other), strict=True)):
        shared, _, _, _, name, *rest = line
        assert shared == f"['{number}\\n']"
        assert name.startswith(str(workspace.state("probe") / "tmp"))
        assert rest == ["yes", "yes", str(number)]
    assert lines[0][1] != lines[1][1], "the global generator"
    assert lines[0][2] != lines[1][2], "a generator of a module, seeded by chance"
    assert lines[0][3] == lines[1][3], "a generator of a module, seeded on purpose"
    assert Path(lines[0][4]).name != Path(lines[1][4]).name
    for link in links:
        await link.aclose()
    other.close()


TALKING: Final = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "tools/list":
        import dep
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": sorted(sys.modules)}), flush=True)
"""


EARLY: Final = {
    "variable": ("import os\nos.environ['READ_ONLY'] = '1'\nimport mine\n", "mine.py", "1"),
    "late variable": (
        "import os\ndef main():\n    os.environ['READ_ONLY'] = '1'\n    import mine\n    return mine\n"
        "mine = main()\n",
        "mine.py",
        "1",
    ),
    "path": ("import sys\nsys.path.insert(0, sys.path[0] + '/first')\nimport mine\n", "first/mine.py", "0"),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("what", EARLY)
async def test_what_a_program_does_before_its_imports_counts(
    what: str, program: Program, forking: ProcessRuntime, episode: Workspace, read_all: ReadAll
) -> None:
    main, file, value = EARLY[what]
    wrong = {"mine.py": "VALUE = 'the wrong one'"}
    right = {file: "import os\nVALUE = os.environ.get('READ_ONLY', '0')"}
    installation = program(
        main + "print(mine.VALUE, flush=True)", files={**wrong, **right}, env={"READ_ONLY": "0"}
    )
    link = await forking.start(installation, episode)
    assert (await read_all(link)).decode().strip() == value
    await link.aclose()


@pytest.mark.asyncio
async def test_what_is_imported_late_is_imported_ahead(program: Program, episode: Workspace) -> None:
    installation = program(TALKING, depends={"dep.py": "import fractions"})
    runtime = ProcessRuntime()
    link = await runtime.start(installation, episode)
    await link.send(b'{"jsonrpc": "2.0", "id": 1, "method": "look"}\n')
    loaded = json.loads(await link.receive())["result"]
    assert (link.how, {"dep", "fractions"} <= set(loaded)) == ("fork", True)
    await link.aclose()
    await runtime.aclose()
    assert runtime.hosts
    assert runtime.hosts.hosts() == []


@pytest.mark.parametrize(
    ("command", "flags", "script", "module", "skip"),
    [
        (("python", "/x/run.py", "-m"), (), "/x/run.py", "", 1),
        (("python", "-I", "-B", "/x/run.py"), ("-I", "-B"), "/x/run.py", "", 3),
        (("python", "-m", "pack.server", "--a"), (), "", "pack.server", 2),
    ],
)
def test_commands(
    command: tuple[str, ...], flags: tuple[str, ...], script: str, module: str, skip: int
) -> None:
    entry = entry_of(command)
    assert entry is not None
    assert (entry.flags, entry.script, entry.module, entry.skip) == (flags, script, module, skip)


@pytest.mark.parametrize("command", [("python",), ("python", "-c", "1"), ("python", "-X", "dev", "a.py")])
def test_other_commands_are_not_forked(command: tuple[str, ...]) -> None:
    assert entry_of(command) is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"respawn": "it counts its starts"}, "it counts its starts"),
        ({"walls": "required"}, "must not share a parent"),
        ({"registry": "user"}, "known package"),
    ],
)
def test_who_is_never_forked(program: Program, change: dict[str, Any], reason: str) -> None:
    assert reason in refusal(program("", **change))
    assert refusal(program("")) == ""

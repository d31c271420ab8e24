"""What a real server process, Python or Node, reaches through the walls: its own directories."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from atlas_gym.errors import StartError
from atlas_gym.runtime import kernel, launch
from atlas_gym.runtime.install import Installation
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace

Install = Callable[..., Installation]
ReadAll = Callable[[Link], Awaitable[bytes]]

NODE_PROGRAM = os.path.realpath(found) if (found := shutil.which("node")) else None
needs_walls = pytest.mark.skipif(
    kernel.probe().landlock_abi < 6 or not kernel.probe().seccomp, reason=f"walls: {kernel.probe().reason}"
)

PYTHON = """
import errno, json, os, signal, socket, sys
places, owner, unix = json.loads(sys.argv[1])
found = {}
def attempt(name, function, *arguments):
    try:
        function(*arguments)
        found[name] = "done"
    except OSError as exc:
        found[name] = errno.errorcode[exc.errno]
def read(path):
    with open(path, "rb") as f: f.read(1)
def write(path):
    with open(path, "w") as f: f.write("x")
for name, path in places.items():
    attempt(name, os.listdir if os.path.isdir(path) else read, path)
    attempt("write " + name, write, os.path.join(path, "made") if os.path.isdir(path) else path)
attempt("kill owner", os.kill, owner, 0)
attempt("kill parent", os.kill, os.getppid(), 0)
attempt("environ of owner", read, f"/proc/{owner}/environ")
attempt("memory of owner", read, f"/proc/{owner}/mem")
attempt("environ of parent", read, f"/proc/{os.getppid()}/environ")
attempt("own environ", read, "/proc/self/environ")
attempt("tcp", lambda: socket.socket().connect(("127.0.0.1", 22)))
attempt("unix", lambda: socket.socket(socket.AF_UNIX).connect(unix))
attempt("tmp", write, os.path.join(os.environ["TMPDIR"], "x"))
attempt("home", write, os.path.expanduser("~/x"))
attempt("cwd", write, "x")
pid = os.fork()
if not pid:
    signal.pause()
attempt("kill child", os.kill, pid, 9)
print(json.dumps(found))
"""

NODE = """
const fs = require('fs'), os = require('os'), net = require('net');
const [places, owner, unix] = JSON.parse(process.argv[1]);
const found = {};
function attempt(name, f) { try { f(); found[name] = 'done' } catch (e) { found[name] = e.code } }
const isDir = p => { try { return fs.statSync(p).isDirectory() } catch (e) { return false } };
for (const [name, path] of Object.entries(places)) {
  attempt(name, () => isDir(path) ? fs.readdirSync(path) : fs.readFileSync(path));
  attempt('write ' + name, () => fs.writeFileSync(isDir(path) ? path + '/made' : path, 'x'));
}
attempt('kill owner', () => process.kill(owner, 0));
attempt('kill parent', () => process.kill(process.ppid, 0));
attempt('environ of owner', () => fs.readFileSync(`/proc/${owner}/environ`));
attempt('memory of owner', () => fs.openSync(`/proc/${owner}/mem`));
attempt('environ of parent', () => fs.readFileSync(`/proc/${process.ppid}/environ`));
attempt('own environ', () => fs.readFileSync('/proc/self/environ'));
attempt('tmp', () => fs.writeFileSync(os.tmpdir() + '/x', 'x'));
attempt('home', () => fs.writeFileSync(os.homedir() + '/x', 'x'));
attempt('cwd', () => fs.writeFileSync('x', 'x'));
const child = require('child_process').spawn(process.execPath, ['-e', 'setInterval(() => 0, 1000)']);
attempt('kill child', () => child.kill('SIGKILL'));
child.on('exit', () => {
  const tcp = net.connect(22, '127.0.0.1');
  tcp.on('error', e => { found.tcp = e.code;
    const local = net.connect(unix);
    local.on('error', e => { found.unix = e.code; console.log(JSON.stringify(found)) });
  });
});
"""


@needs_walls
@pytest.mark.asyncio
@pytest.mark.parametrize("language", ["python", "node"])
async def test_nothing_else_can_be_reached(
    language: str,
    python: Install,
    install: Install,
    episode: Workspace,
    read_all: ReadAll,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = NODE_PROGRAM
    if language == "node" and node is None:
        pytest.skip("no node here")
    monkeypatch.setenv("HOST_SECRET", "do not read")
    other = Workspace.create("other")
    (other.files / "private").write_text("other episode")
    neighbour = episode.state("neighbour") / "home"
    secret = tmp_path / "secret"
    secret.write_text("secret")
    places = {
        "other episode": str(other.files / "private"),
        "other episodes": str(other.root.parent),
        "owner record": str(episode.root / "owner.json"),
        "neighbour's state": str(neighbour),
        "secret": str(secret),
        "temp": tempfile.gettempdir(),
        "home of user": str(Path.home()),
        "shadow": "/etc/shadow",
        "run": "/run",
        "var": "/var/log",
        "root": "/",
        "etc": "/etc",
        "docker": "/var/lib",
    }
    folder = tempfile.mkdtemp(prefix="atlas-test-")  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/docker.sock")
        listener.listen()
        argument = json.dumps([places, os.getpid(), f"{folder}/docker.sock"])
        if language == "python":
            installation = python(PYTHON)
            arguments = (*installation.command, argument)
            prefixes = [str(path) for path in installation.read_paths]
        else:
            assert node is not None
            arguments = (node, "-e", NODE, "--", argument)
            prefixes = [str(Path(arguments[0]).parent)]
        link = await ProcessRuntime().start(install(arguments, read=prefixes, walls="required"), episode)
        output = await read_all(link)
        tail = link.stderr_tail()
        await link.aclose()
    shutil.rmtree(folder)
    assert link.walls == "landlock+seccomp"
    assert tail == ""
    found = json.loads(output)
    allowed = {"own environ", "tmp", "home", "cwd", "kill child"}
    assert {name for name, result in found.items() if result == "done"} == allowed
    refused = {result for name, result in found.items() if name not in allowed}
    assert refused <= {"EACCES", "EPERM", "EAFNOSUPPORT", "ENOENT"}
    assert len(found) == 2 * len(places) + 12
    assert (other.files / "private").read_text() == "other episode"
    other.close()


@needs_walls
@pytest.mark.asyncio
async def test_network_opens_sockets_only(python: Install, episode: Workspace, read_all: ReadAll) -> None:
    code = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    with socket.create_connection(server.getsockname()): print("tcp")
try: socket.socket(socket.AF_UNIX)
except OSError: print("no unix")
try: open("/etc/shadow")
except OSError: print("no files")
"""
    link = await ProcessRuntime().start(python(code, network=("example.org",)), episode)
    assert await read_all(link) == b"tcp\nno unix\nno files\n"
    assert link.walls == "landlock+seccomp (network open)"
    await link.aclose()


@pytest.mark.asyncio
async def test_required_walls_are_required(python: Install, episode: Workspace) -> None:
    with pytest.raises(
        StartError, match=r"'probe' starts only behind walls.*walls are off.*Use a Linux kernel"
    ):
        await ProcessRuntime(walls="off").start(python("", walls="required"), episode)


@pytest.mark.asyncio
async def test_walls_off_is_said(python: Install, episode: Workspace, read_all: ReadAll) -> None:
    link = await ProcessRuntime(walls="off").start(python("print(open('/etc/hostname').read())"), episode)
    assert link.walls == "none"
    assert await read_all(link)
    await link.aclose()


@pytest.mark.parametrize(
    ("walls", "network", "text"),
    [
        (kernel.Walls(7, True, ""), False, "landlock+seccomp"),
        (kernel.Walls(4, True, ""), False, "landlock+seccomp (signals open)"),
        (kernel.Walls(0, True, "x"), True, "seccomp (network open)"),
        (kernel.NO_WALLS, True, "none"),
    ],
)
def test_description(walls: kernel.Walls, network: bool, text: str) -> None:
    assert launch.describe(walls, network) == text


def test_url_servers_have_nothing_to_start(install: Install, episode: Workspace) -> None:
    installation = install([], url="http://127.0.0.1:1/mcp")
    with pytest.raises(StartError, match="reached at its url 'http://127"):
        launch.plan(installation, episode, kernel.NO_WALLS)


@needs_walls
@pytest.mark.asyncio
@pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
async def test_git_works_behind_walls(install: Install, episode: Workspace, read_all: ReadAll) -> None:
    script = """
set -e
git init -q -b main . && git config user.name A && git config user.email a@example.org
echo one > a && git add a && git commit -q -m first && git gc -q && git mv a b && git commit -q -m second
git checkout -q -b other HEAD~1 && git merge -q main
git stash list && git status --short && git log --oneline | wc -l
printf '#!/bin/sh\\necho runs\\n' > run.sh && chmod +x run.sh && ./run.sh
"""
    link = await ProcessRuntime().start(install(["/bin/sh", "-c", script], walls="required"), episode)
    output = await read_all(link)
    assert (link.stderr_tail(), output.split(), link.exit_status) == ("", [b"2", b"runs"], 0)
    await link.aclose()


BASE, PROGRAM = (os.path.realpath(path) for path in (sys.base_prefix, sys.executable))
TOUCH = """
import json, os, pathlib, sys
foreign = sys.argv[1]
pathlib.Path("made").touch()
pathlib.Path("made").touch()
os.utime("made", (5, 5))
try:
    pathlib.Path(foreign).touch()
except OSError:
    pass
print(json.dumps([os.path.exists("made"), os.stat("made").st_mtime == 5]), flush=True)
"""


@needs_walls
@pytest.mark.asyncio
async def test_touching_makes_a_file_and_times_of_others_stay(
    install: Install, read_all: ReadAll, episode: Workspace, tmp_path: Path
) -> None:
    foreign = tmp_path / "foreign"
    foreign.write_text("x")
    os.utime(foreign, (7, 7))
    command = [PROGRAM, "-I", "-S", "-c", TOUCH, str(foreign)]
    link = await ProcessRuntime(prefork=False).start(install(command, read=[BASE]), episode)
    assert json.loads(await read_all(link)) == [True, False]
    await link.aclose()
    assert foreign.stat().st_mtime == 7

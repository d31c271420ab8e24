from __future__ import annotations

import json
from pathlib import Path

import pytest

from atlas_gym.errors import ManifestError, UnknownNameError
from atlas_gym.runtime.catalog import Catalog

TEXT = """
name = "{name}"
description = "Says hello."
registry = "pypi"
package = "demo"
version = "1"
language = "python"
command = ["demo"]
state = "none"
state_bound = "call"
"""


def folder(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "server.toml").write_text(TEXT.format(name=name))
    return root


def test_the_shipped_servers() -> None:
    catalog = Catalog.load()
    assert len(catalog) == len(catalog.names) >= 12
    assert "mcp-server-git" in catalog
    assert [server.name for server in catalog] == sorted(catalog.names)


def test_an_unknown_server_says_the_closest() -> None:
    with pytest.raises(UnknownNameError, match="mean 'mcp-server-git'"):
        Catalog.load().get("mcp-server-gti")


def test_several_folders_and_the_users_file(tmp_path: Path) -> None:
    one, two = folder(tmp_path / "one", "a"), folder(tmp_path / "two", "b")
    mine = tmp_path / "mcp.json"
    mine.write_text(json.dumps({"mcpServers": {"c": {"command": "run"}}}))
    catalog = Catalog.load([one, two], mine)
    assert catalog.names == ("a", "b", "c")
    assert catalog.get("a").folder == one / "a"
    assert catalog.get("c").folder is None


def test_a_name_that_is_taken_twice(tmp_path: Path) -> None:
    one, two = folder(tmp_path / "one", "a"), folder(tmp_path / "two", "a")
    with pytest.raises(ManifestError, match=r"two.a.server\.toml.*'a' exists already"):
        Catalog.load([one, two])


def test_a_folder_of_another_name(tmp_path: Path) -> None:
    folder(tmp_path, "a")
    (tmp_path / "a").rename(tmp_path / "b")
    with pytest.raises(ManifestError, match="'a' but its folder is 'b'"):
        Catalog.load([tmp_path])


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no such folder"):
        Catalog.load([tmp_path / "none"])

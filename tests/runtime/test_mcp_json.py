from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.errors import ManifestError
from atlas_gym.runtime.catalog import Catalog, Server
from atlas_gym.runtime.install import install, installed, unavailable
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.runtime.mcp_json import read


def parse(tmp_path: Path, servers: Any) -> dict[str, Manifest]:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return {manifest.name: manifest for manifest in read(file)}


def test_the_usual_entry(tmp_path: Path) -> None:
    made = parse(
        tmp_path,
        {
            "files": {
                "type": "stdio",
                "command": "npx",
                "args": ["-y", "some-server", "/data", 3],
                "env": {"MODE": "{fast}", "PORT": 80},
                "autoApprove": ["x"],
            }
        },
    )["files"]
    assert made.registry == "user"
    assert made.command == ("npx", "-y", "some-server", "/data", "3")
    assert made.env == {"PYTHONHASHSEED": "0", "MODE": "{fast}", "PORT": "80"}
    assert made.network == ("*",)
    assert made.read_only == ()


def test_a_url_is_kept_with_its_headers_as_written(tmp_path: Path) -> None:
    entry = {"type": "http", "url": "https://example.com/mcp", "headers": {"A": "Bearer ${NOT_SET}", "B": 1}}
    made = parse(tmp_path, {"far": entry})["far"]
    assert made.url == "https://example.com/mcp"
    assert made.command == ()
    assert made.headers == {"A": "Bearer ${NOT_SET}", "B": "1"}
    assert "Bearer" not in repr(made)
    assert "NOT_SET" in unavailable(Server(made, None))
    for key in ("httpUrl", "serverUrl"):  # as other clients write it
        assert parse(tmp_path, {"far": {key: "https://example.com/mcp"}})["far"].url == made.url


def test_names_become_usable_and_disabled_entries_are_left_out(tmp_path: Path) -> None:
    made = parse(tmp_path, {"my server!": {"command": "a"}, "off": {"command": "b", "disabled": True}})
    assert list(made) == ["my-server"]


def test_the_users_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_KEY", "s3cret")
    made = parse(
        tmp_path,
        {"a": {"command": "x", "env": {"KEY": "${KEY}", "B": "pre-${OTHER_KEY}-${env:OTHER_KEY}"}}},
    )["a"]
    assert "KEY" in made.env_allow
    assert made.env == {"PYTHONHASHSEED": "0", "B": "pre-s3cret-s3cret"}
    assert "s3cret" not in repr(made)
    with pytest.raises(ManifestError, match=r"env\.B.*variable NOT_SET_HERE, which is not set"):
        parse(tmp_path, {"a": {"command": "x", "env": {"B": "${NOT_SET_HERE}"}}})


def test_files_beside_the_mcp_json_are_found_from_the_workspace(tmp_path: Path) -> None:
    (tmp_path / "server.py").touch()
    made = parse(tmp_path, {"a": {"command": "python", "args": ["server.py", "other.py", "--x"]}})["a"]
    assert made.command == ("python", str(tmp_path / "server.py"), "other.py", "--x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", 'no "mcpServers" object'),
        ('{"servers": {}}', 'no "mcpServers" object'),
        ('{"mcpServers": {"a": []}}', "server 'a': expected an object, found list"),
        ('{"mcpServers": {"a": {}}}', "'command' must be a string, found None"),
        ('{"mcpServers": {"a": {"command": "x", "args": "y"}}}', "'args' must be a list"),
        ('{"mcpServers": {"a": {"command": "x", "args": [null]}}}', "'args' must be a string"),
        ('{"mcpServers": {"a": {"command": "x", "env": ["A"]}}}', "'env' must be an object"),
        ('{"mcpServers": {"!!": {"command": "x"}}}', "'name'"),
        ('{"mcpServers": {"a": {"url": "http://b/", "headers": ["A: b"]}}}', "'headers' must be an object"),
        (
            '{"mcpServers": {"a": {"url": "http://b/", "headers": {"A": null}}}}',
            "'headers.A' must be a string",
        ),
        ('{"mcpServers": {"a": {"url": ["x"]}}}', "'url' must be a string"),
    ],
)
def test_errors_name_the_file_and_the_entry(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(text)
    with pytest.raises(ManifestError) as caught:
        read(file)
    assert str(file) in str(caught.value)
    assert words in str(caught.value)


def test_installation_of_a_users_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "sh", "args": ["-c", "exit {1}"]}}}))
    server = Catalog.load([], file).get("a")
    found = install(server)
    assert found == installed(server)
    assert Path(found.command[0]).is_absolute()
    assert found.command[1:] == ("-c", "exit {1}")
    assert found.directory.name.startswith("user-a-")
    file.write_text(json.dumps({"mcpServers": {"a": {"command": "sh", "args": ["-c", "exit 2"]}}}))
    assert install(Catalog.load([], file).get("a")).directory != found.directory


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    made = parse(tmp_path, {"a": {"command": "no-such-program-here"}})["a"]
    assert "'no-such-program-here' is not found" in unavailable(Server(made, None))
    assert installed(Server(made, None)) is None

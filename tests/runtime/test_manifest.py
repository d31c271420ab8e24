from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atlas_gym.errors import ManifestError
from atlas_gym.runtime.manifest import Manifest, build_manifest, load_manifest, python_satisfies

GOOD: dict[str, Any] = {
    "name": "demo",
    "description": "Says hello.",
    "registry": "pypi",
    "package": "demo-mcp",
    "version": "1.2.3",
    "language": "python",
    "command": ["demo", "{workspace}/a.db"],
    "state": "workspace",
    "state_bound": "start",
}


def refused(**changes: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        build_manifest({**GOOD, **changes}, "servers/demo/server.toml")
    return str(caught.value)


def test_defaults_and_requirement() -> None:
    manifest = build_manifest(GOOD, "x")
    assert manifest.requirement == "demo-mcp==1.2.3"
    assert manifest.limits.start_seconds == 60
    assert manifest.network == "none"
    assert manifest.walls == "optional"
    assert manifest.protocol == "legacy"
    assert hash(manifest.command) == hash(tuple(GOOD["command"]))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stat": "none"}, ["'stat' is unknown", "did you mean 'state'"]),
        ({"state": "disk"}, ["'state'", "'disk'"]),
        ({"description": "two\nlines"}, ["'description'"]),
        ({"name": "../up"}, ["'name'", "'../up'"]),
        ({"version": ""}, ["version", "must not be empty"]),
        ({"registry": "npm"}, ["language", "'python'", "'npm'"]),
        ({"url": "http://x"}, ["url", "mcp.json"]),
        ({"command": ["x", "{worspace}/y"]}, ["'command'", "{worspace}", "did you mean {workspace}"]),
        ({"env": {"A": "{nope}"}}, ["'env'", "{nope}"]),
        ({"python": "snake"}, ["'python'", ">=3.11"]),
        ({"limits": {"memory_mb": 0}}, ["limits.memory_mb"]),
        ({"limits": {"memory": 10}}, ["limits.memory", "memory_mb"]),
        ({"read_only": "all"}, ["read_only"]),
    ],
)
def test_errors_name_file_field_and_what_is_near(changes: dict[str, Any], words: list[str]) -> None:
    message = refused(**changes)
    for word in ["servers/demo/server.toml", *words]:
        assert word in message


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ManifestError, match="'state' is missing"):
        build_manifest({k: v for k, v in GOOD.items() if k != "state"}, "x")


def test_values_of_variables_never_show() -> None:
    assert "s3cret" not in repr(build_manifest({**GOOD, "env": {"KEY": "s3cret"}}, "x"))
    assert "s3cret" not in refused(env={"KEY": ["s3cret"]})


def test_templates_are_filled_and_others_stay() -> None:
    manifest = build_manifest(GOOD, "x")
    assert manifest.expand("{env}/bin {workspace} {x}", {"env": Path("/e")}) == "/e/bin {workspace} {x}"


def test_a_users_braces_are_left_alone() -> None:
    manifest = Manifest(
        name="mine",
        description="",
        registry="user",
        command=("run", '{"json": 1}', "{workspace}"),
        state="memory",
        state_bound="import",
    )
    assert manifest.expand("{workspace}", {"workspace": "/w"}) == "{workspace}"


@pytest.mark.parametrize("fields", [{"command": (), "url": ""}, {"command": ("a",), "url": "http://x"}])
def test_a_users_server_has_a_command_or_a_url(fields: dict[str, Any]) -> None:
    user = {"name": "m", "description": "", "registry": "user", "state": "memory", "state_bound": "import"}
    with pytest.raises(ManifestError, match="either a command or a url"):
        build_manifest({**user, **fields}, "mcp.json")


def test_not_toml(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("name = ")
    with pytest.raises(ManifestError, match=r"server\.toml: cannot be read as TOML"):
        load_manifest(file)
    with pytest.raises(ManifestError, match="nowhere"):
        load_manifest(tmp_path / "nowhere" / "server.toml")


@pytest.mark.parametrize(
    ("request_", "version", "ok"),
    [
        (">=3.11", (3, 11), True),
        (">=3.11", (3, 14), True),
        (">=3.11,<3.13", (3, 13), False),
        ("3.12", (3, 12), True),
        ("3.12", (3, 11), False),
        ("==3.12", (3, 12), True),
        (">3.11", (3, 11), False),
        ("<=3.12", (3, 12), True),
        ("three", (3, 12), False),
    ],
)
def test_python_requests(request_: str, version: tuple[int, int], ok: bool) -> None:
    assert python_satisfies(request_, version) is ok

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.errors import LockError
from atlas_gym.toolspace.lock import Lock, ToolLock, compare, digest_tool, load_lock, save_lock, tidy

TOOL: dict[str, Any] = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "number", "description": "one"}}},
}


def changed(**parts: Any) -> dict[str, Any]:
    return {**TOOL, **parts}


def test_the_digest_covers_what_an_agent_is_told() -> None:
    base = digest_tool(TOOL)
    assert len(base) == 64
    for other in (
        changed(name="plus"),
        changed(description="Add."),
        changed(inputSchema={"type": "object"}),
        changed(outputSchema={"type": "object"}),
    ):
        assert digest_tool(other) != base


def test_the_digest_ignores_order_and_what_is_not_shown() -> None:
    assert digest_tool(dict(reversed(TOOL.items()))) == digest_tool(TOOL)
    assert digest_tool(changed(annotations={"readOnlyHint": True}, title="Add")) == digest_tool(TOOL)
    assert digest_tool(changed(outputSchema=None)) == digest_tool(TOOL)


def test_docstring_indentation_is_the_same_on_every_python() -> None:
    old = changed(description="Add.\n\n    Args:\n        a: one\n    ")
    new = changed(description="Add.\n\nArgs:\n    a: one\n")
    assert digest_tool(old) == digest_tool(new)
    assert tidy(old)["description"] == "Add.\n\nArgs:\n    a: one"
    nested = changed(inputSchema={"properties": {"description": {"description": "x\n    y"}}})
    assert tidy(nested)["inputSchema"] == {"properties": {"description": {"description": "x\ny"}}}


@pytest.mark.parametrize("odd", ["\ud800", "\x00", "é"])
def test_odd_text_has_a_digest(odd: str) -> None:
    assert digest_tool(changed(description=odd)) == digest_tool(changed(description=odd))


def test_compare_names_every_difference() -> None:
    lock = Lock("1", "p", tuple(ToolLock(n, digest_tool(changed(name=n))) for n in ("a", "b", "c")))
    assert compare(lock, [changed(name=n) for n in ("c", "b", "a")]) == []
    now = [changed(name="a"), changed(name="b", description="other"), changed(name="d")]
    assert compare(lock, now) == [
        "tool 'c' is gone",
        "tool 'd' is new",
        "tool 'b' has another description or schema",
    ]


def test_save_and_load(tmp_path: Path) -> None:
    lock = Lock("1.2", "2025-11-25", (ToolLock("a", "0" * 64, "str"), ToolLock("b", "f" * 64)))
    file = tmp_path / "lock.json"
    save_lock(file, lock)
    assert load_lock(file) == lock
    assert lock.shapes == {"a": "str"}
    assert [p.name for p in tmp_path.iterdir()] == ["lock.json"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("{", "corrupt or missing"),
        ("\xff", "corrupt or missing"),
        ("[]", "schema 'list'"),
        ('{"schema": 7}', "schema 7; this version of atlas-gym reads 1"),
        ('{"schema": 1, "protocol": "p", "tools": []}', "field 'server_version' is missing"),
        ('{"schema": 1, "server_version": "1", "protocol": "p"}', "field 'tools' is missing"),
        (
            '{"schema": 1, "server_version": 1, "protocol": "p", "tools": []}',
            "'server_version' must be a str",
        ),
        (
            '{"schema": 1, "server_version": "1", "protocol": "p", "tools": [3]}',
            "expected an object, found int",
        ),
        (
            '{"schema": 1, "server_version": "1", "protocol": "p", "tools": [{"name": "a", "digest": "12"}]}',
            "tool 'a': digest '12' is not 64 hexadecimal digits",
        ),
    ],
)
def test_a_corrupt_lock_names_file_field_and_next_step(tmp_path: Path, raw: str, words: str) -> None:
    file = tmp_path / "demo" / "lock.json"
    file.parent.mkdir()
    file.write_bytes(raw.encode("latin-1"))
    with pytest.raises(LockError) as caught:
        load_lock(file)
    message = str(caught.value)
    for part in (str(file), words, "atlas-gym servers lock demo"):
        assert part in message


def test_a_missing_lock(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="corrupt or missing"):
        load_lock(tmp_path / "lock.json")


def test_a_shape_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "lock.json"
    tool = {"name": "a", "digest": "0" * 64, "shape": {}}
    file.write_text(json.dumps({"schema": 1, "server_version": "", "protocol": "", "tools": [tool]}))
    with pytest.raises(LockError, match="tool 'a': shape must be a string or null"):
        load_lock(file)

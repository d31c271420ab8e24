"""What a call is known by: canonical arguments, the chain of earlier writes, and no secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.types import ToolCall
from atlas_gym.wire.cassette_keys import REMOVED, Secrets, Track, canonical, name_server
from atlas_gym.wire.codec import Unsendable

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)
READS = ("get", "now")


def track(setup: str = "setup", digest: str = "digest", secrets: Secrets | None = None) -> Track:
    return Track(setup, lambda name: f"{digest} of {name}", lambda _, tool: tool in READS, secrets)


def call(tool: str, /, **arguments: Any) -> ToolCall:
    return ToolCall("box", tool, arguments)


def reordered(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(list(value))}
    return tuple(reordered(item) for item in value) if isinstance(value, list) else value


@given(JSON)
def test_how_arguments_are_written_does_not_count(value: Any) -> None:
    text = canonical(value)
    assert canonical(reordered(value)) == text
    assert canonical(json.loads(json.dumps(value, indent=3, ensure_ascii=False))) == text
    assert canonical(json.loads(text)) == text
    assert text.isascii()
    assert json.loads(text) == value


@given(JSON, JSON)
def test_different_arguments_have_different_texts(one: Any, two: Any) -> None:
    assert (canonical(one) == canonical(two)) == (repr(reordered_by_key(one)) == repr(reordered_by_key(two)))


def reordered_by_key(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reordered_by_key(value[key]) for key in sorted(value)}
    return [reordered_by_key(item) for item in value] if isinstance(value, list) else value


def test_what_a_server_can_tell_apart_counts() -> None:
    pairs: list[tuple[Any, Any]] = [(1, 1.0), (1, True), (0.0, -0.0), ("é", "e\u0301"), ([1, 2], [2, 1])]
    for one, two in [*pairs, ({"a": None}, {}), ("1", 1)]:
        assert canonical(one) != canonical(two)
    assert canonical(json.loads("[1e3, 1.50, 1E-2]")) == canonical([1000.0, 1.5, 0.01])
    for bad in (float("nan"), "\ud800", {1, 2}):
        with pytest.raises(Unsendable):
            canonical({"a": bad})


@given(st.lists(st.tuples(st.sampled_from(["get", "put", "drop"]), JSON), max_size=6))
def test_keys_hang_on_the_writes_before_and_on_nothing_else(steps: list[tuple[str, Any]]) -> None:
    one, two = track(), track()
    for tool, value in steps:
        a = one.issue(call(tool, v=value))
        two.issue(call("get", extra=value))  # reading calls do not count
        b = two.issue(call(tool, v=reordered(value)))
        assert (a.key, a.history, a.writes) == (b.key, b.history, b.writes)
        assert a.writes == (tool != "get")
    assert one.history == two.history
    one.issue(call("put", v="another"))
    assert one.history != two.history
    assert one.issue(call("get")).key != two.issue(call("get")).key


def test_keys_hang_on_server_set_up_and_tool() -> None:
    base = track().issue(call("get", a=1))
    assert track().issue(ToolCall("box", "get", {"a": 1}, "check")) != base
    assert track().issue(ToolCall("box", "get", {"a": 1}, "check")).key == base.key
    others = [
        track("other").issue(call("get", a=1)),
        track(digest="other").issue(call("get", a=1)),
        track().issue(call("now", a=1)),
        track().issue(call("get", a=2)),
        track().issue(ToolCall("case", "get", {"a": 1})),
    ]
    assert len({base.key, *(other.key for other in others)}) == 6


def test_what_cannot_be_sent_is_no_write_and_has_a_key_all_the_same() -> None:
    calls = track()
    bad = calls.issue(call("put", v=float("inf")))
    assert not bad.sent
    assert not bad.writes
    assert calls.history == track().history
    assert bad.key == track().issue(call("put", v=float("inf"))).key


def test_a_servers_name_does_not_hang_on_the_order_of_its_tools() -> None:
    tools = [("a", "1" * 64), ("b", "2" * 64)]
    name = name_server("box", "box==1", tools)
    assert name == name_server("box", "box==1", reversed(tools))
    assert name != name_server("box", "box==2", tools)
    assert name != name_server("box", "box==1", [("a", "1" * 64), ("b", "3" * 64)])


def test_secrets_are_removed_everywhere() -> None:
    secrets = Secrets(["hunter22", "hunter22-long", "info", ""])
    value = {"hunter22": ["a hunter22-long b", 1, None], "level": "info"}
    assert secrets.value(value) == {REMOVED: [f"a {REMOVED} b", 1, None], "level": "info"}
    data = b"\x00hunter22\xff"
    assert secrets.data(data) == b"\x00********\xff"
    told = track(secrets=secrets).issue(call("put", key="hunter22", n=1.0))
    assert "hunter22" not in told.arguments
    assert told.key == track().issue(call("put", key=REMOVED, n=1.0)).key

"""Results as values: the order of trust, and that whatever comes out is safe JSON."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas_gym.wire.codec import MAX_DEPTH, Unreadable, Unsendable, encode, parse
from atlas_gym.wire.values import parse_text, to_value, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
ODD = [
    "NaN",
    "1e999",
    "-Infinity",
    "'\\d'",
    "[1or 2]",
    "(1)(2)",
    "{1: [2",
    "\ud800",
    "[" * 300,
    "b'x'",
    "1_0",
    "007",
]


def text(*parts: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": part} for part in parts], **more}


@pytest.mark.parametrize(
    ("given_text", "value"),
    [
        ("1025", 1025),
        (" 3.5\n", 3.5),
        ("-2", -2),
        ("true", True),
        ("False", False),
        ("None", None),
        ("null", None),
        ('"quoted"', "quoted"),
        ('{"a": [1, 2]}', {"a": [1, 2]}),
        ("{'a': (1, None, True)}", {"a": [1, None, True]}),
        ("[1, 2, ]", [1, 2]),
        ("{1: 'x'}", {"1": "x"}),
        ("['it\\'s', \"a\\n\"]", ["it's", "a\n"]),
        ("[NaN, 1e999, 1]", [None, None, 1]),
        # Text that only looks like a value.
        ("007", "007"),
        ("1_000", "1_000"),
        ("1e999", "1e999"),
        ("NaN", "NaN"),
        ("-Infinity", "-Infinity"),
        ("{1, 2}", "{1, 2}"),
        ("(1+2j)", "(1+2j)"),
        ("[b'x']", "[b'x']"),
        ("[1or 2]", "[1or 2]"),
        ("(5)", "(5)"),
        ("['\\d']", "['\\d']"),
        ("[see the docs]", "[see the docs]"),
        ("9" * 5000, "9" * 5000),
        ("2026-12-01", "2026-12-01"),
        ("1,000", "1,000"),
        ("", ""),
        ("  ", "  "),
        ("plain words", "plain words"),
    ],
)
def test_text_becomes_a_value_only_where_it_is_one(given_text: str, value: Any) -> None:
    assert parse_text(given_text) == value
    assert type(parse_text(given_text)) is type(value)


def test_deep_text_stays_text() -> None:
    for deep in ("[" * 200 + "]" * 200, "(" * 5000 + ",)" * 5000, "{'a':" * 150 + "1" + "}" * 150):
        assert parse_text(deep) == deep


@pytest.mark.parametrize(
    ("words", "structured", "shown"),
    [
        ("View ready.", {"rows": [{"id": "y", "n": 1}]}, 'View ready.\n{"rows":[{"id":"y","n":1}]}'),
        ("已保存ab。", {"id": "ab"}, "已保存ab。"),
        ("Saved.", {"result": ["x7", "y8"]}, 'Saved.\n["x7","y8"]'),
        ("The sum is 3.", {"sum": 3.0}, "The sum is 3."),
        ("1,234 rows", {"count": 1234}, "1,234 rows"),
        ("Done.", {"ok": True, "left": None}, "Done."),
        ("Done.", {}, "Done."),
        ('{"a": "b\\nc"}', {"a": "b\nc"}, '{"a": "b\\nc"}'),
    ],
)
def test_text_that_says_nothing_of_the_result_is_followed_by_it(
    words: str, structured: dict[str, Any], shown: str
) -> None:
    assert to_value(text(words, structuredContent=structured))[1] == shown


def test_structured_content_comes_first() -> None:
    assert to_value(text("It is 1.", structuredContent={"n": 1})) == ({"n": 1}, "It is 1.")
    assert to_value({"structuredContent": {"n": 1}, "content": []}) == ({"n": 1}, '{"n":1}')


def test_a_wrapped_result_is_unwrapped_but_a_tools_own_result_key_is_not() -> None:
    assert to_value(text("5", structuredContent={"result": 5}))[0] == 5
    assert to_value(text("a", "b", structuredContent={"result": ["a", "b"]}))[0] == ["a", "b"]
    assert to_value(text('{"a": 1}', structuredContent={"result": '{"a": 1}'}))[0] == {"a": 1}
    assert to_value(text("words", structuredContent={"result": "words"}))[0] == "words"
    own = {"result": 5}
    assert to_value(text(json.dumps(own), structuredContent=own))[0] == own


def test_one_block_is_its_value_and_several_are_a_list() -> None:
    assert to_value(text("[1]")) == ([1], "[1]")
    assert to_value(text('{"a": 1}', '{"a": 2}')) == ([{"a": 1}, {"a": 2}], '{"a": 1}\n{"a": 2}')
    assert to_value(text("a", "b")) == (["a", "b"], "a\nb")
    assert to_value({"content": []}) == ([], "")
    assert to_value({}) == ([], "")
    assert to_value({"content": "no list"}) == ([], "")


def test_binary_parts_become_a_description_and_a_handle() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="}
    value, shown, blobs = unpack({"content": [{"type": "text", "text": "look"}, image]})
    (blob,) = blobs
    assert (blob.size, blob.data) == (5, "aGVsbG8=")
    assert shown == f"look\n[image image/png, 5 bytes, {blob.handle}]"
    assert value == ["look", {"type": "image", "mimeType": "image/png", "bytes": 5, "handle": blob.handle}]
    assert unpack({"content": [image]})[2] == blobs


def test_resources_are_read_or_named() -> None:
    inside = {"type": "resource", "resource": {"uri": "file:///a", "text": '{"a": 1}'}}
    assert to_value({"content": [inside]})[0] == {"a": 1}
    link = {"type": "resource_link", "uri": "file:///a", "name": "a"}
    assert to_value({"content": [link]}) == ({"uri": "file:///a", "name": "a"}, "[resource a file:///a]")


def test_odd_blocks_are_kept_as_they_are() -> None:
    value, _ = to_value(
        {"content": [None, 5, {"type": "hologram"}, {"type": "text"}, {"type": "image", "data": 7}]}
    )
    assert value[:4] == [None, 5, {"type": "hologram"}, None]
    assert value[4]["bytes"] == 0


@given(JSON)
def test_any_json_text_is_read_back(value: Any) -> None:
    written = json.dumps(value)
    read = parse_text(written)
    if isinstance(value, float) and not isinstance(read, float):
        assert read == value
    else:
        assert json.dumps(read) == written or read == value


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=10))
def test_any_python_list_is_read_back(value: Any) -> None:
    if isinstance(value, list):
        assert parse_text(repr(value)) == value or "\\" in repr(value)


@given(st.text() | st.sampled_from(ODD) | st.text(alphabet="[](){}',:\"\\ 019eE+-_.TrueNaN\ud800"))
@settings(max_examples=400)
def test_whatever_the_text_the_value_is_safe_json_and_nothing_warns(odd: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, shown = to_value(text(odd))
    json.dumps(value, allow_nan=False).encode()
    shown.encode()
    json.dumps(value, ensure_ascii=False).encode()


@given(JSON)
def test_encode_and_parse_are_inverse(value: Any) -> None:
    assert parse(encode(value).decode()) == value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (math.nan, "NaN or an infinite"),
        ([math.inf], "NaN or an infinite"),
        ("\ud800", "surrogate"),
        ({"\udfff": 1}, "surrogate"),
        ({1, 2}, "no JSON value"),
        (b"x", "no JSON value"),
    ],
)
def test_what_json_cannot_carry_is_refused_with_a_lesson(value: Any, words: str) -> None:
    with pytest.raises(Unsendable, match=words):
        encode({"arguments": value})


def test_endless_and_deep_values_are_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(Unsendable, match="contains itself"):
        encode(endless)
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(Unsendable, match="too deeply"):
        encode(deep)
    with pytest.raises(Unsendable, match="too long"):
        encode(10**5000)
    with pytest.raises(Unreadable, match="deeper"):
        parse("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1))
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    with pytest.raises(Unreadable, match="thousands of digits"):
        parse("9" * 5000)


def test_lone_surrogates_and_infinities_do_not_come_in() -> None:
    assert parse(r'"\ud800x"') == "\ufffdx"
    assert parse(r'"\ud83d\ude00"') == "\U0001f600"
    assert parse("[1e999, -1e400, NaN, 1e3]") == [None, None, None, 1000.0]

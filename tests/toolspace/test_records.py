"""Lenient listings, Python names, and tolerant look-ups."""

from __future__ import annotations

import json
import keyword
import unicodedata
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas_gym.errors import UnknownNameError
from atlas_gym.toolspace import Toolset, parse_listing, schema_text, signature
from atlas_gym.toolspace.naming import MAX_LENGTH, fold, match, python_names

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


def names_of(*names: str) -> list[str]:
    listing = parse_listing("s", "", [{"name": name} for name in names])
    return [tool.python_name for tool in listing.tools]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("read_file", "read_file"),
        ("read-file", "read_file"),
        ("readFile", "readFile"),
        ("fs.read/file", "fs_read_file"),
        ("3d_plot", "tool_3d_plot"),
        ("import", "import_"),
        ("None", "None_"),
        ("match", "match"),
        ("type", "type"),
        ("list", "list"),
        ("print", "print"),
        ("_private", "private"),
        ("__class__", "class__"),
        ("__init__", "init__"),
        ("self", "self_"),
        ("météo", "météo"),
        ("天气", "天气"),
        ("ﬁle", "file"),
        ("a\u200bb", "a_b"),
        ("---", "tool"),
        ("🎉", "tool"),
        ("_", "tool"),
        ("x²", "x2"),
    ],
)
def test_python_name(name: str, expected: str) -> None:
    assert names_of(name) == [expected]


def test_names_that_collide_are_numbered_in_order_and_natural_ones_stay() -> None:
    assert names_of("a-b", "a.b", "a_b", "a b") == ["a_b_2", "a_b_3", "a_b", "a_b_4"]
    assert names_of("!", "?", "tool") == ["tool_2", "tool_3", "tool"]
    assert names_of("class", "class_") == ["class_2", "class_"]
    assert names_of("a-b", "a_b", "a_b_2") == ["a_b_3", "a_b", "a_b_2"]


def test_arguments_keep_one_leading_underscore_but_never_two() -> None:
    names = ["_meta", "__debug__", "from", "x-y", "x_y", "self", "", "1st"]
    assert list(python_names(names, "arg").values()) == [
        "_meta",
        "debug__",
        "from_",
        "x_y_2",
        "x_y",
        "self_",
        "arg",
        "arg_1st",
    ]


@UNHURRIED
@given(st.lists(st.text(max_size=120) | st.sampled_from(["a-b", "a_b", "a b", "if", "if_", "1", "_", "__x"])))
def test_naming_is_one_to_one_valid_and_repeats(names: list[str]) -> None:
    for public in (False, True):
        made = python_names(names, "arg", public=public)
        assert list(made) == list(dict.fromkeys(names))
        assert len(set(made.values())) == len(made)
        assert made == python_names(names, "arg", public=public)
        for word in made.values():
            assert word.isidentifier()
            assert not keyword.iskeyword(word)
            assert len(word) <= MAX_LENGTH
            assert not word.startswith("_" if public else "__")
            assert unicodedata.normalize("NFKC", word) == word


def test_bad_tools_are_skipped_with_a_reason_and_the_others_work() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"properties": {"a": deep}}
    listing = parse_listing(
        "s",
        "  What it\n does. ",
        [
            {"name": "good", "description": "Works.", "inputSchema": {"type": "object", "properties": {}}},
            None,
            "text",
            {"description": "no name"},
            {"name": 7},
            {"name": "  "},
            {"name": "good", "description": "again"},
            {"name": "bell\x07"},
            {"name": "half\ud800"},
            {"name": "deep", "inputSchema": deep},
            {"name": "wide", "inputSchema": {"enum": list(range(30_000))}},
            {"name": "last"},
        ],
    )
    assert [tool.name for tool in listing.tools] == ["good", "last"]
    assert listing.tools[0].description == "Works."
    assert listing.description == "What it does."
    reasons = [name for name, _ in listing.skipped]
    assert reasons == ["#1", "#2", "#3", "#4", "#5", "good", "bell\\x07", "half\\ud800", "deep", "wide"]
    assert all(reason for _, reason in listing.skipped)


@pytest.mark.parametrize(
    "raw", [None, True, 3, "object", [], ["x"], {}, {"type": None}, {"type": ["object"]}]
)
def test_odd_input_schemas_become_objects(raw: object) -> None:
    (tool,) = parse_listing("s", "", [{"name": "t", "inputSchema": raw}]).tools
    assert tool.input_schema["type"] == "object"
    assert json.loads(schema_text(tool))["parameters"]["type"] == "object"
    compile(signature(tool), "t", "exec")


def test_a_missing_schema_takes_any_argument_and_a_false_one_none() -> None:
    open_tool, closed = parse_listing("s", "", [{"name": "a"}, {"name": "b", "inputSchema": False}]).tools
    assert signature(open_tool).startswith("def a(**kwargs)")
    assert signature(closed).startswith("def b()")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"description": None, "title": "Title"}, "Title"),
        ({"description": ["list"]}, ""),
        ({"description": 5, "annotations": {"title": "Hint"}}, "Hint"),
        ({"description": "half \ud83d surrogate\x00\r\nline"}, "half \ufffd surrogate\ufffd\nline"),
        ({"description": "  padded  "}, "padded"),
    ],
)
def test_descriptions_are_text_that_can_be_encoded(raw: dict[str, Any], expected: str) -> None:
    (tool,) = parse_listing("s", "", [{"name": "t", **raw}]).tools
    assert tool.description == expected
    tool.description.encode()


def test_listings_that_are_no_lists_are_empty() -> None:
    for raw in (None, 5, "tools", b"tools"):
        assert parse_listing("s", "", raw).tools == ()  # type: ignore[arg-type]


def test_read_only_and_shapes_are_ours_and_annotations_only_hints() -> None:
    raw = [{"name": "a", "annotations": {"readOnlyHint": True}}, {"name": "b"}]
    a, b = parse_listing("s", "", raw, read_only=["b"], shapes={"a": "list[str]"}).tools
    assert (a.read_only, b.read_only) == (False, True)
    assert (a.shape, b.shape) == ("list[str]", None)
    assert a.annotations == {"readOnlyHint": True}


@UNHURRIED
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["name", "description", "inputSchema", "outputSchema", "annotations", "title"]),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
                max_leaves=8,
            ),
        )
        | st.none()
        | st.text()
    )
)
def test_no_listing_raises_and_every_tool_is_usable(raw: list[Any]) -> None:
    listing = parse_listing("s", "", raw)
    assert len(listing.tools) + len(listing.skipped) == len(raw)
    for tool in listing.tools:
        compile(signature(tool), "t", "exec")
        schema_text(tool).encode()


@pytest.fixture
def toolset() -> Toolset:
    math = parse_listing("Math MCP", "", [{"name": "add"}, {"name": "read-file"}, {"name": "Sub_2"}])
    files = parse_listing(
        "files.v2", "", [{"name": "add"}, {"name": "get.info"}, {"name": "a-b"}, {"name": "a_b"}]
    )
    return Toolset({"Math MCP": math, "files.v2": files})


@pytest.mark.parametrize("name", ["Math MCP", "math_mcp", "math-mcp", "MATHMCP"])
def test_server_names_are_tolerant(toolset: Toolset, name: str) -> None:
    assert toolset.server(name).name == "Math MCP"


@pytest.mark.parametrize(
    "name", ["read-file", "read_file", "ReadFile", "Math MCP:read-file", "math_mcp.read_file"]
)
def test_tool_names_are_tolerant(toolset: Toolset, name: str) -> None:
    assert toolset.tool("math mcp", name).name == "read-file"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("Math MCP.add", "Math MCP add"),
        ("math_mcp:sub2", "Math MCP Sub_2"),
        ("files.v2.add", "files.v2 add"),
        ("files.v2/get.info", "files.v2 get.info"),
        ("files_v2.get_info", "files.v2 get.info"),
        ("get.info", "files.v2 get.info"),
        ("read_file", "Math MCP read-file"),
        ("files.v2.a_b", "files.v2 a_b"),
        ("files.v2.a-b", "files.v2 a-b"),
    ],
)
def test_locate(toolset: Toolset, path: str, expected: str) -> None:
    tool = toolset.locate(path)
    assert f"{tool.server} {tool.name}" == expected


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("add", "Several servers have a tool 'add'; say which: Math MCP.add, files.v2.add."),
        ("math_mcp.ad", "Server 'Math MCP' has no tool 'ad'. Did you mean 'add'?"),
        ("Math MCP", "'Math MCP' is a server, not a tool. Its tools: Math MCP.add,"),
        ("nothing.like", "Unknown tool 'nothing.like'."),
        ("", "Unknown tool ''."),
    ],
)
def test_locate_teaches(toolset: Toolset, path: str, part: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        toolset.locate(path)
    assert part in str(error.value)


def test_unknown_names_say_the_closest_and_what_there_is(toolset: Toolset) -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'Math MCP'\? Known: Math MCP, files.v2"):
        toolset.server("maths")
    with pytest.raises(
        UnknownNameError, match=r"Did you mean 'read_file'\? Its tools: add, read_file, Sub_2\."
    ):
        toolset.tool("Math MCP", "read_fil")
    many = Toolset([parse_listing("s", "", [{"name": f"tool_number_{i}"} for i in range(500)])])
    with pytest.raises(UnknownNameError, match=r"and \d+ more\.$"):
        many.tool("s", "zzz")


def test_ambiguous_spellings_are_not_guessed(toolset: Toolset) -> None:
    with pytest.raises(UnknownNameError):
        toolset.tool("files.v2", "A B")
    assert match("x", ["X-", "x_", "y"]) is None
    assert match("---", ["***"]) is None
    assert fold("Straße-1") == "strasse1"


def test_only_and_count(toolset: Toolset) -> None:
    assert toolset.count == 7
    assert list(toolset.only(["files_v2"]).servers) == ["files.v2"]
    assert [tool.name for tool in toolset.only(["math mcp"])] == ["add", "read-file", "Sub_2"]
    with pytest.raises(UnknownNameError):
        toolset.only(["nope"])

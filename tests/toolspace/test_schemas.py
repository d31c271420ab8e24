"""Schemas as servers out there write them: odd references, alternatives, needs, sizes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas_gym.toolspace import Tool, headline, parse_listing, schema_text, signature
from atlas_gym.toolspace.schema import compact, parameters, references, target
from atlas_gym.toolspace.signatures import bind

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

STR = {"type": "string"}
INT = {"type": "integer"}


def tool(schema: Any) -> Tool:
    (made,) = parse_listing("s", "", [{"name": "f", "inputSchema": schema}]).tools
    return made


def takes(schema: Any, root: dict[str, Any] | None = None) -> str:
    """The type of the one argument `x` of a tool."""
    line = headline(tool({"properties": {"x": schema}, "required": ["x"], **(root or {})}))
    return line.removeprefix("f(x: ").removesuffix(") -> Any")


@pytest.mark.parametrize(
    ("reference", "definition"),
    [
        ({"$ref": "#thing"}, {"$anchor": "thing"}),
        ({"$ref": "#thing"}, {"$id": "#thing"}),
        ({"$ref": "Thing"}, {"$id": "Thing"}),
        ({"$ref": "https://example.org/thing"}, {"$id": "https://example.org/thing"}),
        ({"$ref": "#/$defs/a%20b~1c"}, {}),
        ({"$dynamicRef": "#thing"}, {"$dynamicAnchor": "thing"}),
    ],
)
def test_references_by_name_are_followed_and_their_definitions_kept(
    reference: dict[str, Any], definition: dict[str, Any]
) -> None:
    root = {
        "$defs": {"a b/c": {"type": "integer", **definition}, "unused": {"items": {"$ref": "#/$defs/unused"}}}
    }
    assert takes(reference, root) == "int"
    shown = json.loads(schema_text(tool({"properties": {"x": reference}, **root})))["parameters"]
    assert list(shown["$defs"]) == ["a b/c"]
    assert takes(shown["properties"]["x"], {"$defs": shown["$defs"]}) == "int"


def test_a_name_that_nothing_has_is_anything_and_not_the_whole_schema() -> None:
    assert takes({"$ref": "#nowhere"}) == "Any"
    assert takes({"$ref": "other.json#/$defs/A"}, {"$defs": {"A": INT}}) == "Any"
    assert takes({"$ref": "own.json#/$defs/A"}, {"$id": "own.json", "$defs": {"A": INT}}) == "int"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, 'Literal["a", "b"]'),
        ({"anyOf": [{"const": 1}, {"enum": ["b"]}, {"type": "null"}]}, 'Literal[1, "b"] | None'),
        ({"type": "STRING"}, "str"),
        ({"type": ["String", "NULL"]}, "str | None"),
        (
            {"type": "object", "patternProperties": {"^x": INT}, "additionalProperties": False},
            "dict[str, int]",
        ),
        ({"patternProperties": {"^x": INT, "^y": STR}}, "dict[str, int | str]"),
        (
            {
                "type": "object",
                "properties": {"id": STR},
                "required": ["id"],
                "oneOf": [{"properties": {"r": INT}}, {"properties": {"w": INT}, "required": ["w"]}],
            },
            '{"r?": int, "id": str} | {"w": int, "id": str}',
        ),
    ],
)
def test_types(schema: Any, expected: str) -> None:
    assert takes(schema) == expected


def test_many_alternatives_and_long_values_are_cut_between_values() -> None:
    many = takes({"anyOf": [{"const": i} for i in range(61)]})
    assert many == f"Literal[{', '.join(map(str, range(60)))}, ...]"
    long = takes({"enum": [f"{i}" * 1_500 for i in range(9)]})
    assert long == f'Literal["{"0" * 1_500}", ...]'


def test_what_tells_alternatives_apart_may_be_any_of_them() -> None:
    shapes = [
        {"properties": {"kind": {"const": "circle"}, "size": INT}, "required": ["kind", "size"]},
        {"properties": {"kind": {"const": "text"}, "size": STR, "font": STR}, "required": ["kind"]},
    ]
    assert headline(tool({"oneOf": shapes})) == (
        'f(kind: Literal["circle", "text"], size: int | str = ..., font: str = ...) -> Any'
    )
    said = {
        "properties": {"kind": {**STR, "description": "What."}, "size": {"type": "number"}},
        "oneOf": shapes,
    }
    text = signature(tool(said))
    assert 'f(kind: Literal["circle", "text"], size: float = ..., font: str = ...)' in text
    assert "kind: What." in text


def test_what_is_needed_together_is_said() -> None:
    made = tool(
        {
            "properties": {"id": STR, "name": STR, "from": INT, "to": INT},
            "anyOf": [{"required": ["id"]}, {"required": ["name", "from"]}],
            "dependentRequired": {"from": ["to"]},
        }
    )
    assert "(needs id or name and from; from needs to)" in signature(made)


def test_exact_sizes_encodings_meanings_and_warnings_are_said() -> None:
    text = signature(
        tool(
            {
                "properties": {
                    "code": {**STR, "minLength": 2, "maxLength": 2},
                    "one": {"type": "array", "minItems": 1, "maxItems": 1},
                    "data": {**STR, "contentEncoding": "base64"},
                    "old": {**STR, "deprecated": True},
                    "mode": {
                        "oneOf": [
                            {"const": "r", "description": "Read."},
                            {"const": "w", "description": "Write."},
                        ]
                    },
                }
            }
        )
    )
    for line in (
        "code: (exactly 2 characters)",
        "one: (exactly 1 item)",
        "data: (encoded as base64)",
        "old: (deprecated)",
        'mode: ("r": Read.; "w": Write.)',
    ):
        assert line in text


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ([{"name": "a"}], "f(**kwargs) -> Any"),
        ("none", "f(**kwargs) -> Any"),
        ([], "f() -> Any"),
        (None, "f() -> Any"),
    ],
)
def test_unreadable_properties_leave_a_tool_open_and_empty_ones_do_not(
    properties: Any, expected: str
) -> None:
    assert headline(tool({"type": "object", "properties": properties})) == expected


def test_json_is_bounded_and_holds_no_rubbish() -> None:
    shown = json.loads(
        schema_text(
            tool(
                {
                    "properties": {
                        "a": {"type": "string", "description": "d" * 100_000, "default": "x" * 5_000},
                        "b": {"type": "string", "description": 7, "default": "kept"},
                    },
                    "required": ["a", 7, None],
                }
            )
        )
    )["parameters"]
    assert len(shown["properties"]["a"].pop("description")) == 2_000
    assert shown["properties"] == {"a": STR, "b": {**STR, "default": "kept"}}
    assert shown["required"] == ["a"]


POINTERS = st.sampled_from(
    [
        "#",
        "#/$defs/A",
        "#/$defs/B",
        "#/definitions/A",
        "#/$defs/A/items",
        "#x",
        "y",
        "y#",
        "z#/$defs/A",
        "#/$defs/C~1%20D",
    ]
)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    definitions = st.dictionaries(st.sampled_from(["A", "B", "C/ D"]), inner)
    names = st.sampled_from(["a", "b", "a-b", "from", "A", ""])
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["string", "OBJECT", "array", ["integer", "null"], 7]),
            "$ref": POINTERS,
            "$dynamicRef": POINTERS,
            "$anchor": st.sampled_from(["x", "w"]),
            "$id": st.sampled_from(["y", "z", "#x"]),
            "properties": st.dictionaries(names, inner, max_size=3),
            "required": st.lists(names | st.none(), max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=3),
            "oneOf": st.lists(inner, max_size=3),
            "allOf": st.lists(inner, max_size=2),
            "if": inner,
            "then": inner,
            "patternProperties": st.dictionaries(st.just("^p"), inner),
            "dependentRequired": st.dictionaries(names, st.lists(names)),
            "enum": st.lists(st.sampled_from(["v", 1, None, 2.5, True]), max_size=3),
            "const": st.sampled_from(["v", None, 0]),
            "$defs": definitions,
            "definitions": definitions,
        },
    )


SCHEMAS = st.recursive(st.sampled_from([{}, True, False, STR, INT]), keywords, max_leaves=16)


@UNHURRIED
@given(keywords(SCHEMAS))
def test_compact_schemas_lose_nothing_that_is_referred_to(schema: dict[str, Any]) -> None:
    small = compact(schema)
    for pointer in references(small):
        before, after = target(pointer, schema), target(pointer, small)
        assert set(after) <= set(before)
        assert set(before) - set(after) <= {"$id", "$defs", "definitions"}


@UNHURRIED
@given(keywords(SCHEMAS))
def test_every_argument_has_one_name_that_leads_back_to_it(schema: dict[str, Any]) -> None:
    made = tool(schema)
    known = parameters(made.input_schema).items
    assert len({p.python_name for p in known}) == len(known)
    given_ = {p.python_name: i for i, p in enumerate(known)}
    assert bind(made, (), given_) == {p.name: i for i, p in enumerate(known)}
    assert bind(made, range(len(known)), {}) == {p.name: i for i, p in enumerate(known)}
    compile(signature(made), "f", "exec")
    json.loads(schema_text(made))

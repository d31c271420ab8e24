"""Schemas as Python signatures and as JSON: each form by hand, then anything at all."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas_gym.toolspace import Tool, headline, parse_listing, schema_text, signature
from atlas_gym.toolspace.shapes import literal
from atlas_gym.toolspace.signatures import summary

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


def tool(schema: Any, name: str = "f", **more: Any) -> Tool:
    (made,) = parse_listing("s", "", [{"name": name, "inputSchema": schema, **more}]).tools
    return made


def arguments(*required: str, root: dict[str, Any] | None = None, **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required), **(root or {})}
    return tool(schema)


def doc(made: Tool) -> str:
    """The docstring, as Python reads it."""
    node = ast.parse(signature(made)).body[-1]
    assert isinstance(node, ast.FunctionDef)
    return ast.get_docstring(node) or ""


STR = {"type": "string"}
INT = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (STR, "str"),
        (INT, "int"),
        ({"type": "number"}, "float"),
        ({"type": "boolean"}, "bool"),
        ({"type": "null"}, "None"),
        ({"type": "object"}, "dict"),
        ({"type": "array"}, "list"),
        ({}, "Any"),
        (True, "Any"),
        (None, "Any"),
        ("string", "str"),
        ({"type": "str"}, "str"),
        ({"type": "wonder"}, "Any"),
        ({"type": 5}, "Any"),
        ({"enum": ["a", 'b"c', "it's"]}, 'Literal["a", \'b"c\', "it\'s"]'),
        ({"enum": [1, "x", True, None]}, 'Literal[1, "x", True] | None'),
        ({"enum": [1.5, {"a": 1}, []]}, "float | dict | list"),
        ({"enum": []}, "Any"),
        (
            {"enum": [str(i) for i in range(61)]},
            f"Literal[{', '.join(literal(str(i)) for i in range(60))}, ...]",
        ),
        ({"const": "only"}, 'Literal["only"]'),
        ({"const": None}, "None"),
        ({"type": ["string", "null"]}, "str | None"),
        ({"type": ["null", "integer", "string"]}, "int | str | None"),
        ({"type": "string", "nullable": True}, "str | None"),
        ({"anyOf": [STR, {"type": "null"}]}, "str | None"),
        ({"oneOf": [{"type": "null"}, STR, INT, STR]}, "str | int | None"),
        ({"anyOf": [{"anyOf": [STR, {"type": "null"}]}, {"type": "null"}]}, "str | None"),
        ({"anyOf": [STR, {}]}, "Any"),
        ({"anyOf": [STR, True]}, "Any"),
        ({"anyOf": []}, "Any"),
        ({"anyOf": "broken"}, "Any"),
        ({"type": "array", "items": STR}, "list[str]"),
        ({"items": {"items": INT}}, "list[list[int]]"),
        ({"type": "array", "items": True}, "list"),
        ({"type": "array", "prefixItems": [STR, INT]}, "tuple[str, int]"),
        ({"type": "array", "items": [STR, INT]}, "tuple[str, int]"),
        ({"type": "array", "items": {"enum": ["a"]}}, 'list[Literal["a"]]'),
        ({"type": "object", "additionalProperties": INT}, "dict[str, int]"),
        ({"type": "object", "additionalProperties": True}, "dict"),
        ({"properties": {"a": STR, "b-c": INT}, "required": ["a"]}, '{"a": str, "b-c?": int}'),
        ({"properties": "broken", "required": ["a"]}, '{"a": Any}'),
        ({"properties": {"a": {"type": "string", "required": True}}}, '{"a": str}'),
        (
            {"properties": {"a": STR}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            '{"a?": str}',
        ),
        (
            {"allOf": [{"properties": {"a": STR}}, {"properties": {"b": INT}, "required": ["b"]}]},
            '{"a?": str, "b": int}',
        ),
        ({"allOf": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}]}, 'Literal["b"]'),
        ({"pattern": "^a$"}, "str"),
        ({"minimum": 1}, "float"),
        ({"not": STR}, "Any"),
        ({"$ref": "#/nowhere"}, "Any"),
        ({"$ref": "https://example.org/schema"}, "Any"),
        ({"$ref": 7}, "Any"),
    ],
)
def test_types(schema: Any, expected: str) -> None:
    made = arguments("x", x=schema)
    assert headline(made) == f"f(x: {expected}) -> Any"
    compile(signature(made), "f", "exec")


def test_required_first_then_defaults_and_what_the_server_decides() -> None:
    made = arguments(
        "z",
        "a",
        b={"type": "integer", "default": 3},
        a=STR,
        c=STR,
        d={"type": "string", "default": None},
        e={"type": "integer", "default": "wrong type"},
        f={"type": "array", "items": STR, "default": ["x", "y"]},
        g={"default": {"k": [1, True, None]}},
        z=INT,
        h={"type": "number", "default": float("nan")},
        i={"type": "string", "default": "l" * 100},
    )
    assert headline(made) == (
        'f(a: str, z: int, b: int = 3, c: str = ..., d: str = None, e: int = "wrong type", '
        'f: list[str] = ["x", "y"], g: Any = {"k": [1, True, None]}, h: float = float("nan"), '
        "i: str = ...) -> Any"
    )
    assert f'i: (default "{"l" * 100}")' in doc(made)


def test_required_names_that_are_not_described_are_arguments_too() -> None:
    assert headline(arguments("ghost", a=STR)) == "f(ghost: Any, a: str = ...) -> Any"


def test_names_that_python_cannot_have_are_explained() -> None:
    made = arguments("from", "a-b", **{"from": STR, "a-b": INT, "a_b": INT, "_meta": {}})
    assert headline(made) == "f(from_: str, a_b_2: int, a_b: int = ..., _meta: Any = ...) -> Any"
    assert "from_: (the server's 'from')" in doc(made)
    assert "a_b_2: (the server's 'a-b')" in doc(made)


def test_bounds_descriptions_and_examples_are_in_the_docstring() -> None:
    made = tool(
        {
            "properties": {
                "n": {"type": "integer", "minimum": 1, "maximum": 9, "description": "How\n  many."},
                "low": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 5},
                "text": {
                    "type": "string",
                    "minLength": 2,
                    "maxLength": 8,
                    "pattern": r"^\d+$",
                    "format": "date",
                },
                "some": {
                    "anyOf": [
                        {"type": "array", "items": {"type": "integer", "minimum": 0}, "maxItems": 3},
                        {"type": "null"},
                    ]
                },
                "word": {"type": "string", "minLength": 1, "examples": ["hi"]},
                "safe": {"type": "integer", "minimum": -(2**53 - 1), "maximum": 2**53 - 1},
                "flag": {"type": "boolean", "minimum": True},
                "told": {"type": "string", "description": "Told before."},
            }
        },
        description="Does it.\n\n   Told before.   \n",
    )
    assert doc(made).splitlines() == [
        "Does it.",
        "Told before.",
        "n: How many. (1 to 9)",
        "low: (> 0; multiple of 5)",
        "text: (2 to 8 characters; matches ^\\d+$; format date)",
        "some: (<= 3 items; each >= 0)",
        'word: (not empty; e.g. "hi")',
    ]


def test_nested_fields_are_described_under_their_path() -> None:
    item = {"properties": {"id": {"type": "integer", "description": "Its id.", "default": 7}}}
    made = arguments(
        box={"properties": {"lid": {"type": "string", "description": "The lid."}}},
        many={"type": "array", "items": item},
        either={"anyOf": [item, {"type": "null"}]},
    )
    assert doc(made).splitlines() == [
        "box.lid: The lid.",
        "many[].id: Its id. (default 7)",
        "either.id: Its id. (default 7)",
    ]


def test_shared_and_recursive_shapes_get_a_name() -> None:
    node = {
        "type": "object",
        "properties": {"value": INT, "children": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
        "required": ["value"],
    }
    small = {"type": "string", "enum": ["a", "b"]}
    made = arguments(
        "tree",
        tree={"$ref": "#/$defs/Node"},
        one={"$ref": "#/$defs/Small", "description": "One."},
        two={"$ref": "#/$defs/Small"},
        root={"$defs": {"Node": node, "Small": small}},
    )
    assert signature(made).splitlines() == [
        'Node = {"value": int, "children?": list["Node"]}',
        'def f(tree: Node, one: Literal["a", "b"] = ..., two: Literal["a", "b"] = ...) -> Any:',
        '    """one: One."""',
    ]


@pytest.mark.parametrize(
    "defs",
    [
        {"A": {"$ref": "#/$defs/A"}},
        {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
        {"A": {"anyOf": [{"$ref": "#/$defs/A"}, STR]}},
        {"A": {"allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}},
        {
            "A": {"properties": {"b": {"$ref": "#/$defs/B"}}},
            "B": {"properties": {"a": {"$ref": "#/$defs/A"}}},
        },
        {"A": {"$ref": "#"}},
        {"A": {"$ref": "#/properties/x"}},
        {"A": {"items": {"$ref": "#/$defs/A"}}},
    ],
)
def test_references_in_circles_end(defs: dict[str, Any]) -> None:
    made = arguments("x", x={"$ref": "#/$defs/A"}, root={"$defs": defs})
    text = signature(made)
    compile(text, "f", "exec")
    assert len(text) < 500


def test_references_that_multiply_stay_small() -> None:
    defs: dict[str, Any] = {f"D{i}": {"allOf": [{"$ref": f"#/$defs/D{i + 1}"}] * 8} for i in range(30)}
    defs |= {
        f"E{i}": {"properties": {k: {"$ref": f"#/$defs/E{i + 1}"} for k in "abcdefgh"}} for i in range(60)
    }
    made = arguments(x={"$ref": "#/$defs/D0"}, y={"$ref": "#/$defs/E0"}, root={"$defs": defs})
    compile(signature(made), "f", "exec")
    assert len(signature(made)) < 100_000


def test_shapes_are_not_named_like_types_or_each_other() -> None:
    long = {"properties": {f"field_{i}": STR for i in range(6)}}
    made = arguments(
        a={"$ref": "#/$defs/str"},
        b={"$ref": "#/$defs/str"},
        c={"$ref": "#/definitions/str"},
        d={"$ref": "#/definitions/str"},
        root={"$defs": {"str": long}, "definitions": {"str": long}},
    )
    assert headline(made) == "f(a: str_2 = ..., b: str_2 = ..., c: str_3 = ..., d: str_3 = ...) -> Any"


def test_arguments_behind_alternatives_conditions_and_references_at_the_top() -> None:
    either = tool({"anyOf": [{"properties": {"a": STR, "b": INT}, "required": ["a"]}, {"required": ["a"]}]})
    assert headline(either) == "f(a: str, b: int = ...) -> Any"
    when = tool(
        {
            "properties": {"kind": STR},
            "required": ["kind"],
            "allOf": [{"if": {}, "then": {"$ref": "#/$defs/T"}, "else": {"properties": {"c": INT}}}],
            "$defs": {"T": {"properties": {"kind": STR, "b": INT}, "required": ["b"]}},
        }
    )
    assert headline(when) == "f(kind: str, b: int = ..., c: int = ...) -> Any"
    there = tool({"$ref": "#/$defs/Args", "$defs": {"Args": {"properties": {"a": STR}, "required": ["a"]}}})
    assert headline(there) == "f(a: str) -> Any"


def test_open_arguments() -> None:
    assert headline(tool({"properties": {"kwargs": STR}, "additionalProperties": INT})) == (
        "f(kwargs: str = ..., **other) -> Any"
    )
    assert headline(tool({"properties": {}, "additionalProperties": False})) == "f() -> Any"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "Any"),
        ({"outputSchema": {"properties": {"id": INT}, "required": ["id"]}}, '{"id": int}'),
        ({"outputSchema": {"properties": {"result": {"type": "array", "items": STR}}}}, "list[str]"),
        ({"outputSchema": "broken"}, "Any"),
        ({"outputSchema": {"properties": {"n": {"$ref": "#"}, "m": {"$ref": "#"}}}}, "dict"),
        ({"outputSchema": {"properties": {f"field_{i}": STR for i in range(50)}}}, "dict"),
    ],
)
def test_returns(more: dict[str, Any], expected: str) -> None:
    assert headline(tool({}, **more)).endswith(f" -> {expected}")


def test_the_observed_shape_comes_before_the_declared_one() -> None:
    raw = {"name": "f", "outputSchema": {"type": "object"}}
    (made,) = parse_listing("s", "", [raw], shapes={"f": '[{"id": int}]'}).tools
    assert signature(made).startswith('def f(**kwargs) -> [{"id": int}]:')
    (made,) = parse_listing("s", "", [raw], shapes={"f": '{"id": int, ...}'}).tools
    assert signature(made).splitlines() == ["def f(**kwargs):", '    """Returns: {"id": int, ...}"""']


@pytest.mark.parametrize(
    "text",
    [
        'ends with "',
        'has """ inside',
        "back\\slash \\d",
        "ends \\",
        '"',
        "line\n\n\n  indented\n",
        "\u2028 sep \x85",
    ],
)
def test_docstrings_read_back(text: str) -> None:
    made = tool({}, description=text)
    compile(signature(made), "f", "exec")
    wanted = [line.strip() for line in text.replace('"""', "'''").splitlines() if line.strip()]
    assert [line.strip() for line in doc(made).splitlines() if line.strip()] == wanted


def test_long_texts_are_bounded() -> None:
    made = tool(
        {
            "properties": {
                f"p{i}": {"type": "string", "description": f"{i} " + "x" * 5_000} for i in range(200)
            }
        },
        description="y" * 100_000,
    )
    assert len(signature(made)) < 2_200 + 60 * 320 + 200 * 30
    assert len(summary(made)) == 100
    assert summary(tool({}, description="First one. Second.")) == "First one."


def test_json_text_is_compact_and_keeps_the_meaning() -> None:
    made = tool(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "fArguments",
            "type": "object",
            "properties": {
                "title": {"title": "Title", "type": "string", "description": "The\n   title."},
                "const": {"const": {"title": "kept"}},
                "ref": {"$ref": "#/$defs/Used"},
            },
            "$defs": {"Used": {"title": "Used", "type": "integer"}, "Unused": STR},
        },
        description="Über 天气.",
    )
    assert schema_text(made) == (
        '{"name":"f","description":"Über 天气.","parameters":{"type":"object","properties":'
        '{"title":{"type":"string","description":"The title."},"const":{"const":{"title":"kept"}},'
        '"ref":{"$ref":"#/$defs/Used"}},"$defs":{"Used":{"type":"integer"}}}}'
    )
    assert json.loads(schema_text(tool({})))["parameters"] == {"type": "object"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.text(max_size=8) | st.sampled_from(["a", "from", "a-b", "a_b", "self", "kwargs", "title", "_meta"])


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    kinds = st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object", "odd"])
    named = st.dictionaries(NAMES, inner, max_size=3)
    several = st.lists(inner, max_size=3)
    bound = st.integers() | st.floats() | st.text(max_size=3) | st.none()
    known: dict[str, st.SearchStrategy[Any]] = {
        "type": kinds | st.lists(kinds, max_size=3) | JSON,
        "description": st.text(max_size=40) | JSON,
        "default": JSON,
        "enum": st.lists(JSON, max_size=4) | JSON,
        "const": JSON,
        "examples": JSON,
        "properties": named | JSON,
        "required": st.lists(NAMES, max_size=3) | JSON,
        "additionalProperties": inner | st.booleans(),
        "items": inner | several,
        "prefixItems": several,
        "anyOf": several | JSON,
        "oneOf": several,
        "allOf": several | JSON,
        "then": inner,
        "$ref": st.sampled_from(
            ["#", "#/$defs/A", "#/$defs/B", "#/properties/a", "#/nope", "x", "#/$defs/A/items/0"]
        )
        | JSON,
        "$defs": st.dictionaries(st.sampled_from(["A", "B"]), inner) | JSON,
        "nullable": st.booleans(),
        "minimum": bound,
        "maximum": bound,
        "minLength": bound,
        "maxItems": bound,
        "pattern": st.text(max_size=10),
    }
    return st.fixed_dictionaries({}, optional=known)


SCHEMAS: st.SearchStrategy[Any] = st.recursive(JSON, keywords, max_leaves=12)


@UNHURRIED
@given(SCHEMAS, SCHEMAS, st.text(max_size=80), NAMES)
def test_any_schema_gives_a_signature_that_compiles(
    schema: Any, output: Any, description: str, name: str
) -> None:
    raw = {"name": name or "f", "description": description, "inputSchema": schema, "outputSchema": output}
    for made in parse_listing("s", "", [raw]).tools:
        text = signature(made)
        tree = ast.parse(text)
        assert isinstance(tree.body[-1], ast.FunctionDef)
        assert tree.body[-1].name == made.python_name
        text.encode()
        assert "\n" not in headline(made)
        assert json.loads(schema_text(made))["name"] == made.name


@UNHURRIED
@given(JSON)
def test_literals_mean_the_same(value: Any) -> None:
    namespace: dict[str, Any] = {"float": float}
    assert json.dumps(eval(literal(value), namespace), sort_keys=True) == json.dumps(value, sort_keys=True)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.errors import LockError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.manifest import Manifest
from atlas_gym.toolspace.examples import Examples, fill, load_examples
from atlas_gym.toolspace.observed import shape_of


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ([], "Any"),
        (["text"], "str"),
        ([None], "None"),
        ([True], "bool"),
        ([1], "int"),
        ([1, 2.5], "float"),
        ([1, None, "a"], "int | str | None"),
        ([[]], "list"),
        ([{}], "dict"),
        ([[1, "a"]], "list[int | str]"),
        ([{"id": "x", "items": [{"name": "n"}]}], '{"id": str, "items": list[{"name": str}]}'),
        ([{"a": 1}, {"a": 2, "b": None}], '{"a": int, "b?": None}'),
        ([[{"a": 1}, {"b": "x"}]], 'list[{"a?": int, "b?": str}]'),
        ([{"4WQ150": 1}, {"x": 2}], "dict[str, int]"),
        ([{"card_4421486": {"kind": "visa"}}], 'dict[str, {"kind": str}]'),
        ([{"A2": "x", "B3": "y"}], "dict[str, str]"),
        ([{"Sales 2024": [1]}], "dict[str, list[int]]"),
        ([{"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}], '{"a": {"b": {"c": {"d": {"e": dict}}}}}'),
    ],
)
def test_shapes(values: list[Any], shape: str) -> None:
    assert shape_of(values) == shape


def test_long_shapes_lose_their_depth_first() -> None:
    value = {f"field_{c}": {f"{c}_{d}": 1 for d in "abcdefghijklmnop"} for c in "abcdefgh"}
    assert shape_of([value]) == "{" + ", ".join(f'"field_{c}": dict' for c in "abcdefgh") + "}"


def test_many_keys_are_data() -> None:
    assert shape_of([{f"k{chr(97 + i // 26)}{chr(97 + i % 26)}": 1 for i in range(60)}]) == "dict[str, int]"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.lists(JSON, max_size=3))
def test_every_shape_is_short_and_compiles(values: list[Any]) -> None:
    text = shape_of(values)
    assert len(text) <= 600
    compile(f"x: {text}", "<shape>", "exec")


def test_fill_takes_values_from_earlier_results() -> None:
    saved = {"made": {"id": "x1", "items": [{"n": 5}]}}
    arguments = {
        "id": "$made.id",
        "list": ["$made.items.0.n"],
        "all": "$made",
        "price": "$5",
        "to": "$who.id",
    }
    assert fill(arguments, saved) == {
        "id": "x1",
        "list": [5],
        "all": saved["made"],
        "price": "$5",
        "to": "$who.id",
    }


@pytest.mark.parametrize("reference", ["$made.nope", "$made.items.3", "$made.items.x", "$made.id.0.y"])
def test_fill_names_what_is_not_there(reference: str) -> None:
    with pytest.raises(LockError, match=r"examples\.toml"):
        fill({"a": reference}, {"made": {"id": "x1", "items": []}})


def server(folder: Path | None) -> Server:
    manifest = Manifest(
        name="a", description="", registry="user", command=("a",), state="none", state_bound="call"
    )
    return Server(manifest, folder)


def test_examples_may_be_missing(tmp_path: Path) -> None:
    assert load_examples(server(None)) == Examples()
    assert load_examples(server(tmp_path)) == Examples()


@pytest.mark.parametrize("text", ["calls = 3", "[[calls]]\ntool = 1", "call = []", "="])
def test_wrong_examples_name_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "examples.toml").write_text(text)
    with pytest.raises(LockError, match=r"examples\.toml: not a list of example calls"):
        load_examples(server(tmp_path))

"""The random floor: arguments that have the schema's form, the same for the same seed."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.env.world import World, WorldConfig
from atlas_gym.rollout.play import Job, play_all
from atlas_gym.rollout.random_policy import draw_arguments, random_calls, words_of
from atlas_gym.rollout.variants import VARIANTS

SCHEMAS: list[dict[str, Any]] = [
    {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"]},
    {"properties": {"a": {"type": "integer", "minimum": 3, "maximum": 5}}, "required": ["a"]},
    {"properties": {"a": {"type": "integer", "minimum": 1000}}, "required": ["a"]},
    {"properties": {"a": {"type": "number", "maximum": -7.5}}, "required": ["a"]},
    {"properties": {"a": {"enum": ["x", 1, None]}, "b": {"const": 4}}, "required": ["a", "b"]},
    {"properties": {"a": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}}, "required": ["a"]},
    {"properties": {"a": {"type": ["string", "null"]}}, "required": ["a"]},
    {
        "properties": {"a": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}},
        "required": ["a"],
    },
    {
        "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/point"}}},
        "required": ["a"],
        "$defs": {
            "point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        },
    },
    {
        "properties": {"a": {"allOf": [{"type": "object"}, {"properties": {"b": {"type": "string"}}}]}},
        "required": ["a"],
    },
]


@pytest.mark.parametrize("schema", SCHEMAS)
@given(seed=st.integers(0, 10_000))
def test_drawn_arguments_satisfy_the_schema(schema: dict[str, Any], seed: int) -> None:
    made = draw_arguments(schema, random.Random(seed))
    jsonschema.validate(made, {"type": "object", **schema})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"properties": {"a": True}, "required": ["a"]},
        {"properties": {"a": {"$ref": "elsewhere.json"}}, "required": ["a"]},
        {"properties": {"a": {"$ref": "#/properties/a"}}, "required": ["a"]},
        {"properties": {"a": {"type": []}, "b": {"enum": []}}, "required": ["a", "b"]},
    ],
)
def test_odd_schemas_still_give_something(schema: dict[str, Any]) -> None:
    made = draw_arguments(schema, random.Random(0))
    assert set(made) == set(schema.get("required", ()))


def test_words_come_from_the_task() -> None:
    words = words_of("Read '/workspace/a b.txt' and mail \"Ann Lee\" about order 1234.")
    assert "Ann Lee" in words
    assert "/workspace/a b.txt" in words
    assert "1234" in words


def test_random_episodes_repeat_and_earn_little_in_every_variant() -> None:
    world = World.shared(WorldConfig(suite="toy", runtime="memory"))
    task = world.suite.get("toy/take_some-0000")
    jobs = [
        Job(lambda v=v: v.episode(world, task), random_calls(seed=3))  # type: ignore[misc]
        for v in VARIANTS
        for _ in range(2)
    ]
    played = play_all(jobs)
    for first, second in zip(played[::2], played[1::2], strict=True):
        assert [t.text for t in first.turns] == [t.text for t in second.turns]
        assert [t.observation for t in first.turns] == [t.observation for t in second.turns]
        assert first.policy == "random"
        assert first.stop == "answer"
        assert first.reward <= 0.2
        made = [r for turn in first.turns for r in turn.results]
        assert len(made) == 12
        assert not [r for r in made if r.outcome in ("refused", "crashed", "timeout")]

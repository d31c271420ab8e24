"""What a gold program uses, the loads that make it known, and how its failures show."""

from __future__ import annotations

import json

import pytest

from atlas_gym.env.episode import Episode
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.errors import TaskError
from atlas_gym.rollout.gold import call_text, gold, loads, tools_used
from atlas_gym.rollout.play import Job, play_all
from atlas_gym.rollout.variants import VARIANTS, variant
from atlas_gym.task.model import Task


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ('a = MCPServer("x")\na.one()\na.two()\na.one()', {"x": ["one", "two"]}),
        ('MCPServer("x").one()', {"x": ["one"]}),
        ('a, b = MCPServer("x"), MCPServer("y")\nb.two(a.one())', {"x": ["one"], "y": ["two"]}),
        ('a, n = (MCPServer("x"), 3)\nprint(n.real, a.one())', {"x": ["one"]}),
        ('for i in [1]:\n    a = MCPServer("x")\n    a.one()', {"x": ["one"]}),
        ("print(1)", {}),
    ],
)
def test_tools_used(program: str, expected: dict[str, list[str]]) -> None:
    assert tools_used(program) == expected


def test_a_program_that_is_not_python_is_named() -> None:
    with pytest.raises(TaskError, match="not Python"):
        tools_used("a = (")


@pytest.mark.parametrize(("exposure", "steps"), [("eager", 0), ("servers", 1), ("tools", 2), ("search", 2)])
def test_loads_per_exposure(exposure: str, steps: int) -> None:
    assert len(loads(exposure, {"x": ["one"], "y": ["two"]})) == steps


def test_call_text_is_one_tool_call_with_its_own_name_key() -> None:
    text = call_text("call_tool", server="s", tool="t", arguments={"name": "ü"})
    body = json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    assert body == {
        "name": "call_tool",
        "arguments": {"server": "s", "tool": "t", "arguments": {"name": "ü"}},
    }


def world() -> World:
    return World.shared(WorldConfig(suite="toy", runtime="memory"))


def with_gold(program: str) -> Task:
    return world().suite.get("toy/take_some-0000").model_copy(update={"gold": program})


@pytest.mark.parametrize("name", ["tools/json", "tools/code"])
@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ('k = MCPServer("kitchen")\nk.take(item="gold", grams=1)\nanswer("x")', "cannot take"),
        ('k = MCPServer("kitchen")\nk.amount(item="salt")', "no answer"),
    ],
)
def test_a_broken_gold_program_ends_with_its_failure_as_the_answer(
    name: str, program: str, said: str
) -> None:
    task = with_gold(program)
    (played,) = play_all([Job(lambda: variant(name).episode(world(), task), gold)])
    assert played.stop == "answer"
    assert played.reward < 1.0
    shown = (played.answer or "") + "".join(t.observation for t in played.turns)
    assert said.replace("no answer", "answer") in shown or said in shown


def test_a_gold_program_can_catch_tool_errors_in_both_executions() -> None:
    program = (
        'k = MCPServer("kitchen")\n'
        "try:\n    k.take(item='gold', grams=1)\nexcept ToolError as e:\n    answer('caught: ' + str(e))"
    )
    task = with_gold(program)
    jobs = [Job(lambda v=v: v.episode(world(), task), gold) for v in VARIANTS]  # type: ignore[misc]
    for played in play_all(jobs):
        assert (played.answer or "").startswith("caught: "), played.settings
        assert "cannot take" in (played.answer or "")


def test_a_program_of_an_episode_that_ends_early_is_let_go() -> None:
    task = with_gold('k = MCPServer("kitchen")\nfor _ in range(99):\n    k.list_items()\nanswer("x")')

    def make() -> Episode:
        from atlas_gym.context.budget import Budget

        return variant("eager/json").episode(world(), task, budget=Budget(tool_calls=3))

    (played,) = play_all([Job(make, gold)])
    assert played.stop == "tool_calls"

"""The Gymnasium environment over in-process servers: contract, budgets, faults, determinism."""

from __future__ import annotations

import json
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import atlas_gym
from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.errors import ConfigError, UnknownNameError
from atlas_gym.rollout.gold import call_text, gold
from atlas_gym.rollout.play import Job, play_all
from atlas_gym.rollout.policy import echo_prompt, empty_answer, says_impossible
from atlas_gym.rollout.traces import read_traces, write_traces
from atlas_gym.types import LABELS, Trajectory

VARIANTS = [(e, x) for e in ("eager", "servers", "tools", "search") for x in ("json", "code")]


def make(**kwargs: Any) -> AtlasEnv:
    return AtlasEnv(**{"suite": "toy", "runtime": "memory", **kwargs})


def play(
    env: AtlasEnv, *texts: str, **reset: Any
) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
    env.reset(**reset)
    for text in texts:
        last = env.step(text)
    return last


TAKE: dict[str, Any] = {"options": {"task_id": "toy/take_some-0000"}}


def test_the_gymnasium_checker_finds_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make("Atlas-MCP-v0", suite="toy", runtime="memory")
        check_env(env.unwrapped)
        env.close()


@pytest.mark.parametrize(("exposure", "execution"), VARIANTS)
def test_gold_earns_everything_and_floors_nothing(exposure: str, execution: str) -> None:
    env = make(exposure=exposure, execution=execution)
    jobs = [
        Job(lambda t=task: env.draw(0, {"task_id": t.id}), policy)  # type: ignore[misc]
        for task in env.tasks()
        for policy in (gold, empty_answer, echo_prompt, says_impossible)
    ]
    for trajectory in play_all(jobs):
        assert trajectory.stop == "answer"
        assert trajectory.reward_valid
        assert trajectory.reward == (1.0 if trajectory.policy == "gold" else 0.0), trajectory.to_json()


@pytest.mark.parametrize(("exposure", "execution"), VARIANTS)
def test_the_ledger_is_the_conversation(exposure: str, execution: str) -> None:
    env = make(exposure=exposure, execution=execution)
    for task in env.tasks():
        (trajectory,) = play_all([Job(lambda t=task: env.draw(0, {"task_id": t.id}), gold)])  # type: ignore[misc]
        ids = [i for s in trajectory.segments for i in s.ids]
        assert len(ids) == trajectory.context_at_reset
        counts = dict.fromkeys(LABELS, 0)
        for segment in trajectory.segments:
            counts[segment.label] += len(segment.ids)
        for turn in trajectory.turns:
            for segment in turn.segments:
                counts[segment.label] += len(segment.ids)
                ids += segment.ids
            assert dict(turn.ledger) == counts
            assert sum(counts.values()) == turn.context_used == len(ids)


def test_the_same_seed_and_actions_give_the_same_everything() -> None:
    def run(seed: int) -> list[Any]:
        env = make()
        observation, info = env.reset(seed=seed)
        seen: list[Any] = [observation, info]
        for text in (
            'print(MCPServer("kitchen"))',
            call_text("load_server", server="kitchen"),
            "nothing",
            "x",
        ):
            seen.append(env.step(text))
        env.close()
        return seen

    for seed in range(3):
        first, again = run(seed), run(seed)
        assert repr(first) == repr(again)


def test_seeds_draw_different_tasks_and_a_group_shares_one() -> None:
    env = make()
    assert len({env.reset(seed=s)[1]["task_id"] for s in range(20)}) > 1
    assert len({env.reset(seed=7)[1]["task_id"] for _ in range(3)}) == 1


def test_episodes_do_not_share_a_server() -> None:
    env, other = make(execution="json", exposure="eager"), make(execution="json", exposure="eager")
    take = call_text("call_tool", server="kitchen", tool="take", arguments={"item": "rice", "grams": 2000})
    env.reset(**TAKE)
    other.reset(**TAKE)
    assert '"grams": 0' in env.step(take)[0]["result"]
    assert '"grams": 0' in other.step(take)[0]["result"]
    assert "cannot take" in env.step(take)[0]["result"]


def test_a_tool_is_refused_until_its_schema_is_loaded() -> None:
    env = make(execution="json")
    look = call_text("kitchen:amount", item="rice")
    env.reset(**TAKE)
    observation, *_, info = env.step(look)
    assert "load_tools" in observation["result"]
    assert info["tool_calls"] == 0
    env.step(call_text("load_tools", server="kitchen", tools=["amount"]))
    assert "2000" in env.step(look)[0]["result"]
    lenient = make(execution="json", strict=False)
    assert "2000" in play(lenient, look, **TAKE)[0]["result"]


def test_calls_inside_cells_count_and_meta_tools_do_not() -> None:
    env = make()
    code = 'k = MCPServer("kitchen")\nprint(sum(k.amount(item=i)["grams"] for i in ["rice", "salt"]))'
    observation, *_, info = play(
        env, call_text("load_tools", server="kitchen", tools=["amount"]), f"```python\n{code}\n```", **TAKE
    )
    assert observation["result"].strip() == "2090"
    assert info["tool_calls"] == 2
    results = env.trajectory.turns[-1].results
    assert [(r.call.tool, r.call.via, r.value["grams"]) for r in results] == [
        ("amount", "code", 2000),
        ("amount", "code", 90),
    ]


def test_refused_calls_of_a_cell_are_in_the_trajectory_too() -> None:
    env = make()
    code = """
for name in ("amount", "amounts"):
    try:
        getattr(MCPServer("kitchen"), name)(item="rice")
    except (ToolError, AttributeError) as error:
        print(error)
"""
    observation, *_, info = play(env, f"```python{code}```", **TAKE)
    assert "get_tools_info" in observation["result"]
    assert info["tool_calls"] == 0
    assert [r.outcome for r in env.trajectory.turns[-1].results] == ["refused"]


@pytest.mark.parametrize("execution", ["json", "code"])
def test_the_tool_call_budget_ends_the_episode_and_is_scored(execution: str) -> None:
    env = make(execution=execution, exposure="eager", budget={"tool_calls": 2})
    if execution == "json":
        text = call_text("kitchen:amount", item="rice") * 3
    else:
        text = '```python\nk = MCPServer("kitchen")\nfor _ in range(9):\n    k.amount(item="rice")\n```'
    observation, reward, terminated, truncated, info = play(env, text, **TAKE)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["stop"] == "tool_calls"
    assert info["reward_valid"] == 1
    assert info["tool_calls"] == 2
    assert "budget of 2 tool calls is spent" in observation["result"]


def test_the_turn_budget_ends_the_episode() -> None:
    env = make(budget={"turns": 2})
    look = call_text("load_server", server="kitchen")
    *_, truncated, info = play(env, look, look, **TAKE)
    assert truncated
    assert info["stop"] == "turns"
    assert info["reward_valid"] == 1


def test_a_long_result_is_cut_and_says_so() -> None:
    env = make(budget={"response_tokens": 60})
    observation, *_ = play(env, "```python\nprint('word ' * 5000)\n```", **TAKE)
    tokens = env.world.tokenizer.encode(observation["result"])
    assert len(tokens) <= 60
    assert "cut" in observation["result"]


def test_the_context_budget_is_exact() -> None:
    env = make()
    env.reset(**TAKE)
    start = env.episode.context_used
    env.close()
    small = make(budget={"context_tokens": start + 120})
    observation, *_, info = play(small, "```python\nprint('word ' * 5000)\n```", **TAKE)
    assert info["stop"] == "context"
    assert observation["result"]
    assert small.episode.context_used <= start + 120
    assert int(observation["context_left"]) == start + 120 - small.episode.context_used


def test_a_prompt_over_the_budget_truncates_at_the_first_step() -> None:
    env = make(budget={"context_tokens": 50})
    observation, info = env.reset(**TAKE)
    assert info["stop"] == ""
    assert int(observation["context_left"]) == 0
    *_, truncated, info = env.step("<answer>x</answer>")
    assert truncated
    assert info["stop"] == "context"
    said = f"This message brings the conversation to {env.episode.context_used} tokens of 50."
    assert info["error"] == said


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<tool_call>{",
        "<answer>a</answer><answer>b</answer>",
        "a\ud800b",
        "\x00\x1b[2J<tool_call>",
        "x" * 1_000_000,
        '{"name": 1}',
        "<tool_call>[[[[" * 500,
    ],
)
def test_bad_messages_teach_and_never_raise(text: str) -> None:
    env = make(prose_answer=False)
    observation, reward, *_, info = play(env, text, **TAKE)
    assert reward == 0.0
    assert info["invalid_actions"] == 1 or info["stop"] == "context"
    assert observation in env.observation_space
    assert "Expected" in observation["result"] or info["stop"] == "context"


def test_unknown_names_are_taught_in_the_observation() -> None:
    env = make(execution="json", exposure="eager")
    env.reset(**TAKE)
    assert "'amount'" in env.step(call_text("kitchen:amounts"))[0]["result"]
    assert "'kitchen'" in env.step(call_text("kitchn:amount"))[0]["result"]
    result = env.step(call_text("kitchen:amount", item="gold"))[0]["result"]
    assert "there is no 'gold' in the pantry" in result


@pytest.mark.parametrize(
    ("kwargs", "near"),
    [
        ({"exposure": "tool"}, "tools"),
        ({"execution": "cod"}, "code"),
        ({"split": "trian"}, "train"),
        ({"budget": {"turn": 3}}, "turns"),
    ],
)
def test_wrong_arguments_name_the_closest(kwargs: dict[str, Any], near: str) -> None:
    with pytest.raises(ConfigError, match=near):
        make(**kwargs)


@pytest.mark.parametrize(
    ("kwargs", "options", "near"),
    [
        ({"suite": "toi"}, {}, "toy"),
        ({"runtime": "memry"}, {}, "memory"),
        ({}, {"task_id": "toy/take_some-1"}, "take_some-0001"),
        ({}, {"tasks_id": "x"}, "task_id"),
    ],
)
def test_wrong_names_at_reset_name_the_closest(
    kwargs: dict[str, Any], options: dict[str, Any], near: str
) -> None:
    with pytest.raises(UnknownNameError, match=near):
        make(**kwargs).reset(options=options)


def test_distractors_are_drawn_by_the_seed() -> None:
    env = make(distractors=1)
    env.reset(seed=3, options={"task_id": "toy/take_some-0000"})
    visible = env.episode.servers
    assert set(visible) == {*env.episode.task.visible, "colours"}
    with pytest.raises(ConfigError, match="only"):
        make(distractors=9).reset(seed=0)


def test_after_the_end_a_step_changes_nothing() -> None:
    env = make()
    first = play(env, "<answer>no</answer>", **TAKE)
    again = env.step("<answer>no</answer>")
    assert again[1] == 0.0
    assert first[2:4] == again[2:4]
    assert first[4] == again[4]


def test_there_is_no_episode_before_reset() -> None:
    with pytest.raises(ConfigError, match="reset"):
        _ = make().trajectory


def test_the_spec_is_json_and_rebuilds_the_env() -> None:
    env = gym.make("Atlas-MCP-v0", suite="toy", runtime="memory", budget={"turns": 5})
    assert env.spec is not None
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert json.loads(env.spec.to_json())["kwargs"]["budget"] == {"turns": 5}
    assert again.reset(seed=1)[1] == env.reset(seed=1)[1]
    again.close()
    env.close()


def test_a_trace_survives_the_file(tmp_path: Any) -> None:
    env = make()
    play(env, "```python\n1/0\n```", "<answer>é\u2028</answer>", **TAKE)
    trajectory = env.trajectory
    write_traces(tmp_path / "t.jsonl", [trajectory, trajectory])
    back = list(read_traces(tmp_path / "t.jsonl"))
    assert [json.dumps(b.to_json()) for b in back] == [json.dumps(trajectory.to_json())] * 2
    assert isinstance(back[0], Trajectory)


def test_infos_keep_keys_and_types() -> None:
    env = make()
    _, before = env.reset(seed=0)
    *_, after = env.step("<answer>1</answer>")
    assert {k: type(v) for k, v in before.items()} == {k: type(v) for k, v in after.items()}
    assert all(isinstance(v, str | int) for v in after.values())


def test_sampled_ids_are_used_as_they_are() -> None:
    env = make()
    env.reset(**TAKE)
    ids = env.world.tokenizer.encode("<answer>") + env.world.tokenizer.encode("7</answer>")
    env.step(atlas_gym.SampledText("<answer>7</answer>", ids, [-0.5] * len(ids), "v3"))
    (segment,) = [s for s in env.trajectory.turns[0].segments if s.trained]
    assert segment.ids == tuple(ids)
    assert segment.logprobs == (-0.5,) * len(ids)
    assert segment.policy_version == "v3"


def test_render_shows_the_last_turn() -> None:
    env = make(render_mode="ansi")
    env.reset(**TAKE)
    assert env.render() == env.episode.prompt
    env.step("<answer>done</answer>")
    assert "done" in str(env.render())


def test_observations_are_fresh_arrays() -> None:
    env = make()
    first, _ = env.reset(seed=0)
    before = int(first["turn"])
    env.step("<tool_call>")
    assert int(first["turn"]) == before
    assert first["context_used"].dtype == np.int64

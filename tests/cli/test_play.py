"""A person in the agent's place, driven through piped input."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from atlas_gym.cli.app import app
from atlas_gym.rollout.traces import read_traces

TASK = "toy/take_some-0000"


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")


def play(file: Path, text: str, variant: str = "tools/json", task: str = TASK) -> Result:
    arguments = ["play", task, "--suite", "toy", "--runtime", "memory", "--variant", variant]
    return CliRunner().invoke(app, [*arguments, "--out", str(file)], input=text)


def test_shortcuts_play_a_whole_episode(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    found = play(
        file,
        ":help\n:task\n:prompt\n:load kitchen\n:load kitchen amount take\n"
        ':call kitchen amount {"item": "salt"}\n:ledger\n:answer 90\n',
    )
    assert found.exit_code == 0, found.output
    assert ":search WORDS" in found.stdout
    assert '"grams": 90' in found.stdout
    assert "reward" in found.stdout
    (trace,) = read_traces(file)
    assert [t.actions[0].kind for t in trace.turns] == ["load_server", "load_tools", "call_tool", "answer"]
    assert (trace.policy, trace.stop, trace.answer) == ("human", "answer", "90")


def test_messages_of_several_lines_and_the_end_of_input(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    call = '{"name": "load_server",\n "arguments": {"server": "kitchen"}}'
    text = f"<tool_call>\n{call}\n</tool_call>\n\nI give up\n"
    found = play(file, text)
    assert found.exit_code == 0, found.output
    (trace,) = read_traces(file)
    assert [t.actions[0].kind for t in trace.turns] == ["load_server", "answer"]
    assert trace.answer == "I give up"


def test_code_in_one_line_and_in_many(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    text = (
        ":load kitchen amount\n:code k = MCPServer('kitchen')\n"
        ":code\nfor item in ['salt']:\n\n    print(k.amount(item=item)['grams'])\n:end\n:quit\n"
    )
    found = play(file, text, "tools/code")
    assert found.exit_code == 0, found.output
    assert "\n90\n" in found.stdout
    (trace,) = read_traces(file)
    assert trace.stop == ""
    assert [t.actions[0].kind for t in trace.turns] == ["load_tools", "run_code", "run_code"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (":lod kitchen", "Did you mean :load?"),
        (":call kitchen", ":call needs more"),
        (":load", ":load needs more"),
        (":call kitchen take {", "The arguments are not JSON"),
    ],
)
def test_a_wrong_shortcut_is_explained_and_costs_nothing(line: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    found = play(file, f"{line}\n:quit\n")
    assert found.exit_code == 0, found.output
    assert said in found.stdout
    (trace,) = read_traces(file)
    assert trace.turns == ()


def test_quitting_saves_the_trace_and_a_second_game_is_added(tmp_path: Path) -> None:
    file = tmp_path / "t.jsonl"
    for _ in range(2):
        assert play(file, ":quit\n").exit_code == 0
    assert len(list(read_traces(file))) == 2

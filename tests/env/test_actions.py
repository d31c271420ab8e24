"""The grammar: what agents write, and how every mistake is taught."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.env.actions import MAX_OPERATIONS, Grammar, split_tool
from atlas_gym.types import Action

JSON = Grammar(("load_server", "load_tools", "search_tools", "call_tool", "answer"))
CODE = Grammar(("load_server", "load_tools", "run_code", "answer"))


def call(name: str, /, **arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def only(actions: tuple[Action, ...]) -> Action:
    assert len(actions) == 1, actions
    return actions[0]


@pytest.mark.parametrize(
    "text",
    [
        call("call_tool", server="git", tool="git_log", arguments={"n": 1}),
        '{"name": "call_tool", "arguments": {"server": "git", "tool": "git_log", "arguments": {"n": 1}}}',
        'I look.\n```json\n{"name": "git:git_log", "arguments": {"n": 1}}\n```',
        '<tool_call>\n{"name": "git.git_log", "arguments": {"n": 1}}',
        '<tool_call>```json\n{"name": "git__git_log", "parameters": {"n": 1}}\n```</tool_call>',
        '<tool_call>{"function": {"name": "git:git_log", "arguments": "{\\"n\\": 1}"}}</tool_call>',
        "<think>call nothing <tool_call>{}</tool_call></think>" + call("git:git_log", n=1),
        call("call_tool", server="git", name="git_log", args={"n": 1}),
        call("call_tool", server="git", tool="git_log", arguments='{"n": 1}'),
    ],
)
def test_a_tool_call_is_read_in_every_usual_form(text: str) -> None:
    action = only(JSON.parse(text))
    assert action == Action("call_tool", {"server": "git", "tool": "git_log", "arguments": {"n": 1}})


def test_several_operations_keep_their_order() -> None:
    text = (
        call("load_server", server="a")
        + " then\n```python\nx = 1\n```\n"
        + call("load_tools", server="a", tools=["t"])
        + "<answer> 4 </answer>"
    )
    kinds = [(a.kind, dict(a.arguments)) for a in CODE.parse(text)]
    assert kinds == [
        ("load_server", {"server": "a"}),
        ("run_code", {"code": "x = 1\n"}),
        ("load_tools", {"server": "a", "tools": ["t"]}),
        ("answer", {"text": "4"}),
    ]


def test_prose_is_the_answer_only_where_it_may_be() -> None:
    assert only(JSON.parse("It is 42.")) == Action("answer", {"text": "It is 42."})
    strict = Grammar(JSON.operations, prose_answer=False)
    assert "no call and no <answer>" in only(strict.parse("It is 42.")).error


def test_markup_inside_an_answer_or_a_call_is_text() -> None:
    assert (
        only(JSON.parse("<answer>use <tool_call>x</tool_call></answer>")).arguments["text"].startswith("use")
    )
    code = only(CODE.parse(call("run_code", code="print('<answer>1</answer>')\n```")))
    assert code.arguments["code"] == "print('<answer>1</answer>')\n```"


@pytest.mark.parametrize(
    ("text", "taught"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("<think>still thinking", "ended inside <think>"),
        ("<tool_call>{'name': 'x'}</tool_call>", "not JSON"),
        ("<tool_call>[]</tool_call>", "array, not an object"),
        ('<tool_call>{"arguments": {}}</tool_call>', 'no "name"'),
        ('<tool_call>{"name": "answer", "arguments": [1]}</tool_call>', "not an object"),
        ('<tool_call>{"name": "load_servers", "arguments": {}}</tool_call>', "Did you mean 'load_server'?"),
        (call("load_server"), "is missing 'server'; it takes server"),
        (call("load_server", server="a", depth=3), "does not take 'depth'"),
        (call("load_server", server=3), "must be a string, not a JSON number"),
        (call("load_tools", server="a", tools=[1]), "list of tool names"),
        (call("search_tools", query="a", k=0), "from 1 to 50"),
        (call("search_tools", query="a", k=True), "from 1 to 50"),
        ("<answer>1</answer><answer>2</answer>", "gives 2 answers"),
        ("<answer>1</answer>" + call("load_server", server="a"), "put the answer last"),
        ("<answer>1", "not closed"),
        ("so </tool_call>", "opened or closed only once"),
        ("```python\nprint(1)\n```", "Code is not run here"),
        ('{"name": "answer", "arguments": {"text": }', "looks like a call but is not JSON"),
        ('<tool_call>{"name": "a:b", "arguments": {"x": NaN}}</tool_call>', "NaN or Infinity"),
        ('<tool_call>{"name": "a:b", "arguments": {"x": "\\ud800"}}</tool_call>', "lone surrogates"),
        ("a \ud800 b", "lone surrogates"),
        (call("a:b") * (MAX_OPERATIONS + 1), "more than"),
        ("<tool_call>" + "[" * 100_000, "not JSON"),
    ],
)
def test_each_mistake_is_taught(text: str, taught: str) -> None:
    action = JSON.parse(text)[-1]
    assert action.kind == "invalid"
    assert taught in action.error
    assert "Expected " in action.error


def test_an_open_code_block_is_not_run() -> None:
    assert "code block that is not closed" in only(CODE.parse("```python\nprint(1)")).error


def test_control_characters_in_a_call_are_read() -> None:
    action = only(JSON.parse('<tool_call>{"name": "answer", "arguments": {"text": "a\tb\x07"}}</tool_call>'))
    assert action.arguments["text"] == "a\tb\x07"


@given(
    st.text(st.characters())
    | st.lists(
        st.sampled_from(
            [
                "<tool_call>",
                "</tool_call>",
                "<answer>",
                "</answer>",
                "```python\n",
                "\n```\n",
                "{",
                "}",
                '"name":',
                '"x"',
                "<think>",
                "</think>",
                " ",
            ]
        )
    ).map("".join)
)
def test_no_text_raises_and_every_text_gives_something(text: str) -> None:
    for grammar in (JSON, CODE):
        actions = grammar.parse(text)
        assert actions
        assert all(a.kind != "invalid" or a.error for a in actions)
        assert sum(a.kind == "answer" for a in actions) <= 1


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
            ),
        ),
    )
)
def test_arguments_survive_the_round_trip(arguments: dict[str, object]) -> None:
    text = call("call_tool", server="s", tool="t", arguments=arguments)
    if "</think>" in text or "tool_call>" in text[11:-12]:
        return
    assert only(JSON.parse(text)).arguments["arguments"] == arguments


def test_split_tool_needs_both_halves() -> None:
    assert split_tool("a:b") == ("a", "b")
    assert split_tool("mcp-server-git.git_log") == ("mcp-server-git", "git_log")
    assert split_tool("plain") == ("plain", "")
    assert split_tool(":b") == (":b", "")

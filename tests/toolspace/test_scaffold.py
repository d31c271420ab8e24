"""The scaffold of cells: what the host answers, what the agent reads, the same in every sandbox."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atlas_gym.sandbox import KINDS, CellResult, available, open_sandbox
from atlas_gym.toolspace.exposure import View
from atlas_gym.toolspace.records import Toolset, parse_listing
from atlas_gym.toolspace.scaffold import Host, prelude
from atlas_gym.types import ToolCall, ToolResult


def _tool(name: str, *required: str, **optional: Any) -> dict[str, Any]:
    properties = {
        **{n: {"type": "string"} for n in required},
        **{n: {"default": v} for n, v in optional.items()},
    }
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"name": name, "description": f"Does {name}.", "inputSchema": schema}


TOOLS = Toolset(
    [
        parse_listing("sqlite", "Databases.", [_tool("read-query", "query", limit=5), _tool("list_tables")]),
        parse_listing("Math MCP", "Numbers.", [_tool("add", "a", "b"), _tool("class", "from")]),
    ]
)
ROWS = [{"id": 1, "name": "Ann"}, {"id": 2, "name": None}]


async def call(asked: ToolCall) -> ToolResult:
    if asked.tool == "add":
        if not isinstance(asked.arguments["a"], int):
            return ToolResult(asked, "tool_error", text="add: 'a' must be a number, got 'one'")
        return ToolResult(asked, "ok", asked.arguments["a"] + asked.arguments["b"], "3")
    return ToolResult(asked, "ok", ROWS if asked.tool == "read-query" else dict(asked.arguments))


def host(exposure: str = "eager") -> Host:
    return Host(View(TOOLS, exposure, "code"), call)


def serve(asked: Host, op: str, **payload: Any) -> dict[str, Any]:
    return asyncio.run(asked(op, payload))


def tool(asked: Host, server: str, name: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
    return serve(asked, "call", server=server, tool=name, args=list(args), kwargs=kwargs)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if available(name):
        pytest.skip(available(name))
    return name


def run(kind: str, asked: Host, *cells: str) -> list[CellResult]:
    async def main() -> list[CellResult]:
        sandbox = await open_sandbox(kind, call=asked, prelude=prelude(kind))
        results = []
        try:
            for cell in cells:
                asked.begin()
                results.append(await sandbox.run(cell))
        finally:
            await sandbox.close()
        return results

    return asyncio.run(main())


def test_servers_are_found_without_case_and_punctuation() -> None:
    asked = host()
    for name in ("Math MCP", "math_mcp", "MATH-MCP"):
        assert serve(asked, "server", server=name)["value"]["name"] == "Math MCP"
    assert serve(asked, "server", server="sqlite")["value"]["tools"] == ["read_query", "list_tables"]


def test_an_unknown_server_names_the_closest() -> None:
    assert "Did you mean 'sqlite'" in serve(host(), "server", server="sqlit")["error"]
    assert "MCPServer takes the name" in serve(host(), "server", server=3)["error"]


def test_an_unknown_tool_names_the_closest_and_all() -> None:
    asked = host()
    error = tool(asked, "sqlite", "read_querry")["error"]
    assert "Did you mean 'read_query'" in error
    assert "list_tables" in error
    assert [r.outcome for r in asked.results] == ["invalid_call"]


def test_calls_are_bound_and_recorded_with_the_servers_own_names() -> None:
    asked = host()
    assert tool(asked, "sqlite", "read_query", "select 1", limit=2) == {"value": ROWS}
    assert tool(asked, "Math MCP", "class_", from_="x") == {"value": {"from": "x"}}
    assert [r.call for r in asked.results] == [
        ToolCall("sqlite", "read-query", {"query": "select 1", "limit": 2}, "code"),
        ToolCall("Math MCP", "class", {"from": "x"}, "code"),
    ]


def test_arguments_that_do_not_bind_teach_and_are_recorded() -> None:
    asked = host()
    assert "misses 'query'" in tool(asked, "sqlite", "read_query")["error"]
    assert "did you mean 'limit'" in tool(asked, "sqlite", "read_query", "q", limt=1)["error"]
    assert [(r.outcome, r.call.via) for r in asked.results] == [("invalid_call", "code")] * 2


def test_the_servers_own_words_reach_the_cell() -> None:
    asked = host()
    assert tool(asked, "Math MCP", "add", "one", 2) == {"error": "add: 'a' must be a number, got 'one'"}
    assert asked.results[0].outcome == "tool_error"


def test_a_tool_that_is_not_loaded_is_refused_and_can_then_be_loaded() -> None:
    asked = host("tools")
    assert "get_tools_info" in tool(asked, "sqlite", "read_query", "q")["error"]
    assert asked.results[0].outcome == "refused"
    assert asked.results[0].call.tool == "read-query"
    assert "def read_query" in serve(asked, "info", tools=["sqlite.read_query"])["value"]
    assert tool(asked, "sqlite", "read_query", "q") == {"value": ROWS}


def test_the_first_answer_counts() -> None:
    asked = host()
    assert asked.answer is None
    assert serve(asked, "answer", text="one") == {"value": None}
    assert "first one counts" in serve(asked, "answer", text="two")["error"]
    assert asked.answer == "one"
    asked.begin()  # the cell failed after its answer, and the episode went on
    assert asked.answer is None
    assert serve(asked, "answer", text="two") == {"value": None}


@pytest.mark.parametrize(
    ("op", "payload"),
    [
        ("reset", {}),
        ("call", {}),
        ("call", {"server": 3, "tool": None, "args": {}, "kwargs": []}),
        ("call", {"server": "sqlite", "tool": "read_query", "args": "abc", "kwargs": {}}),
        ("info", {"tools": [1]}),
        ("info", {"tools": {}}),
        ("search", {"query": None, "k": "x"}),
        ("load_server", {"server": ["x"]}),
        ("server", {}),
    ],
)
def test_whatever_a_cell_sends_is_answered(op: str, payload: dict[str, Any]) -> None:
    assert set(asyncio.run(host("search")(op, payload))) == {"error"}


def test_misused_results_show_their_shape() -> None:
    asked = host()
    tool(asked, "sqlite", "read_query", "q")
    hint = asked.explain("KeyError", "KeyError: 'rows'")
    assert hint == 'Hint: sqlite.read_query returned list[{"id": int, "name": str | None}]'
    assert asked.explain("ZeroDivisionError", "...") == ""
    asked.begin()
    assert asked.explain("TypeError", "...") == hint
    tool(asked, "Math MCP", "add", 1, 2)
    assert asked.explain("TypeError", "...") == "Hint: Math MCP.add returned int"


def test_an_awaited_tool_is_explained() -> None:
    assert "without await" in host().explain("TypeError", "object list can't be used in 'await' expression")


def test_tools_are_methods_values_and_attributes(kind: str) -> None:
    asked = host()
    results = run(
        kind,
        asked,
        "m = MCPServer('math_mcp')\nm",
        "m.add(1, b=2), m.tools",
        "ops = {'+': m.add}\nops['+'](a=1, b=1), getattr(m, 'add')(3, 4)",
        "hasattr(m, 'add'), hasattr(m, 'no_such_tool')",
        "m.add",
    )
    assert [r.value for r in results] == [
        "MCPServer('Math MCP')",
        "(3, ['add', 'class_'])",
        "(2, 7)",
        "(True, False)",
        "<tool Math MCP.add>",
    ]


def test_a_tool_error_can_be_caught_by_its_name(kind: str) -> None:
    code = "try:\n    MCPServer('Math MCP').add('one', 2)\nexcept ToolError as e:\n    print('caught', e)"
    (result,) = run(kind, host(), code)
    assert result.stdout == "caught add: 'a' must be a number, got 'one'\n"


def test_an_attribute_that_is_no_tool_names_the_closest(kind: str) -> None:
    asked = host()
    (result,) = run(kind, asked, "s = MCPServer('sqlite')\ns.read_querry('q')")
    assert result.error_type == "AttributeError"
    told = result.error + asked.explain(result.error_type, result.error)
    assert "Did you mean 'read_query'" in told


def test_info_search_and_loading_work_in_cells(kind: str) -> None:
    asked = host("search")
    results = run(
        kind,
        asked,
        "print(search_tools('run a query', k=1))",
        "print(load_server('sqlite'))",
        "s = MCPServer('sqlite')\nprint(get_tools_info([s.read_query, 'sqlite:list_tables']))",
        "print(get_tools_info(['add'], 'Math MCP'), load_tools('Math MCP', ['class_']))",
        "s.read_query('q')[0]['name']",
    )
    assert [r.status for r in results] == ["ok"] * 5
    assert results[0].stdout.startswith("sqlite.read_query")
    assert "read_query, list_tables" in results[1].stdout
    assert "def read_query" in results[2].stdout
    assert "def list_tables" in results[2].stdout
    assert "def add" in results[3].stdout
    assert "def class_" in results[3].stdout
    assert results[4].value == "'Ann'"


def test_answer_takes_text_and_values(kind: str) -> None:
    for code, answer in (
        ("answer('é')", "é"),
        ("answer({'n': [1, 2]})", '{"n": [1, 2]}'),
        ("answer(42)", "42"),
    ):
        asked = host()
        (result,) = run(kind, asked, code)
        assert (result.status, asked.answer) == ("ok", answer)


def test_errors_know_their_tool() -> None:
    code = (
        "try:\n    MCPServer('Math MCP').add('one', 2)\nexcept ToolError as e:\n    print(e.server, e.tool)"
    )
    assert run("local", host(), code)[0].stdout == "Math MCP add\n"


def test_texts_and_documentation_are_readable_as_values() -> None:
    asked = host("tools")
    info, doc, names = run(
        "local",
        asked,
        "get_tools_info('sqlite.read_query')",
        "MCPServer('sqlite').read_query.__doc__",
        "dir(MCPServer('sqlite'))",
    )
    assert info.value == doc.value
    assert "\n" in str(info.value)
    assert names.value == "['description', 'list_tables', 'name', 'read_query', 'tools']"


def test_a_cell_that_replaces_names_does_not_break_the_scaffold() -> None:
    code = "import json\njson = len = HostError = None\nMCPServer('Math MCP').add(1, 2)"
    assert run("local", host(), code)[0].value == "3"

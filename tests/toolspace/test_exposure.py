"""What an agent is shown in each exposure and execution, and what it is told when it errs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from atlas_gym.errors import ConfigError, UnknownNameError
from atlas_gym.toolspace import EXECUTIONS, EXPOSURES, NotLoaded, NotOffered, Toolset, View, parse_listing

MATH = [
    {
        "name": "add",
        "description": "Add two numbers.",
        "inputSchema": {
            "type": "object",
            "properties": {"a": {"type": "number"}, "b": {"type": "number", "default": 1}},
            "required": ["a"],
        },
    },
    {
        "name": "sum-all",
        "description": "Add many numbers. Slow.",
        "inputSchema": {
            "properties": {"from": {"type": "array", "items": {"type": "number"}}},
            "required": ["from"],
        },
    },
]
TIME = [
    {
        "name": "now",
        "description": "The time now.",
        "inputSchema": {
            "properties": {"zone": {"type": "string", "description": "IANA name."}},
            "required": ["zone"],
        },
    }
]

ADD_JSON = (
    '{"name":"add","description":"Add two numbers.","parameters":{"type":"object","properties":'
    '{"a":{"type":"number"},"b":{"type":"number","default":1}},"required":["a"]}}'
)
SUM_JSON = (
    '{"name":"sum-all","description":"Add many numbers. Slow.","parameters":{"properties":{"from":'
    '{"type":"array","items":{"type":"number"}}},"required":["from"],"type":"object"}}'
)
NOW_JSON = (
    '{"name":"now","description":"The time now.","parameters":{"properties":{"zone":{"type":"string",'
    '"description":"IANA name."}},"required":["zone"],"type":"object"}}'
)
ADD_PYTHON = 'def add(a: float, b: float = 1) -> float:\n    """Add two numbers."""'
SUM_PYTHON = (
    "def sum_all(from_: list[float]) -> Any:\n"
    '    """Add many numbers. Slow.\n'
    "    from_: (the server's 'from')\n"
    '    """'
)
NOW_PYTHON = 'def now(zone: str) -> Any:\n    """The time now.\n    zone: IANA name.\n    """'

SYSTEM_JSON = """\
You complete a task with the tools of MCP servers. Act by writing calls, one or several in a message:
<tool_call>
{"name": "call_tool", "arguments": {"server": "...", "tool": "...", "arguments": {...}}}
</tool_call>
Calls run in order and you get their results next. Rely on results, never guess them. When the task is \
done, call answer: its text is all that the user sees.

Actions:
"""
SYSTEM_CODE = """\
You complete a task by running Python that calls the tools of MCP servers. Act by writing a cell:
```python
server = MCPServer("...")
print(server.some_tool(name="value"))
```
Variables stay between cells; you get only what is printed and the last expression. Tools return Python \
values and raise ToolError. In signatures, `= ...` marks an argument that can be left out.
"""
ANSWER_CODE = """\
Rely on results, never guess them. When the task is done, call answer: its text is all that the user sees.
<tool_call>
{"name": "answer", "arguments": {"text": "..."}}
</tool_call>
"""


def action(name: str, description: str, properties: str, required: str) -> str:
    parameters = f'{{"type":"object","properties":{properties},"required":{required}}}'
    return f'{{"name":"{name}","description":"{description}","parameters":{parameters}}}\n'


CALL_ARGUMENTS = (
    '{"server":{"type":"string"},"tool":{"type":"string"},"arguments":{"type":"object"}}',
    '["server","tool","arguments"]',
)
SERVER = ('{"server":{"type":"string"}}', '["server"]')
CALL_ANY = action("call_tool", "Call a tool of a server.", *CALL_ARGUMENTS)
CALL = action("call_tool", "Call a loaded tool.", *CALL_ARGUMENTS)
LOAD_ALL = action("load_server", "Get the schemas of all tools of a server.", *SERVER)
LOAD_NAMES = action("load_server", "Get the names of a server's tools.", *SERVER)
LOAD_TOOLS = action(
    "load_tools",
    "Get the schemas of tools, which loads them.",
    '{"server":{"type":"string"},"tools":{"type":"array","items":{"type":"string"}}}',
    '["server","tools"]',
)
SEARCH = action(
    "search_tools",
    "Find tools by words.",
    '{"query":{"type":"string"},"k":{"type":"integer","default":5}}',
    '["query"]',
)
ANSWER = action("answer", "Finish with this answer.", '{"text":{"type":"string"}}', '["text"]')
INDEX = "\nServers:\n- Math MCP: Adds numbers.\n- time: Tells the time."
COUNT = "\nThere are 2 servers with 3 tools; search for them."

GOLDEN: dict[tuple[str, str], tuple[tuple[str, ...], list[tuple[str, str]]]] = {
    ("eager", "json"): (
        ("call_tool", "answer"),
        [
            ("system", SYSTEM_JSON + CALL_ANY + ANSWER),
            (
                "schemas",
                f"\nServers and tools:\n# Math MCP: Adds numbers.\n{ADD_JSON}\n{SUM_JSON}\n"
                f"# time: Tells the time.\n{NOW_JSON}",
            ),
        ],
    ),
    ("servers", "json"): (
        ("load_server", "call_tool", "answer"),
        [("system", SYSTEM_JSON + LOAD_ALL + CALL + ANSWER), ("index", INDEX)],
    ),
    ("tools", "json"): (
        ("load_server", "load_tools", "call_tool", "answer"),
        [("system", SYSTEM_JSON + LOAD_NAMES + LOAD_TOOLS + CALL + ANSWER), ("index", INDEX)],
    ),
    ("search", "json"): (
        ("search_tools", "load_server", "load_tools", "call_tool", "answer"),
        [("system", SYSTEM_JSON + SEARCH + LOAD_NAMES + LOAD_TOOLS + CALL + ANSWER), ("index", COUNT)],
    ),
    ("eager", "code"): (
        ("run_code", "answer"),
        [
            ("system", SYSTEM_CODE + ANSWER_CODE),
            (
                "schemas",
                f"\nServers and tools:\n# Math MCP: Adds numbers.\n{ADD_PYTHON}\n{SUM_PYTHON}\n"
                f"# time: Tells the time.\n{NOW_PYTHON}",
            ),
        ],
    ),
    ("servers", "code"): (
        ("load_server", "run_code", "answer"),
        [
            (
                "system",
                f"{SYSTEM_CODE}Load a server before you call its tools, in a cell or as an action:\n"
                f'print(load_server("server"))  # signatures of all its tools\n{ANSWER_CODE}',
            ),
            ("index", INDEX),
        ],
    ),
    ("tools", "code"): (
        ("load_server", "load_tools", "run_code", "answer"),
        [
            (
                "system",
                f"{SYSTEM_CODE}Load tools in a cell before you call them:\n"
                f'print(get_tools_info(["server.tool", ...]))  # their signatures\n{ANSWER_CODE}',
            ),
            (
                "index",
                "\nServers:\n- Math MCP: Adds numbers. Tools: add, sum_all\n"
                "- time: Tells the time. Tools: now",
            ),
        ],
    ),
    ("search", "code"): (
        ("search_tools", "load_server", "load_tools", "run_code", "answer"),
        [
            (
                "system",
                f"{SYSTEM_CODE}Find and load tools in a cell before you call them:\n"
                'print(search_tools("words", k=5))  # what there is\n'
                'print(load_server("server"))  # names of its tools\n'
                f'print(get_tools_info(["server.tool", ...]))  # their signatures\n{ANSWER_CODE}',
            ),
            ("index", COUNT),
        ],
    ),
}


def view(exposure: str, execution: str, **more: Any) -> View:
    time = parse_listing("time", "Tells the time.", TIME)
    math = parse_listing("Math MCP", "Adds numbers.", MATH, shapes={"add": "float"})
    return View(Toolset([time, math]), exposure, execution, **more)


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("exposure", EXPOSURES)
def test_the_prompt_is_this_text(exposure: str, execution: str) -> None:
    meta_tools, pieces = GOLDEN[exposure, execution]
    shown = view(exposure, execution)
    assert shown.meta_tools == meta_tools
    assert shown.pieces() == pieces
    assert shown.pieces() == pieces
    assert shown.schemas_loaded == (3 if exposure == "eager" else 0)


def test_unknown_exposure_and_execution() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'servers'"):
        view("server", "json")
    with pytest.raises(UnknownNameError, match="Known: code, json"):
        view("tools", "xml")


def test_servers_load_whole() -> None:
    shown = view("servers", "json")
    assert shown.load_server("math_mcp") == f"# Math MCP\n{ADD_JSON}\n{SUM_JSON}"
    assert shown.schemas_loaded == 2
    assert shown.load_server("Math MCP") == "Already loaded, see above: add, sum-all"
    assert shown.load_server("Math MCP", again=True) == f"# Math MCP\n{ADD_JSON}\n{SUM_JSON}"
    assert shown.schemas_loaded == 2
    cells = view("servers", "code")
    assert cells.load_server("time") == cells.load_server("time") == f"# time\n{NOW_PYTHON}"


def test_tools_load_one_by_one() -> None:
    shown = view("tools", "json")
    assert shown.load_server("Math MCP") == "Math MCP has 2 tools: add, sum-all"
    assert shown.schemas_loaded == 0
    assert shown.load_tools("Math MCP", ["sum_all", "sum-all"]) == f"# Math MCP\n{SUM_JSON}"
    assert shown.load_tools("Math MCP", ["add", "sum-all"]) == (
        f"# Math MCP\n{ADD_JSON}\nAlready loaded, see above: sum-all"
    )
    assert shown.schemas_loaded == 2
    assert view("tools", "code").load_server("time") == "time has 1 tool: now"


def test_known_tools_load_although_others_are_unknown() -> None:
    shown = view("tools", "json")
    text = shown.load_tools("Math MCP", ["ad", "add"])
    assert text == (
        f"# Math MCP\n{ADD_JSON}\n"
        "Server 'Math MCP' has no tool 'ad'. Did you mean 'add'? Its tools: add, sum-all."
    )
    with pytest.raises(UnknownNameError, match="has no tool 'x'"):
        shown.load_tools("Math MCP", ["x"])
    with pytest.raises(UnknownNameError, match="Did you mean 'time'"):
        shown.load_tools("tim", ["now"])


@pytest.mark.parametrize("exposure", ["tools", "search", "eager"])
def test_info_is_always_in_full(exposure: str) -> None:
    shown = view(exposure, "code")
    both = f"# time\n{NOW_PYTHON}\n# Math MCP\n{ADD_PYTHON}"
    for _ in range(2):
        assert shown.info(["time.now", "math_mcp:add"]) == both
    assert shown.info("sum_all") == f"# Math MCP\n{SUM_PYTHON}"
    assert shown.schemas_loaded == 3
    assert shown.info(["now", "nope.nope"]).startswith(f"# time\n{NOW_PYTHON}\nUnknown tool 'nope.nope'.")
    with pytest.raises(UnknownNameError, match="is a server, not a tool"):
        shown.info(["time"])


def test_search_shows_one_line_for_each_hit_and_loads_nothing() -> None:
    shown = view("search", "json")
    assert (
        shown.search("add numbers") == "Math MCP:add: Add two numbers.\nMath MCP:sum-all: Add many numbers."
    )
    assert shown.search("numbers", 1).count("\n") == 0
    assert shown.search("zebra").startswith("No tool matches.")
    assert shown.schemas_loaded == 0
    assert view("search", "code").search("many") == "Math MCP.sum_all: Add many numbers."


@pytest.mark.parametrize(
    ("exposure", "execution", "step"),
    [
        ("servers", "json", '{"name": "load_server", "arguments": {"server": "Math MCP"}}'),
        (
            "tools",
            "json",
            '{"name": "load_tools", "arguments": {"server": "Math MCP", "tools": ["sum-all"]}}',
        ),
        (
            "search",
            "json",
            '{"name": "load_tools", "arguments": {"server": "Math MCP", "tools": ["sum-all"]}}',
        ),
        ("servers", "code", "print(load_server('Math MCP'))"),
        ("tools", "code", "print(get_tools_info(['Math MCP.sum_all']))"),
        ("search", "code", "print(get_tools_info(['Math MCP.sum_all']))"),
    ],
)
def test_a_tool_that_was_not_loaded_says_how(exposure: str, execution: str, step: str) -> None:
    shown = view(exposure, execution)
    with pytest.raises(NotLoaded) as error:
        shown.require("math_mcp", "sum_all")
    assert str(error.value).endswith(f"is not loaded, so you have not seen its arguments. First: {step}")
    assert view(exposure, execution, strict=False).require("math_mcp", "sum_all").name == "sum-all"
    if exposure == "servers":
        shown.load_server("Math MCP")
    else:
        shown.load_tools("Math MCP", ["sum-all"])
    assert shown.require("math_mcp", "sum_all").name == "sum-all"


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_eager_needs_no_loading(execution: str) -> None:
    shown = view("eager", execution)
    assert shown.require("time", "now").name == "now"
    assert shown.load_server("time") == "time has 1 tool: now"
    with pytest.raises(UnknownNameError, match="Did you mean 'now'"):
        shown.require("time", "nov")


def test_operations_of_other_exposures_say_what_to_do() -> None:
    with pytest.raises(
        NotOffered, match=r"no load_tools here: the prompt lists the servers; load_server gives"
    ):
        view("servers", "json").load_tools("time", ["now"])
    with pytest.raises(NotOffered, match="no search_tools here: every tool is in the prompt"):
        view("eager", "json").search("x")
    with pytest.raises(NotOffered, match="no search_tools here: the prompt lists the servers"):
        view("tools", "code").search("x")
    with pytest.raises(NotLoaded, match=r"First: print\(load_server\('time'\)\)"):
        view("servers", "code").info(["time.now"])


@pytest.mark.parametrize("wrong", [5, None, [5], {"a": 1}, [], [["now"]], b"now"])
def test_whatever_a_cell_passes_is_answered(wrong: Any) -> None:
    shown = view("search", "code")
    attempts: list[Callable[[], object]] = [
        lambda: shown.info(wrong),
        lambda: shown.load_tools("time", wrong),
        lambda: shown.load_server(wrong),
        lambda: shown.search(wrong),
        lambda: shown.search("x", [wrong]),  # type: ignore[arg-type]
        lambda: shown.require("time", wrong),
        lambda: shown.require(wrong, "now"),
    ]
    for attempt in attempts:
        with pytest.raises(ConfigError):
            attempt()


def test_empty_toolset_and_server_without_tools() -> None:
    for execution in EXECUTIONS:
        for exposure in EXPOSURES:
            assert View(Toolset([]), exposure, execution).pieces()[1][1]
    empty = View(Toolset([parse_listing("s", "Nothing.", [])]), "servers", "json")
    assert empty.load_server("s") == "s has no tools."


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_the_later_a_schema_is_shown_the_less_the_prompt_holds(execution: str) -> None:
    """For one task that needs one tool out of six hundred: prompt and loading together."""
    properties = {f"argument_{i}": {"type": "string", "description": f"What {i} means."} for i in range(6)}
    servers = [
        parse_listing(
            f"server_{s}",
            "Does a number of things for those who need them.",
            [
                {
                    "name": f"tool_{s}_{t}",
                    "description": "Does it.",
                    "inputSchema": {"properties": properties},
                }
                for t in range(10)
            ],
        )
        for s in range(60)
    ]
    sizes = {}
    for exposure in EXPOSURES:
        shown = View(Toolset(servers), exposure, execution)
        texts = [text for _, text in shown.pieces()]
        if exposure == "search":
            texts.append(shown.search("tool_7_7"))
        if exposure == "servers" or (exposure == "tools" and execution == "json"):
            texts.append(shown.load_server("server_7"))
        if exposure in ("tools", "search"):
            texts.append(shown.load_tools("server_7", ["tool_7_7"]))
        shown.require("server_7", "tool_7_7")
        sizes[exposure] = sum(map(len, texts))
    assert sizes["search"] < sizes["servers"] < sizes["eager"]
    assert sizes["search"] < sizes["tools"] < sizes["eager"]
    if execution == "json":  # with code the index holds the names of all tools, as in the paper
        assert sizes["tools"] < sizes["servers"]


@pytest.mark.parametrize(("execution", "shown"), [("json", "sum-all"), ("code", "sum_all")])
def test_an_unknown_tool_is_answered_with_the_names_that_were_shown(execution: str, shown: str) -> None:
    view = View(Toolset([parse_listing("math", "", MATH)]), "tools", execution)
    for ask in (lambda: view.require("math", "mean"), lambda: view.load_tools("math", ["mean"])):
        with pytest.raises(UnknownNameError, match=rf"Its tools: add, {shown}\."):
            ask()

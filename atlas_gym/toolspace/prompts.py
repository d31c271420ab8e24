"""The words that tell an agent how to act, for each exposure and execution.

Owns all fixed text of the prompt and the meta-tools' own schemas; every token of it is paid for in
every episode. Does not know which servers there are.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, TypeAlias

Exposure: TypeAlias = Literal["eager", "servers", "tools", "search"]
Execution: TypeAlias = Literal["json", "code"]

EXPOSURES: Final[tuple[Exposure, ...]] = ("eager", "servers", "tools", "search")
EXECUTIONS: Final[tuple[Execution, ...]] = ("json", "code")

LOADERS: Final[dict[Exposure, tuple[str, ...]]] = {
    "eager": (),
    "servers": ("load_server",),
    "tools": ("load_server", "load_tools"),
    "search": ("search_tools", "load_server", "load_tools"),
}
ACTS: Final[dict[Execution, str]] = {"json": "call_tool", "code": "run_code"}

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}

_JSON: Final = """\
You complete a task with the tools of MCP servers. Act by writing calls, one or several in a message:
<tool_call>
{"name": "call_tool", "arguments": {"server": "...", "tool": "...", "arguments": {...}}}
</tool_call>
Calls run in order and you get their results next. Rely on results, never guess them. When the task is \
done, call answer: its text is all that the user sees.

Actions:
"""

_CODE: Final = """\
You complete a task by running Python that calls the tools of MCP servers. Act by writing a cell:
```python
server = MCPServer("...")
print(server.some_tool(name="value"))
```
Variables stay between cells; you get only what is printed and the last expression. Tools return Python \
values and raise ToolError. In signatures, `= ...` marks an argument that can be left out.
"""

_CELL_LOADERS: Final[dict[Exposure, str]] = {
    "eager": "",
    "servers": """\
Load a server before you call its tools, in a cell or as an action:
print(load_server("server"))  # signatures of all its tools
""",
    "tools": """\
Load tools in a cell before you call them:
print(get_tools_info(["server.tool", ...]))  # their signatures
""",
    "search": """\
Find and load tools in a cell before you call them:
print(search_tools("words", k=5))  # what there is
print(load_server("server"))  # names of its tools
print(get_tools_info(["server.tool", ...]))  # their signatures
""",
}

_ANSWER: Final = """\
Rely on results, never guess them. When the task is done, call answer: its text is all that the user sees.
<tool_call>
{"name": "answer", "arguments": {"text": "..."}}
</tool_call>
"""


def action(name: str, exposure: Exposure) -> str:
    """The schema of one meta-tool, as one line of JSON."""
    described: dict[str, tuple[str, dict[str, Any], list[str]]] = {
        "call_tool": (
            "Call a tool of a server." if exposure == "eager" else "Call a loaded tool.",
            {"server": _TEXT, "tool": _TEXT, "arguments": {"type": "object"}},
            ["server", "tool", "arguments"],
        ),
        "load_server": (
            "Get the schemas of all tools of a server."
            if exposure == "servers"
            else "Get the names of a server's tools.",
            {"server": _TEXT},
            ["server"],
        ),
        "load_tools": (
            "Get the schemas of tools, which loads them.",
            {"server": _TEXT, "tools": _TEXTS},
            ["server", "tools"],
        ),
        "search_tools": (
            "Find tools by words.",
            {"query": _TEXT, "k": {"type": "integer", "default": 5}},
            ["query"],
        ),
        "answer": ("Finish with this answer.", {"text": _TEXT}, ["text"]),
    }
    description, properties, required = described[name]
    parameters = {"type": "object", "properties": properties, "required": required}
    return json.dumps(
        {"name": name, "description": description, "parameters": parameters}, separators=(",", ":")
    )


def how_to_act(exposure: Exposure, execution: Execution) -> str:
    """The system text: how to act, and the meta-tools that are offered."""
    if execution == "code":
        return _CODE + _CELL_LOADERS[exposure] + _ANSWER
    offered = (*LOADERS[exposure], "call_tool", "answer")
    return _JSON + "".join(action(name, exposure) + "\n" for name in offered)

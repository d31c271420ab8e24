"""Whatever a cell sends to the host is answered; what is recorded can be kept."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from typing import Any

import pytest

from atlas_gym.toolspace.exposure import View
from atlas_gym.toolspace.records import Toolset, parse_listing
from atlas_gym.toolspace.scaffold import Host
from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire.codec import encode


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


ODD: tuple[Any, ...] = (
    *(None, True, 5, -1, 1e308, math.nan, math.inf, 10**300),
    *("", "math", "add", "\ud800", "q" * 1_000_000, "math." * 100_000, "\x00"),
    *([], [[]], {}, {"a": 1}, ["math"], ["add"] * 1_000, nested(110), {"\ud800": 1}, {"q" * 1_000_000: 1}),
)
KEYS = ("server", "tool", "args", "kwargs", "tools", "query", "k", "text")


def make() -> Host:
    async def call(asked: ToolCall) -> ToolResult:
        return ToolResult(asked, "ok", 3)

    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": True}
    listing = parse_listing("math", "Sums.", [{"name": "add", "inputSchema": schema}])
    return Host(View(Toolset([listing]), "eager", "code"), call)


def checked(host: Host, op: str, payload: dict[str, Any]) -> None:
    reply = asyncio.run(host(op, payload))
    assert ("error" in reply) != ("value" in reply)
    assert len(json.dumps(reply)) < 200_000
    for result in host.results:
        assert len(encode(result.call.arguments)) < 2_000_000
        (result.call.server + result.call.tool + result.text).encode()
    assert host.answer is None or len(host.answer.encode()) <= 400_000
    host.begin()


@pytest.mark.parametrize(
    "op", ["server", "resolve", "info", "load_server", "search", "answer", "call", "", "\ud800", "__call__"]
)
def test_odd_payloads(op: str) -> None:
    host = make()
    checked(host, op, {})
    good = {"server": "math", "tool": "add", "args": [], "kwargs": {}, "tools": ["math.add"], "query": "sum"}
    for key, value in itertools.product(KEYS, ODD):
        checked(host, op, {key: value})
        checked(host, op, {**good, key: value})


def test_an_answer_is_a_text_of_some_length() -> None:
    host = make()
    assert "error" in asyncio.run(host("answer", {"text": "x" * 100_001}))
    assert asyncio.run(host("answer", {"text": "\ud800 half"})) == {"value": None}
    assert host.answer == "? half"
    assert "already" in asyncio.run(host("answer", {"text": "2"}))["error"]


def test_large_arguments_of_refused_calls_are_not_kept() -> None:
    host = make()
    reply = asyncio.run(host("call", {"server": "math", "tool": "nope", "kwargs": {"a": "x" * 20_000}}))
    assert "no tool 'nope'" in reply["error"]
    assert host.results[0].call == ToolCall("math", "nope", {}, "code")


@pytest.mark.parametrize(
    "error",
    [
        "TypeError: object dict can't be used in 'await' expression",
        "TypeError: 'dict' object can't be awaited",
        "TypeError: An asyncio.Future, a coroutine or an awaitable is required",
        "TypeError: a coroutine was expected, got {'a': 1}",
    ],
)
def test_awaited_tools_are_explained(error: str) -> None:
    assert "without await" in make().explain("TypeError", error)


@pytest.mark.parametrize(
    "error",
    [
        "TypeError: math.add: arguments must be JSON values (str): Object of type set",
        "TypeError: answer() missing 1 required positional argument: 'text'",
        "AttributeError: Server 'math' has no tool 'ad'. Did you mean 'add'?",
    ],
)
def test_shapes_are_shown_only_where_a_result_was_misused(error: str) -> None:
    host = make()
    asyncio.run(host("call", {"server": "math", "tool": "add", "kwargs": {"a": 1}}))
    kind = error.partition(":")[0]
    assert host.explain(kind, error) == ""
    assert host.explain("TypeError", "TypeError: 'int' object is not subscriptable") == (
        "Hint: math.add returned int"
    )

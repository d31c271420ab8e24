"""The fake servers that the cells use, and a scaffold over them: plain functions, no processes."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from atlas_gym.toolspace.exposure import View
from atlas_gym.toolspace.records import Toolset, parse_listing
from atlas_gym.toolspace.scaffold import Host
from atlas_gym.types import ToolCall, ToolResult
from tests.docker_base import base_or_skip

CITIES = {"Paris": 18, "Berlin": 16, "Rome": 25, "Oslo": 11, "Madrid": 27}
CONDITIONS = ("sunny", "cloudy", "rain")
CUSTOMERS = ("alice", "bob", "carol", "dave")
STATUSES = ("shipped", "pending", "shipped", "cancelled")


def _order(number: int) -> dict[str, Any]:
    items = [
        {
            "sku": f"SKU-{(number * 7 + i) % 10}",
            "qty": 1 + (number + i) % 3,
            "price": 4.5 + 3.25 * ((number + i) % 5),
        }
        for i in range(1 + number % 3)
    ]
    return {
        "order_id": f"ORD-{1000 + number}",
        "customer": CUSTOMERS[number * 3 % 4],
        "amount": round(sum(i["qty"] * i["price"] for i in items), 2),  # type: ignore[operator]
        "date": f"2025-03-{1 + number * 5 % 28:02d}",
        "status": STATUSES[number % 4],
        "items": items,
    }


ORDERS = [_order(number) for number in range(14)]


def get_forecast(city: str, days: int = 7) -> dict[str, Any]:
    if city not in CITIES:
        raise ValueError(f"no forecast for {city!r}")
    daily = [
        {"day": d, "temp": CITIES[city] + (d * 5 % 7) - 2, "condition": CONDITIONS[(d + len(city)) % 3]}
        for d in range(days)
    ]
    return {"city": city, "daily": daily}


def list_cities() -> list[str]:
    return list(CITIES)


def list_orders(page: int = 1, page_size: int = 5) -> dict[str, Any]:
    start = (page - 1) * page_size
    return {"orders": ORDERS[start : start + page_size], "has_more": start + page_size < len(ORDERS)}


def get_order(order_id: str) -> dict[str, Any]:
    return next(o for o in ORDERS if o["order_id"] == order_id)


def list_events() -> list[dict[str, Any]]:
    return [{"title": "Standup", "hour": 9}, {"title": "Review", "hour": 14}]


def read_text(path: str) -> str:
    return "name,dept,salary\nAnn,Eng,120000\nBo,Ops,80000\nCy,Eng,100000\nDi,HR,70000\n"


def write_text(path: str, content: str) -> int:
    return len(content)


def fetch(url: str) -> str:
    return '{"data": {"score": 7, "url": "' + url + '"}}'


def add(a: float, b: float) -> float:
    return a + b


def multiply(a: float, b: float) -> float:
    return a * b


def total(numbers: list[float]) -> float:
    return sum(numbers)


def sqrt(x: float) -> float:
    return math.sqrt(x)


SERVERS: dict[str, dict[str, Callable[..., Any]]] = {
    "Math": {"add": add, "multiply": multiply, "sum": total, "sqrt": sqrt},
    "Weather": {"get_forecast": get_forecast, "list_cities": list_cities},
    "Shop": {"list_orders": list_orders, "get_order": get_order},
    "Calendar": {"list_events": list_events},
    "Files": {"read_text": read_text, "write_text": write_text},
    "Search": {"fetch": fetch},
}


def _listed(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    return {
        "name": name,
        "description": f"The fake {name}.",
        "inputSchema": {
            "type": "object",
            "properties": {p: {} for p in parameters},
            "required": [p for p, v in parameters.items() if v.default is v.empty],
        },
    }


def toolset(servers: Mapping[str, Mapping[str, Callable[..., Any]]]) -> Toolset:
    return Toolset(
        [
            parse_listing(name, f"The fake {name}.", [_listed(*t) for t in tools.items()])
            for name, tools in servers.items()
        ]
    )


async def call(asked: ToolCall) -> ToolResult:
    try:
        return ToolResult(asked, "ok", SERVERS[asked.server][asked.tool](**asked.arguments))
    except (ValueError, TypeError, StopIteration) as exc:
        return ToolResult(asked, "tool_error", text=str(exc))


class Scaffold(NamedTuple):
    """What a test of cells needs."""

    servers: dict[str, dict[str, Callable[..., Any]]]
    host: Callable[[], Host]


def new_host() -> Host:
    """A host over the fake servers, everything loaded."""
    return Host(View(toolset(SERVERS), "eager", "code"), call)


@pytest.fixture(autouse=True)
def base(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image for tests that need an engine; they are skipped, with the reason, where there is none."""
    if request.node.get_closest_marker("docker"):
        monkeypatch.setenv("ATLAS_BASE_PYTHON", _base())


@functools.cache
def _base() -> str:
    """Asked once: an engine that is slow under load is no reason to skip the rest."""
    return base_or_skip()


@pytest.fixture(scope="session")
def scaffold() -> Scaffold:
    return Scaffold(SERVERS, new_host)


MONTY_DIFFERS = {
    "02_loop_tool_results": "max(key=d.get): no bound methods of dict as values",
    "03_statistics_module": "no module statistics",
    "15_class_inheritance": "no inheritance",
    "16_dataclass_records": "no dataclasses.asdict",
    "17_enum_status": "no inheritance, no module enum",
    "18_generator_paginate": "no yield",
    "34_tool_in_map_and_sort": "no host call inside a callback of map or sorted",
    "38_contextlib_suppress": "no yield",
    "40_del_statement": "no del",
    "45_string_methods": "no str.maketrans",
    "49_csv_dictreader": "no module io",
    "53_urllib_parse": "no module urllib",
    "57_fractions_mod": "no module fractions",
    "63_custom_exception": "no inheritance",
    "64_threadpool_tools": "no module concurrent",
    "66_pprint_result": "no module pprint",
    "67_property_staticmethod": "no decorators of methods",
    "68_dunder_methods": "no __lt__ of a cell's class",
    "74_lambda_filter_map": "str.lower is no value",
    "76_uuid_string_textwrap": "no module string",
    "78_help_and_dir": "no dir()",
    "81_bytes_chunks_iter": "a generator expression is a list",
    "86_timezones": "no module zoneinfo",
    "87_calendar_dateutil": "no module calendar",
    "test_an_object_of_a_cell_shows_its_own_repr": "objects inside a container are gone when the cell ends",
    "test_sys_exit_ends_only_the_cell": "no sys.exit",
    "test_input_says_that_nobody_types": "no input() and no EOFError",
    "test_a_task_awaited_in_the_last_expression": "no asyncio.create_task",
}
"""What monty 1.4.0 does not do as CPython does, by cell or test. Each must fail: see below."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Expect what monty cannot to fail, strictly: what works again is a failure of the table."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("kind") != "monty":
            continue
        name = parameters["file"].stem if "file" in parameters else item.name.partition("[")[0]
        if name in MONTY_DIFFERS:
            item.add_marker(pytest.mark.xfail(strict=True, raises=AssertionError, reason=MONTY_DIFFERS[name]))

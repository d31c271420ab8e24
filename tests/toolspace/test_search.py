"""Tool search: what is a word, what is found, in which order."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas_gym.toolspace import Index, Toolset, parse_listing
from atlas_gym.toolspace.search import MAX_RESULTS, words

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no failure."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getHTTPResponse", ["get", "http", "response"]),
        ("get_http-response", ["get", "http", "response"]),
        ("sha256", ["sha256"]),
        ("Ünïcode ＷＩＤＥ", ["ünïcode", "wide"]),
        ("搜索关键词", ["搜索", "索关", "关键", "键词"]),
        ("用", ["用"]),
        ("use搜索now", ["use", "搜索", "now"]),
        ("!?", []),
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.fixture(scope="module")
def index() -> Index:
    server = parse_listing
    return Index(
        Toolset(
            [
                server("b", "Mail for teams.", [{"name": "send", "description": "Send a message."}]),
                server("a", "Mail for teams.", [{"name": "send", "description": "Send a message."}]),
                server(
                    "git",
                    "Repositories.",
                    [{"name": "gitLog", "description": "History of commits."}, {"name": "x"}],
                ),
                server("bing", "", [{"name": "bing_search", "description": "使用必应搜索指定的关键词"}]),
                server(
                    "clock",
                    "",
                    [{"name": "convert", "inputSchema": {"properties": {"time_zone": {}}}}, {"name": "now"}],
                ),
                server("!!!", "", [{"name": "???"}]),
            ]
        )
    )


def found(index: Index, query: str, k: int = 5) -> list[str]:
    return [f"{tool.server}.{tool.name}" for tool, _ in index.search(query, k)]


def test_names_descriptions_arguments_and_servers_are_searched(index: Index) -> None:
    assert found(index, "log")[0] == "git.gitLog"
    assert found(index, "commits history")[0] == "git.gitLog"
    assert found(index, "timeZone")[0] == "clock.convert"
    assert found(index, "repositories") == ["git.x", "git.gitLog"]
    assert found(index, "搜索") == ["bing.bing_search"]


def test_equal_scores_stand_in_the_order_of_server_and_name(index: Index) -> None:
    hits = index.search("send mail", 5)
    assert [tool.server for tool, _ in hits] == ["a", "b"]
    assert hits[0][1] == hits[1][1] > 0


@pytest.mark.parametrize("query", ["", "   ", "zzzunknown", "!?", "\ud800", "未知的"])
def test_queries_without_a_known_word_find_nothing(index: Index, query: str) -> None:
    assert index.search(query) == []


def test_k_is_kept_in_bounds() -> None:
    raw = [{"name": f"same_{i}"} for i in range(80)]
    index = Index(Toolset([parse_listing("s", "", raw)]))
    assert len(index.search("same", 0)) == 1
    assert len(index.search("same", -5)) == 1
    assert len(index.search("same", 10_000)) == MAX_RESULTS


def test_no_tools_and_tools_without_a_word() -> None:
    assert Index(Toolset([])).search("anything") == []
    assert Index(Toolset([parse_listing("!", "", [{"name": "?"}])])).search("anything") == []


@UNHURRIED
@given(st.text(max_size=60), st.integers(-3, 60))
def test_any_query_gives_falling_scores(index: Index, query: str, k: int) -> None:
    scores = [score for _, score in index.search(query, k)]
    assert scores == sorted(scores, reverse=True)
    assert all(score > 0 for score in scores)
    assert index.search(query, k) == index.search(query, k)


def test_the_library_loads_only_for_an_index_and_says_nothing() -> None:
    code = (
        "import sys, atlas_gym.toolspace as t\n"
        "assert 'bm25s' not in sys.modules\n"
        "t.Index(t.Toolset([t.parse_listing('s', '', [{'name': 'a'}])])).search('a')\n"
        "assert 'bm25s' in sys.modules\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")

"""Every fault of a real server process: a typed outcome, no hang, and other servers work on.

The faults are those that `facts.md` of the project lists as reproduced with the SDK, and their kin.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from atlas_gym.types import Outcome, ToolCall

BAD = ToolCall("bad", "bad", {})
ANSWERED: list[tuple[str, Outcome, Any]] = [
    # what the server does, outcome, value or a pattern of the text
    ("bad-utf8", "ok", "caf\ufffd \ufffd"),
    ("noise", "ok", "answer"),
    ("noise-same-line", "ok", "answer"),
    ("pretty", "ok", "answer"),
    ("pretty-crlf", "ok", "answer"),
    ("batch", "ok", "answer"),
    ("byte-by-byte", "ok", "answer"),
    ("string-id", "ok", "answer"),
    ("wrong-id", "ok", "right"),
    ("output-schema", "ok", {"n": "no number"}),
    ("nan", "ok", {"a": None, "b": None, "c": None, "d": "\ufffdx"}),
    ("asks-client", "ok", ["result", "result", "error", "error", "error"]),
    ("notifications", "ok", "answer"),
    ("stderr-flood", "ok", "answer"),
    ("empty", "ok", []),
    ("deep", "tool_error", "cannot be read: nested deeper"),
    ("deep-structured", "tool_error", "cannot be read: nested deeper"),
    ("long-integer", "tool_error", "cannot be read: .*digits"),
    ("over-long", "tool_error", "cannot be read: larger than 32 MiB"),
    ("no-result-object", "tool_error", "no object but NoneType"),
    ("is-error", "tool_error", "^the disk is full$"),
    ("rpc-error", "tool_error", "^Unknown tool: bad$"),
    ("rpc-error-odd", "tool_error", "^just words$"),
    ("rpc-error-no-id", "tool_error", "^Parse error$"),
    ("rpc-error-like-timeout", "tool_error", "^upstream timed out$"),
    ("rpc-error-like-closed", "tool_error", "^Connection closed$"),
    ("input-required", "tool_error", "person's input"),
]
ENDED: list[tuple[str, Outcome, str, float]] = [
    # what the server does, outcome, a pattern of why the episode is lost, deadline
    ("hang", "timeout", "did not answer within 0.3 s", 0.3),
    ("hang-ignores-eof", "timeout", "did not answer within 0.3 s", 0.3),
    ("hang-ignores-term", "timeout", "did not answer within 0.3 s", 0.3),
    ("truncated-json", "timeout", "did not answer within 0.3 s", 0.3),
    ("closes-stdout", "crashed", "closed its output", 20),
    ("exit", "crashed", "exit status 7.*\n.*out of cheese", 20),
    ("segfault", "crashed", "exit status -11", 20),
    ("half-answer", "crashed", "exit status 0", 20),
    ("asks-endlessly", "crashed", "flooded", 20),
]


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.asyncio
@pytest.mark.parametrize(("mode", "outcome", "expected"), ANSWERED, ids=[row[0] for row in ANSWERED])
async def test_an_odd_answer_is_typed_and_the_same_server_works_on(
    episode: Any, mode: str, outcome: Outcome, expected: Any
) -> None:
    async with asyncio.timeout(60), episode(mode) as sessions:
        result = await sessions.call(BAD)
        assert result.outcome == outcome, result.text
        if outcome == "ok":
            assert result.value == expected
        else:
            assert result.value is None
            assert re.search(expected, result.text)
        again = await sessions.call(ToolCall("bad", "ok", {}))
        assert (again.outcome, again.value) == ("ok", "fine")
        other = await sessions.call(ToolCall("good", "ok", {}))
        assert (other.outcome, other.value) == ("ok", "fine")
        assert (sessions.lost, sessions.infra_errors) == ("", 0)


@pytest.mark.asyncio
@pytest.mark.parametrize(("mode", "outcome", "why", "seconds"), ENDED, ids=[row[0] for row in ENDED])
async def test_a_server_that_ends_is_infra_and_the_others_work_on(
    episode: Any, mode: str, outcome: Outcome, why: str, seconds: float
) -> None:
    async with asyncio.timeout(60), episode(mode) as sessions:
        await sessions.start("bad")
        result = await sessions.call(BAD, seconds=seconds)
        assert result.outcome == outcome, result.text
        assert result.is_infra
        assert re.search(why, sessions.lost, re.DOTALL)
        assert "a write may be half done" in sessions.lost
        assert sessions.infra_errors == 1
        other = await sessions.call(ToolCall("good", "ok", {}))
        assert (other.outcome, other.value) == ("ok", "fine")
        later = await sessions.call(ToolCall("bad", "ok", {}))
        assert later.outcome == "crashed"
        assert sessions.infra_errors == 1


@pytest.mark.asyncio
async def test_an_endless_line_is_an_error_and_then_a_flood(episode: Any) -> None:
    async with asyncio.timeout(60), episode("endless-line") as sessions:
        result = await sessions.call(BAD)
        assert result.outcome == "tool_error"
        assert "larger than 32 MiB" in result.text
        again = await sessions.call(ToolCall("bad", "ok", {}), seconds=20)
        assert again.outcome == "ok" or again.is_infra
        assert (await sessions.call(ToolCall("good", "ok", {}))).value == "fine"


@pytest.mark.asyncio
async def test_a_giant_result_arrives_whole(episode: Any) -> None:
    async with asyncio.timeout(60), episode("huge") as sessions:
        result = await sessions.call(BAD)
        assert result.outcome == "ok"
        assert len(result.value) == 8 * 2**20


@pytest.mark.asyncio
async def test_a_write_that_the_server_does_not_read_ends_at_the_deadline(episode: Any) -> None:
    async with asyncio.timeout(60), episode("deaf") as sessions:
        result = await sessions.call(ToolCall("bad", "ok", {"text": "x" * 2**22}), seconds=0.1)
        assert result.outcome == "timeout"
        assert (await sessions.call(ToolCall("good", "ok", {}))).value == "fine"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "arguments",
    [
        {"x": "\ud800"},
        {"x": float("nan")},
        {"x": [float("inf")]},
        {"x": {1, 2}},
        {"x": b"bytes"},
        {"\udfff": 1},
    ],
    ids=["surrogate", "nan", "infinity", "set", "bytes", "surrogate-key"],
)
async def test_arguments_that_json_cannot_carry_are_refused_and_the_connection_lives(
    episode: Any, arguments: dict[str, Any]
) -> None:
    async with asyncio.timeout(60), episode("plain") as sessions:
        result = await sessions.call(ToolCall("bad", "bad", arguments))
        assert result.outcome == "invalid_call"
        assert "Nothing was sent" in result.text
        assert (await sessions.call(BAD)).value == "answer"
        assert sessions.infra_errors == 0


@pytest.mark.asyncio
async def test_bottomless_arguments_are_refused(episode: Any) -> None:
    deep: Any = 0
    for _ in range(5000):
        deep = [deep]
    async with asyncio.timeout(60), episode("plain") as sessions:
        endless: list[Any] = []
        endless.append(endless)
        for arguments in ({"x": deep}, {"x": endless}):
            assert (await sessions.call(ToolCall("bad", "bad", arguments))).outcome == "invalid_call"
        assert sessions.walls == {}  # and nothing was started for it
        assert (await sessions.call(BAD)).value == "answer"


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["closes-stdin", "answers-and-dies"])
async def test_an_answer_counts_even_if_the_server_ends_after_it(episode: Any, mode: str) -> None:
    async with asyncio.timeout(60), episode(mode, state="memory") as sessions:
        assert (await sessions.call(BAD)).value == "answer"
        after = await sessions.call(ToolCall("bad", "ok", {}), seconds=2)
        assert after.outcome == "crashed"
        assert "state" in sessions.lost


@pytest.mark.asyncio
async def test_a_server_that_died_between_calls_is_replaced_where_it_holds_no_state(episode: Any) -> None:
    async with asyncio.timeout(60), episode("answers-and-dies", read_only=("ok",)) as sessions:
        assert (await sessions.call(BAD)).value == "answer"
        assert (await sessions.call(ToolCall("bad", "ok", {}))).value == "fine"
        assert (sessions.lost, sessions.infra_errors) == ("", 1)


@pytest.mark.asyncio
@pytest.mark.parametrize(("mode", "seconds"), [("hang-once", 1.0), ("exit-once", 20.0)])
async def test_an_interrupted_read_is_repeated_on_a_new_server(
    episode: Any, mode: str, seconds: float
) -> None:
    async with asyncio.timeout(60), episode(mode, state="workspace", read_only=("bad",)) as sessions:
        result = await sessions.call(BAD, seconds=seconds)
        assert (result.outcome, result.value) == ("ok", "second time")
        assert (sessions.lost, sessions.infra_errors) == ("", 1)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "seconds", "words"), [("hang", 0.3, "did not answer"), ("exit", 20.0, "died")]
)
async def test_what_fails_on_two_clean_servers_is_the_agents_error(
    episode: Any, mode: str, seconds: float, words: str
) -> None:
    async with asyncio.timeout(60), episode(mode, read_only=("bad", "ok")) as sessions:
        result = await sessions.call(BAD, seconds=seconds)
        assert result.outcome == "tool_error"
        assert words in result.text
        assert (sessions.lost, sessions.infra_errors) == ("", 2)
        assert (await sessions.call(ToolCall("bad", "ok", {}))).value == "fine"


@pytest.mark.asyncio
async def test_a_read_on_a_server_with_memory_is_not_repeated(episode: Any) -> None:
    async with asyncio.timeout(60), episode("exit", state="memory", read_only=("bad",)) as sessions:
        assert (await sessions.call(BAD)).outcome == "crashed"
        assert "its state is gone" in sessions.lost


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("start-silent", "did not answer the handshake within 1 s"),
        ("start-dies", "no module named cheese"),
        ("start-refuses", "refused the handshake: licence expired"),
        ("modern", "Unsupported protocol version"),
    ],
)
async def test_a_failed_start_is_typed_and_says_how_to_try(episode: Any, mode: str, words: str) -> None:
    async with (
        asyncio.timeout(60),
        episode(mode, start_seconds=1.0 if mode == "start-silent" else 20.0) as sessions,
    ):
        result = await sessions.call(BAD)
        assert result.outcome == "crashed"
        assert words in sessions.lost
        assert "misbehaving.py" in sessions.lost
        assert "cheese" not in result.text
        assert (await sessions.call(ToolCall("good", "ok", {}))).value == "fine"


@pytest.mark.asyncio
async def test_the_processes_that_a_server_started_end_with_it(episode: Any) -> None:
    async with asyncio.timeout(60), episode("grandchild") as sessions:
        result = await sessions.call(BAD)
        assert alive(result.value)
    assert not alive(result.value)


@pytest.mark.asyncio
async def test_fifty_faults_at_once_do_not_mix(episode: Any) -> None:
    async with asyncio.timeout(60), episode("wrong-id") as sessions:
        calls = [ToolCall("bad" if i % 2 else "good", "bad" if i % 3 else "ok", {}) for i in range(50)]
        results = await asyncio.gather(*(sessions.call(call) for call in calls))
        for call, result in zip(calls, results, strict=True):
            assert result.call is call
            right = {"ok": "fine", "bad": "right" if call.server == "bad" else "answer"}
            assert result.value == right[call.tool], json.dumps(result.text)

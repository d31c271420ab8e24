"""Framing: however the bytes are cut and whatever stands between them, the messages come out."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from atlas_gym.wire import stream
from atlas_gym.wire.stream import Channel, Lines, Lost


def message(key: int, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": key, "result": more}


NOISE = [
    "",
    "Starting",
    "[INFO] {x}",
    "{'a': 1}",
    "}",
    "]",
    "null",
    "\ufeff",
    "{ open",
    '{"a": [',
    "{",
    "[",
    '"text',
]
PIECES = st.lists(
    st.tuples(st.sampled_from(["noise", "line", "pretty"]), st.sampled_from(NOISE), st.text(max_size=10)),
    max_size=8,
)


@given(PIECES, st.integers(1, 50))
def test_whole_lines_survive_any_noise_and_any_cut(pieces: list[tuple[str, str, str]], cut: int) -> None:
    wanted = []
    data = b""
    for key, (kind, noise, words) in enumerate(pieces):
        if kind == "noise":
            data += noise.encode() + b"\n"
        else:
            wanted.append(message(key, words=words))
            data += json.dumps(wanted[-1]).encode() + b"\r\n"
    lines = Lines()
    got = [v for i in range(0, len(data), cut) for v in lines.feed(data[i : i + cut])]
    assert [v for v in got if isinstance(v, dict) and "jsonrpc" in v] == wanted


@given(st.lists(st.text(), max_size=4), st.integers(0, 4), st.integers(1, 30))
def test_pretty_printed_messages_are_joined(words: list[str], indent: int, cut: int) -> None:
    wanted = [
        message(i, words=word, more={"[": ["{", '"', "\\"], "empty": {}}) for i, word in enumerate(words)
    ]
    data = b"".join(json.dumps(m, indent=indent).encode() + b"\n" for m in wanted)
    lines = Lines()
    got = [v for i in range(0, len(data), cut) for v in lines.feed(data[i : i + cut])]
    assert got == wanted
    assert lines.noise == 0


def test_noise_is_counted_and_the_first_of_it_kept() -> None:
    lines = Lines()
    assert lines.feed(b"hello\n{'not': 'json'}\n\n  \n") == []
    assert (lines.noise, lines.first_noise) == (2, "hello")


def test_a_line_over_the_limit_is_lost_and_the_next_one_is_not() -> None:
    lines = Lines(limit=100)
    long = json.dumps(message(7, words="x" * 500)).encode()
    got = []
    for i in range(0, len(long), 40):
        got += lines.feed(long[i : i + 40])
    got += lines.feed(b"\n" + json.dumps(message(8)).encode() + b"\n")
    assert got == [Lost("larger than 0 MiB", 7), message(8)]


def test_pretty_printing_over_the_limit_is_lost_too() -> None:
    lines = Lines(limit=300)
    long = json.dumps(message(7, words=["x" * 20] * 20), indent=1).encode() + b"\n"
    got = lines.feed(long)
    assert got[0] == Lost("larger than 0 MiB", 7)
    assert lines.feed(json.dumps(message(8)).encode() + b"\n") == [message(8)]


class Wire:
    """A transport that plays back chunks, then ends, and keeps what was sent."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)
        self.sent: list[Any] = []

    async def send(self, data: bytes) -> None:
        self.sent.append(json.loads(data))

    async def receive(self) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""


async def ask(channel: Channel, *keys: int) -> None:
    for key in keys:
        await channel.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=key, method="m")))


@pytest.mark.asyncio
@pytest.mark.parametrize("key", ["1", 1.0, "1.0"])
async def test_answers_find_their_request_however_the_id_is_written(key: Any) -> None:
    channel = Channel(Wire(json.dumps({"jsonrpc": "2.0", "id": key, "result": {}}).encode() + b"\n"))
    await ask(channel, 1)
    got = (await channel.receive()).message
    assert isinstance(got, JSONRPCResponse)
    assert got.id == 1


@pytest.mark.asyncio
async def test_what_nobody_waits_for_is_dropped() -> None:
    lines = [
        message(9),
        {"jsonrpc": "2.0", "method": "notifications/x"},
        {"id": 1},
        5,
        [],
        {"id": [], "result": {}},
    ]
    channel = Channel(Wire(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
    await ask(channel, 1)
    with pytest.raises(anyio.EndOfStream):
        await channel.receive()
    assert (channel.dropped, channel.lines.noise) == (4, 1)
    assert channel.ended == "the server closed its output"


@pytest.mark.asyncio
async def test_an_error_without_an_id_is_an_answer_only_if_a_request_was_not_read() -> None:
    # Some servers answer our notifications, which nobody asked them to: not the pending request's answer.
    said = [
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no such notification"}},
        {"jsonrpc": "2.0", "id": None, "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "parse error"}},
    ]
    channel = Channel(Wire(b"".join(json.dumps(line).encode() + b"\n" for line in said)))
    await ask(channel, 1)
    got = (await channel.receive()).message
    assert isinstance(got, JSONRPCError)
    assert (got.id, got.error.message, channel.dropped) == (1, "parse error", 2)


@pytest.mark.parametrize("head", ["loading... ", "[INFO] ", "{x} ", "{ open ", '{"a": 1}'])
def test_messages_are_found_behind_other_text_on_their_line(head: str) -> None:
    both = json.dumps(message(1)) + json.dumps(message(2))
    got = Lines().feed(head.encode() + both.encode() + b"\n")
    assert [v for v in got if "jsonrpc" in v] == [message(1), message(2)]


@pytest.mark.asyncio
async def test_an_answer_that_cannot_be_read_becomes_the_error_of_its_request() -> None:
    deep = b'{"jsonrpc": "2.0", "id": 2, "result": {"x": ' + b"[" * 5000 + b"]" * 5000 + b"}}\n"
    channel = Channel(Wire(deep))
    await ask(channel, 1, 2)
    got = (await channel.receive()).message
    assert isinstance(got, JSONRPCError)
    assert got.id == 2


@pytest.mark.asyncio
async def test_a_flood_ends_the_channel_and_lets_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "MAX_UNASKED", 10_000)
    task = asyncio.create_task(asyncio.sleep(0))
    channel = Channel(Wire(*[b'{"jsonrpc":"2.0","method":"notifications/x"}\n'] * 1000))
    with pytest.raises(anyio.EndOfStream):
        await channel.receive()
    assert channel.ended == "the server flooded its output"
    assert task.done()

"""The engine's stream of one container, without an engine: frames, heads, ends and back-pressure."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas_gym.errors import StartError, WireError
from atlas_gym.runtime.attach import Attached, Frames, attach

pieces = st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.binary(max_size=300)), max_size=20)


@given(frames=pieces, cuts=st.lists(st.integers(0, 6000), max_size=40))
def test_frames_are_taken_apart_whatever_pieces_they_come_in(
    frames: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(bytes((n, 0, 0, 0)) + len(part).to_bytes(4, "big") + part for n, part in frames)
    ends = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    decoder = Frames()
    found = [hit for a, b in itertools.pairwise(ends) for hit in decoder.feed(data[a:b])]
    for number in (1, 2, 3):
        expected = b"".join(part for n, part in frames if n == number)
        assert b"".join(part for n, part in found if n == number) == expected
    order = [n for n, part in frames if part]
    assert [n for i, (n, _) in enumerate(found) if i == 0 or found[i - 1][0] != n] == [
        n for i, n in enumerate(order) if i == 0 or order[i - 1] != n
    ]


@pytest.mark.parametrize(
    "data", [b"\x04\0\0\0\0\0\0\x01x", b"\x01\0\x01\0\0\0\0\x01x", b"HTTP/1.1 200 OK\r\n"]
)
def test_what_is_no_frame_is_an_error(data: bytes) -> None:
    with pytest.raises(WireError, match="where a frame had to begin"):
        Frames().feed(data)


class Engine:
    """The other end of one attached stream."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def frame(self, number: int, data: bytes) -> None:
        self.writer.write(bytes((number, 0, 0, 0)) + len(data).to_bytes(4, "big") + data)


@asynccontextmanager
async def attached(
    tmp_path: Path, answer: bytes, stderr: Callable[[bytes], None] = lambda data: None
) -> AsyncIterator[tuple[Attached, Engine, asyncio.Event]]:
    """A stream attached to a listener that answers the request with `answer`."""
    met: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"POST /containers/name/attach?")
        writer.write(answer)
        met.set_result(Engine(reader, writer))

    place = str(tmp_path / "engine.sock")
    server = await asyncio.start_unix_server(serve, place)
    try:
        stream = await attach(place, "name", stderr, ended.set)
        yield stream, await met, ended
        stream.abort()
        await ended.wait()
    finally:
        if met.done():
            met.result().writer.close()
        server.close()


HEAD = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


@pytest.mark.asyncio
async def test_bytes_that_come_with_the_head_are_not_lost(tmp_path: Path) -> None:
    said: list[bytes] = []
    early = b"\x02\0\0\0\0\0\0\x03err\x01\0\0\0\0\0\0\x05early"
    async with attached(tmp_path, HEAD + early, said.append) as (stream, _, _):
        assert await stream.receive() == b"early"
        assert said == [b"err"]


@pytest.mark.asyncio
async def test_the_end_of_stdin_passes_and_output_still_comes(tmp_path: Path) -> None:
    async with attached(tmp_path, HEAD) as (stream, peer, ended):
        await stream.send(b"last words")
        stream.close_stdin()
        stream.close_stdin()
        assert await peer.reader.read() == b"last words"
        peer.frame(1, b"heard")
        assert await stream.receive() == b"heard"
        with pytest.raises(WireError):
            await stream.send(b"more")
        peer.writer.close()
        assert await stream.receive() == b""
        await ended.wait()
        assert stream.failure == ""


@pytest.mark.asyncio
async def test_a_sender_waits_for_a_slow_reader_and_the_engine_for_us(tmp_path: Path) -> None:
    async with attached(tmp_path, HEAD) as (stream, peer, _):
        sending = asyncio.create_task(stream.send(b"x" * 10_000_000))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not sending.done()
        assert await peer.reader.readexactly(10_000_000) == b"x" * 10_000_000
        await sending
        raw: socket.socket = peer.writer.get_extra_info("socket")._sock
        chunk = b"\x01\0\0\0\0\x01\0\0" + b"y" * 65536
        sent = refused = 0
        rest = b""
        while refused < 200 and sent < 64 << 20:
            rest = rest or chunk
            try:
                count = raw.send(rest)
            except BlockingIOError:
                refused += 1
                await asyncio.sleep(0)
            else:
                sent, rest, refused = sent + count, rest[count:], 0
        assert refused == 200, "everything was read although nobody asked for it"
        got = 0
        while got < (sent // len(chunk)) * 65536:
            got += len(await stream.receive())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 21\r\n\r\n" + b'{"message":"no such"}', "no such"),
        (b"HTTP/1.1 409 Conflict\r\nContent-Length: 4\r\n\r\nbusy", "409 Conflict: busy"),
    ],
)
async def test_a_refusal_is_said(tmp_path: Path, answer: bytes, words: str) -> None:
    with pytest.raises(StartError, match=words):
        async with attached(tmp_path, answer):
            pass


@pytest.mark.asyncio
async def test_bytes_that_are_no_frames_end_the_stream(tmp_path: Path) -> None:
    async with attached(tmp_path, HEAD + b"garbage that is long enough") as (stream, _, ended):
        assert await stream.receive() == b""
        await ended.wait()
        assert "where a frame had to begin" in stream.failure

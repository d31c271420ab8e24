"""The read end of a pipe: nothing is lost to a cancelled reader, nothing is read for nobody."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from atlas_gym.runtime.streams import Reader

Pipe = tuple[Reader, int]
pytestmark = pytest.mark.asyncio


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reading, writing = os.pipe()
    yield Reader(reading), writing
    os.close(writing)


async def waiting(reader: Reader) -> asyncio.Task[bytes]:
    """A task that waits in `receive`."""
    task = asyncio.create_task(reader.receive())
    await asyncio.sleep(0)
    return task


async def test_message_after_message(pipe: Pipe) -> None:
    reader, writing = pipe
    for number in range(5):
        task = await waiting(reader)
        os.write(writing, b"%d" % number)
        assert await task == b"%d" % number
    reader.close()


async def test_bytes_that_come_as_the_reader_is_cancelled_are_kept(pipe: Pipe) -> None:
    reader, writing = pipe
    task = await waiting(reader)
    os.write(writing, b"first")
    reader._ready()  # what the loop does; the task has not run since
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    os.write(writing, b"second")
    assert [await reader.receive(), await reader.receive()] == [b"first", b"second"]
    reader.close()


async def test_nothing_is_read_before_somebody_asks(pipe: Pipe) -> None:
    reader, writing = pipe
    task = await waiting(reader)
    os.write(writing, b"asked")
    assert await task == b"asked"
    os.write(writing, b"unasked")
    for _ in range(3):  # turns of the loop, in which the pipe is readable
        await asyncio.sleep(0)
    assert reader._loop is None, "still registered: the loop would turn for ever"
    assert await reader.receive() == b"unasked"
    reader.close()


async def test_ends(pipe: Pipe) -> None:
    reader, _ = pipe
    task = await waiting(reader)
    with pytest.raises(RuntimeError, match="two coroutines"):
        await reader.receive()
    reader.close()
    assert await task == b""
    assert await reader.receive() == b""
    reader.close()


async def test_the_end_of_the_stream() -> None:
    reading, writing = os.pipe()
    reader = Reader(reading)
    task = await waiting(reader)
    os.close(writing)
    assert await task == b""
    assert await reader.receive() == b""
    reader.close()

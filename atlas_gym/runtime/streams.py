"""Pipes on an asyncio loop, without threads and without buffers of their own.

Owns waiting for readiness, back-pressure, and the bounded tail of standard error. Does not know what is
at the other end.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterable
from typing import Final

from atlas_gym.errors import WireError

_CHUNK: Final = 1 << 16
_MAX_CHUNK: Final = 1 << 20


class Reader:
    """The read end of a pipe. Nothing is read before somebody asks: the pipe is the back-pressure.

    It stays registered with the loop from one `receive` to the next, which saves two system calls a message,
    and is taken off when bytes come that nobody waits for.
    """

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._size = _CHUNK
        self._waiter: asyncio.Future[bytes] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where it is registered."""
        self._kept: bytes | None = None
        """Read for a `receive` that was cancelled at that moment."""

    async def receive(self) -> bytes:
        """The next bytes, at most 1 MiB; `b""` at the end of the stream or when closed."""
        if self._waiter is not None:
            raise RuntimeError("two coroutines read the same stream")
        if self._kept is not None:
            data, self._kept = self._kept, None
            return data
        if self._fd < 0:
            return b""
        if self._loop is None:
            found = self._read()
            if found is not None:
                return found
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._fd, self._ready)
        waiter: asyncio.Future[bytes] = self._loop.create_future()
        self._waiter = waiter
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._kept = waiter.result()
            raise
        finally:
            self._waiter = None

    def _read(self) -> bytes | None:
        """What is there; None when that is nothing yet."""
        try:
            data = os.read(self._fd, self._size)
        except BlockingIOError:
            return None
        except OSError as exc:
            if exc.errno in (errno.EIO, errno.ECONNRESET):
                return b""
            raise
        if len(data) == self._size < _MAX_CHUNK:
            self._size *= 2
        return data

    def _ready(self) -> None:
        if self._waiter is None or self._waiter.done():
            self._unregister()
            return
        try:
            data = self._read()
        except OSError as exc:
            self._unregister()
            self._waiter.set_exception(exc)
            return
        if data is not None:
            self._waiter.set_result(data)
            if not data:
                self._unregister()

    def _unregister(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop = None

    def close(self) -> None:
        """Close the pipe; a waiting `receive` gets `b""`. Idempotent."""
        if self._fd < 0:
            return
        self._unregister()
        fd, self._fd = self._fd, -1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(b"")
        os.close(fd)


class Writer:
    """The write end of a pipe; messages of concurrent senders do not mix."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._lock = asyncio.Lock()
        self._waiter: asyncio.Future[None] | None = None

    async def send(self, data: bytes) -> None:
        """Write all of `data`. A cancelled call may have written a part: close the stream then.

        Raises:
            WireError: The reader is gone, or this end was closed.
        """
        async with self._lock:
            rest = memoryview(data)
            while rest:
                if self._fd < 0:
                    raise WireError("The stream is closed.")
                try:
                    rest = rest[os.write(self._fd, rest[:_MAX_CHUNK]) :]
                except BlockingIOError:
                    await self._writable()
                except (BrokenPipeError, ConnectionResetError) as exc:
                    raise WireError("The other end of the stream is gone.") from exc

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        loop.add_writer(self._fd, _wake, self._waiter)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if self._fd >= 0:
                loop.remove_writer(self._fd)

    def close(self) -> None:
        """Close the pipe; a waiting `send` raises. Idempotent."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        if self._waiter is not None:
            asyncio.get_running_loop().remove_writer(fd)
            _wake(self._waiter)
        os.close(fd)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Tail:
    """Reads a pipe whenever it has something, and keeps only the end of it.

    Args:
        fd: Read end of a pipe; owned from now on. -1: there is none, `feed` brings what is to be kept.
        secrets: Strings that are replaced when the tail is shown.
        keep: Bytes to keep.
    """

    def __init__(self, fd: int, secrets: Iterable[str] = (), keep: int = 8192) -> None:
        self._fd = fd
        self._secrets = sorted((s for s in secrets if len(s) >= 4), key=len, reverse=True)
        self._keep = keep
        self._margin = max((len(s.encode()) for s in self._secrets), default=0)
        self._cut = False
        self._data = bytearray()
        self._loop = asyncio.get_running_loop()
        if fd >= 0:
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self.drain)

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._data += data
        if len(self._data) > self._keep + self._margin:
            del self._data[: -self._keep - self._margin]
            self._cut = True

    def drain(self) -> None:
        """Take what is there now, at most 1 MiB, so that a flood cannot starve the loop."""
        for _ in range(_MAX_CHUNK // _CHUNK):
            if self._fd < 0:
                return
            try:
                data = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.close()
                return
            self.feed(data)

    def text(self) -> str:
        """The last lines, at most `keep` bytes, with secrets and control characters replaced."""
        self.drain()
        text = self._data.decode("utf-8", "replace")
        for secret in self._secrets:
            text = text.replace(secret, "***")
        if self._cut:  # what is left of a secret that the cut went through
            text = text[self._margin :]
        text = "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
        return text[-self._keep :].strip()

    def close(self) -> None:
        """Stop reading. Idempotent."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

"""A container's streams: one connection to the engine that carries stdin in, stdout and stderr out.

Owns the upgrade of the connection, the frames that tell stdout from stderr, and back-pressure both ways.
Does not know what is in the container. The SDK's own attach loses what its response had buffered already
(docker-py #2466) and reads in threads; here every byte after the response's head is the container's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable
from typing import Final

from atlas_gym.errors import StartError, WireError

_HEADER: Final = 8
_STDOUT: Final = 1
_STREAMS: Final = 4
"""Numbers of streams: 0 stdin (never sent), 1 stdout, 2 stderr, 3 what the engine itself has to say."""
_HIGH: Final = 1 << 20
"""Bytes of stdout that may wait for a reader before the engine is read no further."""
_MAX_HEAD: Final = 1 << 16


class Frames:
    """Takes the engine's stream apart, whatever pieces it arrives in.

    A frame is one byte with the number of its stream, three zeros, the length (4 bytes, big-endian) and the
    data. Data is handed on as it comes: no frame is ever held whole.
    """

    def __init__(self) -> None:
        self._header = b""
        self._stream = 0
        self._left = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """(number of the stream, data) for what is complete enough to be handed on.

        Raises:
            WireError: The bytes are no frames.
        """
        found: list[tuple[int, bytes]] = []
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                found.append((self._stream, piece))
                self._left -= len(piece)
                at += len(piece)
                continue
            more = data[at : at + _HEADER - len(self._header)]
            self._header += more
            at += len(more)
            if len(self._header) == _HEADER:
                if self._header[0] >= _STREAMS or any(self._header[1:4]):
                    raise WireError(f"The engine sent {self._header!r} where a frame had to begin.")
                self._stream, self._left = self._header[0], int.from_bytes(self._header[4:], "big")
                self._header = b""
        return found


class Attached(asyncio.Protocol):
    """The streams of one container. Made by `attach`, on the loop that it stays with.

    Args:
        request: Sent first.
        stderr: Called with what the container writes to standard error.
        ended: Called once, when nothing more will come.
    """

    def __init__(self, request: bytes, stderr: Callable[[bytes], None], ended: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        self.upgraded: asyncio.Future[None] = loop.create_future()
        self.failure = ""
        """Why it ended, when it was not the container's end."""
        self._request = request
        self._stderr = stderr
        self._on_end = ended
        self._head = b""
        self._frames = Frames()
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._paused = False
        self._over = False
        self._finished = False
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._transport: asyncio.Transport | None = None

    # What the loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the streams."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._writable.set()
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Sort what came."""
        if not self.upgraded.done():
            self._head += data
            head, found, data = self._head.partition(b"\r\n\r\n")
            if not found and len(self._head) < _MAX_HEAD:
                return
            if head[8:13] not in (b" 101 ", b" 200 "):
                if found and len(data) >= _length(head):  # the engine would keep the connection
                    self.abort()
                return
            self.upgraded.set_result(None)
        try:
            frames = self._frames.feed(data)
        except WireError as exc:
            self.failure = str(exc)
            self.abort()
            return
        for stream, piece in frames:
            if stream == _STDOUT:
                self._waiting.append(piece)
                self._size += len(piece)
            else:
                self._stderr(piece)
        if self._waiting:
            self._readable.set()
        if self._size > _HIGH and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The container's streams are at their end; so is the connection."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing more will come."""
        if exc is not None:
            self.failure = self.failure or f"the connection to the engine broke: {exc}"
        self._over = True
        if not self.upgraded.done():
            self.upgraded.set_exception(StartError(_refusal(self._head) or self.failure or "it hung up"))
            self.upgraded.exception()  # read here too: whoever waits may have been cancelled
        self._readable.set()
        self._writable.set()
        self._on_end()

    def pause_writing(self) -> None:
        """The engine reads slower than we write."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The engine has caught up."""
        self._writable.set()

    # What the link calls.

    async def receive(self) -> bytes:
        """Everything that waits; `b""` at the end."""
        while not self._waiting:
            if self._over:
                return b""
            self._readable.clear()
            await self._readable.wait()
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        if self._paused and not self._over and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def send(self, data: bytes) -> None:
        """Write all of `data`, waiting while the container does not read.

        Raises:
            WireError: The container, or the connection to it, is gone.
        """
        if self._finished or self._over or self._transport is None or self._transport.is_closing():
            raise WireError("The stream is closed.")
        self._transport.write(data)
        await self._writable.wait()
        if self._over:
            raise WireError("The other end of the stream is gone.")

    def close_stdin(self) -> None:
        """Give the container the end of its stdin; its output stays open. Idempotent."""
        if self._finished or self._over or self._transport is None or self._transport.is_closing():
            return
        self._finished = True
        with contextlib.suppress(OSError):  # the engine has gone already
            self._transport.write_eof()

    def abort(self) -> None:
        """End the connection at once; what waits to be read stays. Idempotent."""
        if self._transport is not None:
            self._transport.abort()


def request(container: str) -> bytes:
    """What asks an engine for all streams of a container, by its id or name."""
    return (
        f"POST /containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1 HTTP/1.1\r\n"
        "Host: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"
    ).encode()


async def attach(
    socket_path: str, container: str, stderr: Callable[[bytes], None], ended: Callable[[], None]
) -> Attached:
    """Take hold of a container's streams. Do it before it is started: then nothing can be missed.

    Args:
        socket_path: The engine's Unix socket.
        container: Id or name.
        stderr: Called with what it writes to standard error.
        ended: Called once, when nothing more will come.

    Raises:
        StartError: The engine does not answer or refuses; holds its words.
    """
    try:
        _, stream = await asyncio.get_running_loop().create_unix_connection(
            lambda: Attached(request(container), stderr, ended), socket_path
        )
    except OSError as exc:
        raise StartError(f"the engine does not answer at {socket_path}: {exc}") from exc
    try:
        await stream.upgraded
    except BaseException:  # cancelled too: the socket may not stay
        stream.abort()
        raise
    return stream


def _length(head: bytes) -> int:
    """Bytes of the body that a head promises; 0 where it does not say."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            with contextlib.suppress(ValueError):
                return int(line.partition(b":")[2])
    return 0


def _refusal(head: bytes) -> str:
    """What an answer that is no upgrade says, in one line; "" when there is none."""
    line, _, rest = head.partition(b"\r\n")
    if not line.startswith(b"HTTP/"):
        return ""
    body = rest.partition(b"\r\n\r\n")[2].decode("utf-8", "replace").strip()
    with contextlib.suppress(ValueError, TypeError, KeyError):
        body = json.loads(body[body.index("{") : body.rindex("}") + 1])["message"]
    return f"the engine answered {line.decode('latin-1').partition(' ')[2]}: {body[:300]}"

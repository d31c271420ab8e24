"""JSON-RPC messages over a byte link: framing that survives what real servers write to stdout.

Owns lines, noise, pretty-printed and oversized answers, answers that cannot be read, floods. Gives the
SDK's dispatcher its two streams. Does not know methods, sessions or deadlines.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Protocol, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
)

from atlas_gym.errors import WireError
from atlas_gym.wire.codec import MAX_DEPTH, Unreadable, encode, parse

MAX_MESSAGE: Final = 32 * 2**20
"""Bytes of one message. A larger answer becomes an error of its call; the session lives on."""

MAX_UNASKED: Final = 2 * MAX_MESSAGE
"""Bytes that a server may write between two answers, before it is given up as flooding."""

MAX_REQUESTS: Final = 1_000
"""Requests that a server may make of us between two answers, before it is given up as flooding."""

_STRING: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"')
_ID: Final = re.compile(r'"id"\s*:\s*"?(\d+)')
_UNREAD: Final = (PARSE_ERROR, INVALID_REQUEST)
"""What a server answers, without an id, to a request that it could not read."""
_WHOLE: Final = re.compile(r"[0-9]{1,15}(\.0)?")
_STARTS: Final = re.compile(r'(?={"jsonrpc")')
_MARK: Final = '{"jsonrpc"'


class Transport(Protocol):
    """The two coroutines of a link that a channel needs."""

    async def send(self, data: bytes) -> None:
        """Write all of `data`; WireError when the server is gone."""

    async def receive(self) -> bytes:
        """The next bytes; b"" at the end."""


class Lines:
    """Cuts a byte stream into JSON values. Anything else is noise, counted, the first of it kept."""

    def __init__(self, limit: int = MAX_MESSAGE) -> None:
        self.noise = 0
        self.first_noise = ""
        self._limit = limit
        self._chunks: list[bytes] = []
        self._size = 0
        self._skipping = False
        self._open: list[str] = []
        self._open_size = 0
        self._open_depth = 0

    def feed(self, chunk: bytes) -> list[Any]:
        """The values that `chunk` completes; a `Lost` stands for one that cannot be read."""
        values: list[Any] = []
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._take(chunk[start:end], values)
            if self._skipping:
                self._skipping = False
            else:
                line = b"".join(self._chunks)
                self._line(line, values)
            self._chunks.clear()
            self._size = 0
            start = end + 1
        self._take(chunk[start:], values)
        return values

    def _take(self, piece: bytes, values: list[Any]) -> None:
        if not piece or self._skipping:
            return
        self._chunks.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            values.append(
                _lost(self._chunks[0].decode("utf-8", "replace"), f"larger than {self._limit >> 20} MiB")
            )
            self._chunks.clear()
            self._skipping = True

    def _line(self, raw: bytes, values: list[Any]) -> None:
        text = raw.decode("utf-8", "replace").strip("\ufeff \t\r\0")
        if not text or self._value(text, values):
            return
        if text.find(_MARK, 1) > 0:
            # A log line without its line break, or two messages on one line.
            for part in _STARTS.split(text):
                if part.strip() and not self._value(part.strip(), values):
                    self._join(part.strip(), values)
        else:
            self._join(text, values)

    def _value(self, text: str, values: list[Any]) -> bool:
        """Take `text` if it is one whole JSON value, or a message that is lost."""
        if text[0] not in "{[":
            return False
        try:
            value = parse(text, MAX_DEPTH + 10)
        except Unreadable as exc:
            if _MARK not in text[:40] or str(exc).startswith("not JSON"):
                return False
            value = _lost(text, str(exc))
        if self._open and not (isinstance(value, Lost) or _is_message(value)):
            return False
        self._drop_open()
        values.append(value)
        return True

    def _join(self, text: str, values: list[Any]) -> None:
        """Collect the lines of one pretty-printed message until its brackets close."""
        if not self._open and text[0] not in "{[":
            self._noise(text)
            return
        bare = _STRING.sub("", text)
        self._open.append(text)
        self._open_size += len(text)
        self._open_depth += bare.count("{") + bare.count("[") - bare.count("}") - bare.count("]")
        if self._open_size > self._limit:
            values.append(_lost("".join(self._open[:8]), f"larger than {self._limit >> 20} MiB"))
            self._drop_open()
        elif self._open_depth <= 0:
            whole = "\n".join(self._open)
            try:
                values.append(parse(whole, MAX_DEPTH + 10))
                self._open.clear()
            except Unreadable as exc:
                if '"jsonrpc"' in whole[:400]:
                    values.append(_lost(whole, str(exc)))
                    self._open.clear()
            self._drop_open()

    def _drop_open(self) -> None:
        for text in self._open:
            self._noise(text)
        self._open.clear()
        self._open_size = self._open_depth = 0

    def _noise(self, text: str) -> None:
        self.noise += 1
        self.first_noise = self.first_noise or text.strip()[:80]


@dataclass(frozen=True, slots=True)
class Lost:
    """A message that cannot be read."""

    why: str
    id: int | None = None
    """Its id, where one can be seen."""
    answer: bool = True
    """Whether it may be an answer: it shows no method."""


def _lost(text: str, why: str) -> Lost:
    found = _ID.search(text[:200]) or _ID.search(text[-200:])
    return Lost(why, int(found[1]) if found else None, '"method"' not in text[:200])


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "jsonrpc" in value


class Channel:
    """One link as the two streams of a dispatcher: iterate it for messages, `send` messages.

    Answers that nobody waits for and notifications are dropped here, so that a talkative server costs
    its own bytes and nothing else.
    """

    def __init__(self, link: Transport) -> None:
        self.ended = ""
        """Why no more messages come; "" while they may."""
        self.dropped = 0
        self.lines = Lines()
        self._link = link
        self._waiting: set[int | str] = set()
        self._inbox: deque[SessionMessage] = deque()
        self._unasked_bytes = 0
        self._requests = 0
        self._writing = asyncio.Lock()

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message.

        Raises:
            Unsendable: It holds what JSON cannot carry; nothing was written.
            anyio.BrokenResourceError: The server is gone.
        """
        message = item.message
        data = encode(_plain(message)) + b"\n"
        if isinstance(message, JSONRPCRequest):
            self._waiting.add(message.id)
        try:
            async with self._writing:
                await self._link.send(data)
        except WireError as exc:
            self.ended = self.ended or str(exc)
            raise anyio.BrokenResourceError from exc

    async def receive(self) -> SessionMessage:
        """The next message that the dispatcher must see.

        Raises:
            anyio.EndOfStream: The server closed its output, or was given up; `ended` says which.
        """
        while not self._inbox:
            chunk = await self._link.receive()
            if not chunk:
                self.ended = self.ended or "the server closed its output"
                raise anyio.EndOfStream
            self._unasked_bytes += len(chunk)
            for value in self.lines.feed(chunk):
                self._sort(value)
            if self._unasked_bytes > MAX_UNASKED or self._requests > MAX_REQUESTS:
                self.ended = "the server flooded its output"
                raise anyio.EndOfStream
            if not self._inbox:
                await asyncio.sleep(0)  # a link with buffered bytes would otherwise never let others run
        return self._inbox.popleft()

    def _sort(self, value: Any) -> None:
        for raw in value if isinstance(value, list) else (value,):
            message = self._answer_lost(raw) if isinstance(raw, Lost) else self._message(raw)
            if message is None:
                self.dropped += 1
                continue
            if isinstance(message, JSONRPCRequest):
                self._requests += 1
            else:
                self._requests = self._unasked_bytes = 0
            self._inbox.append(SessionMessage(message))

    def _message(self, raw: Any) -> JSONRPCMessage | None:
        """The message to pass on, or None. Built without validation: a model must not refuse an answer."""
        if not isinstance(raw, dict):
            return None
        if isinstance(raw.get("method"), str):
            if isinstance(raw.get("id"), (int, str)):
                params = raw.get("params")
                return JSONRPCRequest.model_construct(
                    jsonrpc="2.0",
                    id=raw["id"],
                    method=raw["method"],
                    params=params if isinstance(params, dict) else None,
                )
            return None
        if "result" not in raw and "error" not in raw:
            return None
        key = self._answered(raw.get("id"))
        if key is None and raw.get("id") is None and _error(raw.get("error")).code in _UNREAD:
            key = self._only()
        if key is None:
            return None
        if raw.get("error") is not None:
            return JSONRPCError.model_construct(jsonrpc="2.0", id=key, error=_error(raw["error"]))
        if not isinstance(raw["result"], dict):
            return _refusal(key, f"the server's answer is no object but {type(raw['result']).__name__}")
        return JSONRPCResponse.model_construct(jsonrpc="2.0", id=key, result=raw["result"])

    def _answer_lost(self, lost: Lost) -> JSONRPCMessage | None:
        key = self._answered(lost.id) if lost.answer else None
        if key is None and lost.answer:
            key = self._only()
        return None if key is None else _refusal(key, f"the server's answer cannot be read: {lost.why}")

    def _answered(self, key: Any) -> int | str | None:
        """The waiting request that an answer is for, however it writes the id."""
        if isinstance(key, (float, str)) and _WHOLE.fullmatch(str(key)):
            key = int(float(key))
        if not isinstance(key, (int, str)) or key not in self._waiting:
            return None
        self._waiting.discard(key)
        return key

    def _only(self) -> int | str | None:
        """The one request that waits, for answers that do not say whose they are."""
        return self._waiting.pop() if len(self._waiting) == 1 else None

    async def aclose(self) -> None:
        """Nothing: the link is closed by whoever opened it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


def _plain(message: JSONRPCMessage) -> dict[str, Any]:
    """The message as a dict, without the cost and the opinions of a model dump."""
    match message:
        case JSONRPCRequest(id=key, method=method, params=None):
            return {"jsonrpc": "2.0", "id": key, "method": method}
        case JSONRPCRequest(id=key, method=method, params=params):
            return {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
        case JSONRPCNotification(method=method, params=None):
            return {"jsonrpc": "2.0", "method": method}
        case JSONRPCNotification(method=method, params=params):
            return {"jsonrpc": "2.0", "method": method, "params": params}
        case JSONRPCResponse(id=key, result=result):
            return {"jsonrpc": "2.0", "id": key, "result": result}
        case JSONRPCError(id=key, error=error):
            return {"jsonrpc": "2.0", "id": key, "error": {"code": error.code, "message": error.message}}


def _error(raw: Any) -> ErrorData:
    """A server's error object, whatever it looks like."""
    fields = raw if isinstance(raw, dict) else {"message": raw}
    code, text = fields.get("code"), fields.get("message")
    if not isinstance(text, str):
        text = encode(text).decode() if text is not None else "the server gave no message"
    return ErrorData.model_construct(
        code=code if isinstance(code, int) else INTERNAL_ERROR, message=text, data=fields.get("data")
    )


def _refusal(key: int | str, why: str) -> JSONRPCError:
    return JSONRPCError.model_construct(jsonrpc="2.0", id=key, error=ErrorData(code=PARSE_ERROR, message=why))

"""Bodies of HTTP answers as JSON-RPC lines: server-sent events, and which message is the answer.

Owns the cutting of event streams and reading just enough of a message to know whose it is. Does not know
connections, sessions or what methods do.
"""

from __future__ import annotations

import contextlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final

MAX_BODY: Final = 32 * 2**20
"""Bytes of one message."""
_READ: Final = 1 << 16
"""A larger message is judged by its ends alone, because whoever gets it reads it anyway."""
_BREAK: Final = re.compile(rb"[\r\n]+")


class TooLong(Exception):
    """One message is larger than `MAX_BODY`."""


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event that carries a message, or only an id to go on from."""

    data: bytes
    id: str = ""
    retry: int | None = None
    """Milliseconds to wait before coming back."""


class Events:
    """Cuts a stream into events. What is no field of an event is ignored, as the format demands."""

    def __init__(self, limit: int = MAX_BODY) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0
        self._data: list[bytes] = []
        self._kind = b""
        self._id = ""
        self._retry: int | None = None
        self._after_return = False

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes.

        Raises:
            TooLong: One of them is.
        """
        if self._after_return and chunk[:1] == b"\n":
            chunk = chunk[1:]
        self._after_return = chunk[-1:] == b"\r" or (self._after_return and not chunk)
        self._size += len(chunk)
        if b"\n" not in chunk and b"\r" not in chunk:
            self._rest.append(chunk)
            self._bounded()
            return []
        events = []
        lines = b"".join((*self._rest, chunk)).splitlines(keepends=True)
        last = b"" if lines[-1].endswith((b"\n", b"\r")) else lines.pop()
        self._rest = [last] if last else []
        for line in lines:
            event = self._line(line.rstrip(b"\r\n"))
            if event is not None:
                events.append(event)
        self._size = len(last) + sum(map(len, self._data))
        self._bounded()
        return events

    def end(self) -> list[Event]:
        """What the end of the stream left unfinished: some servers leave out the last empty line."""
        line, self._rest = b"".join(self._rest), []
        found = [self._line(line), self._line(b"")] if line else [self._line(b"")]
        return [event for event in found if event is not None]

    def _bounded(self) -> None:
        if self._size > self._limit:
            raise TooLong

    def _line(self, line: bytes) -> Event | None:
        if not line:
            return self._event()
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        match name:
            case b"data":
                self._data.append(value)
            case b"event":
                self._kind = value
            case b"id":
                self._id = value.decode("ascii", "replace") if b"\0" not in value else ""
            case b"retry" if value.isdigit():
                self._retry = int(value[:9])
        return None

    def _event(self) -> Event | None:
        data, kind, key, retry = b"\n".join(self._data), self._kind, self._id, self._retry
        self._data, self._kind, self._id, self._retry = [], b"", "", None
        if not (data or key or retry is not None):
            return None
        return Event(data if kind in (b"", b"message") else b"", key, retry)


@dataclass(frozen=True, slots=True)
class Message:
    """One JSON-RPC message, or several in a list, as a line."""

    line: bytes
    """With its line break."""
    answers: bool
    """Whether it holds the answer to the request."""
    value: Any = None
    """What it says; None where it is too large to read, or cannot be read."""


def read(raw: bytes, key: int | str, *, alone: bool) -> Message:
    """Find out whether `raw` answers the request `key`.

    Args:
        raw: The message.
        key: Id of the request.
        alone: Whether it is the whole body of the answer: then it is the answer whatever id it bears.
    """
    line = one_line(raw)
    value = None
    if len(raw) <= _READ:
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(raw)
    if value is None:  # large, or not JSON to us: the reader of the line says what is wrong with it
        return Message(line, b'"method"' not in raw[:200] and b'"jsonrpc"' in raw[:200] + raw[-200:])
    for message in value if isinstance(value, list) else (value,):
        if not isinstance(message, dict) or "method" in message:
            continue
        if not ("result" in message or "error" in message):
            continue
        found = message.get("id")
        if found == key or str(found) == str(key):
            return Message(line, True, value)
        if alone or found is None:
            message["id"] = key
            return Message(json.dumps(value).encode() + b"\n", True, value)
    return Message(line, False, value)


def one_line(raw: bytes) -> bytes:
    """A message as one line: JSON has no line breaks but between its parts."""
    return _BREAK.sub(b" ", raw) + b"\n"


def error_line(key: int | str, code: int, text: str) -> bytes:
    """An error in the server's place."""
    error = {"code": code, "message": text}
    return json.dumps({"jsonrpc": "2.0", "id": key, "error": error}).encode() + b"\n"

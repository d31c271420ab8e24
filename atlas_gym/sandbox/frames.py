"""Length-framed JSON, the one protocol between a sandbox's worker and its host.

A frame is four bytes of length (big endian) and that many bytes of one JSON object. Standard library
only: the host imports this module, the worker loads it by path. Does not know what frames mean.
"""

from __future__ import annotations

import json
import json.scanner
import struct
from typing import Any, Final

MAX_DEPTH: Final = 120
"""Levels of nesting of a message; deeper ones would exhaust the stack of whoever walks them later."""

_HEADER: Final = struct.Struct(">I")
_encode = json.JSONEncoder(separators=(",", ":")).encode
_make_scanner: Any = json.scanner.make_scanner
_scan = _make_scanner(json.JSONDecoder())  # not `decode`: that needs builtins, which a cell may replace


class FrameError(Exception):
    """Bytes that are not a frame, or a frame that is over the limit."""


def pack(message: dict[str, Any]) -> bytes:
    """One frame.

    Raises:
        TypeError, ValueError, RecursionError: `message` holds what JSON cannot.
    """
    body = _encode(message).encode("ascii")
    return _HEADER.pack(len(body)) + body


def too_deep(value: Any, body: bytes) -> bool:
    """Whether a value, of which `body` is the JSON, nests deeper than `MAX_DEPTH`. Without recursion."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list, tuple))
        ]
        if not level:
            return False
    return True


class Decoder:
    """Bytes in, messages out, whatever the chunks were.

    Args:
        limit: The largest body in bytes; a larger one is a `FrameError` before it is received.

    Attributes:
        size: Bytes of the body that was returned last.
    """

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Bytes received and not yet returned as a message."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """Take any chunk of the stream."""
        self._buffer += data

    def next(self) -> dict[str, Any] | None:
        """The next whole message, or None until more bytes came.

        Raises:
            FrameError: Too long, too deep, not JSON, or not a JSON object.
        """
        if len(self._buffer) < _HEADER.size:
            return None
        (size,) = _HEADER.unpack_from(self._buffer)
        if size > self._limit:
            raise FrameError(f"a frame of {size} bytes; at most {self._limit} are read")
        end = _HEADER.size + size
        if len(self._buffer) < end:
            return None
        body = bytes(self._buffer[_HEADER.size : end])
        del self._buffer[:end]
        try:
            text = body.decode("utf-8")
            message, used = _scan(text, 0)
        except (ValueError, RecursionError, StopIteration) as exc:
            raise FrameError(f"a frame that is not JSON ({type(exc).__name__})") from None
        if not isinstance(message, dict) or used != len(text):
            raise FrameError("a frame that is not one JSON object")
        if too_deep(message, body):
            raise FrameError(f"a frame that nests deeper than {MAX_DEPTH} levels")
        self.size = size
        return message

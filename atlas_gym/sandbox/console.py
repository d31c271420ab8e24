"""What cells see as stdin, stdout and stderr: text kept up to a limit, nobody at the keyboard.

Runs inside the worker; standard library only, loaded by path. Does not know cells or frames.
"""

from __future__ import annotations

import io
import sys
from typing import Any


class _Bytes(io.BufferedIOBase):
    """`sys.stdout.buffer`: bytes become text of the same stream."""

    def __init__(self, text: Output) -> None:
        self._text = text

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, data: Any) -> int:
        """Keep what the bytes say in UTF-8."""
        raw = bytes(memoryview(data))
        self._text.write(raw.decode("utf-8", "replace"))
        return len(raw)


class Output(io.TextIOBase):
    """`sys.stdout` and `sys.stderr` of all cells: keeps the first characters, counts the rest."""

    encoding = "utf-8"
    errors = "replace"
    name = "<stdout>"
    mode = "w"

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.buffer = _Bytes(self)
        self.reset()

    def reset(self) -> None:
        """Forget what was written."""
        self._parts: list[str] = []
        self._left = self._limit
        self._total = 0

    def reconfigure(self, **_: object) -> None:
        """Nothing to choose: everything a cell writes is text."""

    def writable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Stays open: later cells write here too."""

    def write(self, text: str) -> int:
        """Keep as much of `text` as the limit leaves."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        text = str.__str__(text)  # of a subclass, which may slice as it likes, the text itself
        if self._left > 0:
            self._parts.append(text[: self._left])
            self._left -= len(self._parts[-1])
        self._total += len(text)
        return len(text)

    def take(self) -> tuple[str, bool]:
        """What was written since the last time, and whether it was cut."""
        text = "".join(self._parts)
        cut = self._total - len(text)
        self.reset()
        if cut:
            text += f"\n[output cut: {cut} of {cut + len(text)} characters not shown]"
        return text, cut > 0


def no_input(prompt: object = "", /) -> str:
    """`input` of cells: shows the prompt, as Python does, and says that there is no answer."""
    sys.stdout.write(str(prompt))
    raise EOFError("input() cannot be used: nobody types here. Put the value into the code.")


def no_exit(code: object = None) -> None:
    """`exit` and `quit` of cells."""
    raise SystemExit(code)


def attach(output: Output) -> None:
    """Make `output` the standard streams; a cell may have replaced them."""
    vars(sys).update(dict.fromkeys(("stdout", "stderr", "__stdout__", "__stderr__"), output))
    vars(sys).update(dict.fromkeys(("stdin", "__stdin__"), io.StringIO()))

"""An exception of a cell as the agent reads it: the traceback of its own frames, and the next step.

Runs inside the worker; standard library only, loaded by path. Whatever the exception does while it is
shown stays here. Does not know how cells are run.
"""

from __future__ import annotations

import collections
import errno
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, Final

_FIRST_FRAMES, _LAST_FRAMES = 5, 10
_LONGEST_CHAIN: Final = 1_000
_LONGEST_NAME: Final = 200
_NO_FILES: Final = (errno.EPERM, errno.EACCES, errno.ENOENT, errno.EAFNOSUPPORT)

_format = traceback.format_exception
type_name: Callable[[type], str] = vars(type)["__name__"].__get__
"""A class's name, whatever its metaclass says."""


def plain(text: str) -> str:
    """The text of a string, whatever its class says."""
    return str.__str__(text)


def _cell_frames(tb: types.TracebackType | None) -> types.TracebackType | None:
    """The same traceback with frames of cells only, and few of them."""
    first: list[types.TracebackType] = []
    last: collections.deque[types.TracebackType] = collections.deque(maxlen=_LAST_FRAMES)
    while tb is not None:
        if tb.tb_frame.f_code.co_filename.startswith("<cell "):
            (first if len(first) < _FIRST_FRAMES else last).append(tb)
        tb = tb.tb_next
    kept: types.TracebackType | None = None
    for entry in reversed([*first, *last]):
        kept = types.TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def _shorten(top: BaseException) -> None:
    waiting: list[BaseException | None] = [top]
    seen: set[int] = set()
    while waiting and len(seen) < _LONGEST_CHAIN:
        exc = waiting.pop()
        if exc is None or id(exc) in seen:
            continue
        seen.add(id(exc))
        exc.__traceback__ = _cell_frames(exc.__traceback__)
        waiting += [exc.__cause__, exc.__context__]
        if isinstance(exc, BaseExceptionGroup):
            waiting += exc.exceptions


def _hint(exc: BaseException, setup: dict[str, Any]) -> str:
    if isinstance(exc, MemoryError):
        return f"Cells may use {setup['memory_mb']} MB: work on smaller pieces, or `del` what is not needed."
    if isinstance(exc, SystemExit):
        return "exit() ends only this cell: the interpreter and its variables stay."
    if isinstance(exc, ModuleNotFoundError) and exc.name:
        if exc.name.partition(".")[0] not in sys.stdlib_module_names:
            return "Only Python's standard library can be imported here."
    elif (
        setup["sealed"]
        and isinstance(exc, OSError)
        and (exc.errno in _NO_FILES or type_name(type(exc)) in ("URLError", "gaierror"))
    ):
        return (
            "Cells reach no files, programs or network: read and write through the servers' tools, "
            "and keep data in variables (io.StringIO and sqlite3's ':memory:' work)."
        )
    return ""


def explain(exc: BaseException, setup: dict[str, Any]) -> tuple[str, str]:
    """The error's text as the agent reads it, and the name of its class. Never raises.

    Args:
        exc: What the cell raised. Its traceback is shortened for good.
        setup: What the host sent at the start: `memory_mb`, `sealed`.
    """
    name = type_name(type(exc))[:_LONGEST_NAME]
    try:
        _shorten(exc)
        text = plain("".join(_format(type(exc), exc, exc.__traceback__)).rstrip("\n"))
    except BaseException as broken:  # noqa: BLE001 - an exception's own __str__ may do anything
        text = f"{name} (its text cannot be shown: {type_name(type(broken))})"
    try:
        hint = _hint(exc, setup)
    except BaseException:  # noqa: BLE001 - so may its __class__ or its attributes
        hint = ""
    return f"{text}\n{hint}" if hint else text, name

"""Example calls of a server (`examples.toml`), from which its lock learns what results look like.

Owns the file's form and how a call takes a value from an earlier result. Does not make the calls.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, ValidationError

from atlas_gym.errors import LockError
from atlas_gym.runtime.catalog import Server
from atlas_gym.task.setup import Record, Setup

_REFERENCE: Final = re.compile(r"\$([a-z_]+)((?:\.[A-Za-z0-9_]+)*)")


class Example(Record):
    """One call. A string argument `$name.id.0` takes a value from the result saved as `name`."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    save: str = ""
    """Name for its result."""


class Examples(Record):
    """What is laid out first, and the calls in order."""

    setup: Setup = Setup()
    calls: tuple[Example, ...] = ()


def load_examples(server: Server) -> Examples:
    """The server's `examples.toml`; empty where there is none.

    Raises:
        LockError: The file is not what it should be.
    """
    if server.folder is None or not (server.folder / "examples.toml").exists():
        return Examples()
    file = server.folder / "examples.toml"
    try:
        return Examples.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, ValidationError) as exc:
        raise LockError(f"{file}: not a list of example calls: {exc}. Correct the file.") from exc


def fill(arguments: Any, saved: Mapping[str, Any]) -> Any:
    """The arguments with every `$name.path` replaced.

    Raises:
        LockError: Nothing was saved under that name, or it holds no such value.
    """
    if isinstance(arguments, dict):
        return {key: fill(value, saved) for key, value in arguments.items()}
    if isinstance(arguments, list):
        return [fill(value, saved) for value in arguments]
    hit = _REFERENCE.fullmatch(arguments) if isinstance(arguments, str) else None
    if hit is None or hit[1] not in saved:
        return arguments
    value = saved[hit[1]]
    for step in hit[2].split(".")[1:]:
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, ValueError, TypeError) as exc:
            raise LockError(f"{arguments}: the saved result has no {step!r}. Correct examples.toml.") from exc
    return value

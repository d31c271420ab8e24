"""Checking what a person passes to the environment: names, types and ranges, before anything starts.

Owns the words of these errors. Does not know what the values are used for, nor reads any file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from atlas_gym.errors import ConfigError, unknown

Name = TypeVar("Name", bound=str)


def one_of(what: str, value: object, known: Sequence[Name]) -> Name:
    """Demand one of the known names, and return it.

    Raises:
        UnknownNameError: With the closest one.
    """
    for name in known:
        if isinstance(value, str) and value == name:
            return name
    raise unknown(what, value, known)


def text(what: str, value: object, example: str) -> str:
    """Demand a text that is not empty, and return it; a path becomes its absolute text.

    Raises:
        ConfigError: It is something else.
    """
    if isinstance(value, os.PathLike):
        return str(os.path.abspath(value))
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{what}={value!r} is not a text; give one, such as {what}={example!r}.")
    return value


def flag(what: str, value: object) -> bool:
    """Demand True or False, and return it.

    Raises:
        ConfigError: It is something else; "no" would count as true.
    """
    if not isinstance(value, bool):
        raise ConfigError(f"{what}={value!r} is neither True nor False.")
    return value


def whole(what: str, value: object, least: int = 0) -> int:
    """Demand a whole number that is not too small, and return it as an int (NumPy's count too).

    Raises:
        ConfigError: It is something else.
    """
    number = None if isinstance(value, bool | str | float) else getattr(value, "__index__", None)
    if number is None or int(number()) < least:
        raise ConfigError(f"{what}={value!r} cannot be used; give a whole number of at least {least}.")
    return int(number())


def texts(what: str, value: object, example: str) -> tuple[str, ...]:
    """Demand a list of texts.

    Raises:
        ConfigError: It is something else, such as one text alone.
    """
    if isinstance(value, list | tuple | set | frozenset) and all(isinstance(v, str) for v in value):
        return tuple(value)
    raise ConfigError(f"{what}={value!r} is not a list of texts; write {what}=[{example!r}].")


def mapping(what: str, value: object, example: str) -> Mapping[str, Any]:
    """Demand a mapping; None is an empty one.

    Raises:
        ConfigError: It is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what}={value!r} is not a mapping; write {what}={example}.")
    return value


def message(value: object) -> str:
    """Demand that an action is text: what no agent can write is a mistake of who runs it.

    Raises:
        ConfigError: It is something else.
    """
    if not isinstance(value, str):
        raise ConfigError(
            f"step takes the agent's message as a text, not {value!r:.80} of type {type(value).__name__}."
        )
    return value

"""The error tree, and the two ways an error is made.

    AtlasError
    ├── ConfigError         a name, option or file that the user gave is wrong
    │   ├── UnknownNameError    not in the list; says the closest one
    │   ├── ManifestError       a server.toml or mcp.json that does not say what it must
    │   └── TaskError           a task, suite, check or template that cannot be used
    ├── LockError           a lock is corrupt, or differs from the server or package
    ├── InstallError        a server's environment cannot be made
    ├── StartError          a server did not start or did not shake hands
    ├── WireError           one MCP session broke (died, timed out, protocol breach)
    ├── SandboxError        the code interpreter cannot start, died or broke its protocol
    ├── ContextError        a tokenizer or template that cannot be used
    ├── StorageError        disk full, cache or output not writable
    ├── TraceError          a trace file that cannot be read
    └── JudgeError          a judge gave no usable verdict

Every class takes one string, because Gymnasium raises worker errors again that way. A message says
what failed, the value, and the next step.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class AtlasError(Exception):
    """Base of everything that atlas-gym raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class ConfigError(AtlasError):
    """A name, option or file that the user gave is wrong."""


class UnknownNameError(ConfigError):
    """A name that is in no list; the message holds the closest one."""


class ManifestError(ConfigError):
    """A server.toml or mcp.json that does not say what it must."""


class TaskError(ConfigError):
    """A task, suite, check or template that cannot be used."""


class LockError(AtlasError):
    """A lock is corrupt, or differs from the server or package it locks."""


class InstallError(AtlasError):
    """A server's environment cannot be made on this machine."""


class StartError(AtlasError):
    """A server did not start or did not shake hands."""


class WireError(AtlasError):
    """One MCP session broke: it died, timed out or broke the protocol."""


class SandboxError(AtlasError):
    """The code interpreter cannot start, died or broke its protocol."""


class ContextError(AtlasError):
    """A tokenizer or chat template that cannot be used."""


class StorageError(AtlasError):
    """Disk full, or a cache or output directory that cannot be written."""


class TraceError(AtlasError):
    """A trace file that cannot be read."""


class JudgeError(AtlasError):
    """A judge gave no usable verdict. Never a score of zero."""


@contextmanager
def boundary(error: type[AtlasError], what: str) -> Iterator[None]:
    """Attribute every unexpected failure inside to one seam.

    Args:
        error: The class that callers of this seam are promised.
        what: What was being done, as the start of the message ("reading tasks/core/suite.toml").

    Raises:
        error: With `what` and the original message. An `AtlasError` passes unchanged.
    """
    try:
        yield
    except AtlasError:
        raise
    except Exception as exc:
        raise error(f"{what}: {type(exc).__name__}: {exc}") from exc


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to `name`, or None when none is near (letter case is ignored)."""
    names = sorted(known)
    folded = {k.casefold(): k for k in reversed(names)}
    hit = difflib.get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.5)
    if hit:
        return folded[hit[0]]
    part = [k for k in names if name and (name.casefold() in k.casefold() or k.casefold() in name.casefold())]
    return part[0] if part else None


def unknown(kind: str, name: object, known: Iterable[str], hint: str = "") -> UnknownNameError:
    """An `UnknownNameError` that names the closest known name and lists some.

    Args:
        kind: What was looked up ("server", "suite", "exposure").
        name: What was asked for; anything that is no text is near to nothing.
        known: Every name that would have been right.
        hint: The next step, added at the end.
    """
    names = sorted(known)
    near = closest(name, names) if isinstance(name, str) else None
    parts = [f"Unknown {kind} {name!r}."]
    if near:
        parts.append(f"Did you mean {near!r}?")
    if names:
        shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
        parts.append(f"Known: {shown}.")
    else:
        parts.append(f"There is no {kind} at all.")
    if hint:
        parts.append(hint)
    return UnknownNameError(" ".join(parts))

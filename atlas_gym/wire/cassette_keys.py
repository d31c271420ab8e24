"""What a call is known by in a cassette: its server, set-up, tool, arguments and the calls before it.

Owns the canonical form of arguments, the chain of earlier calls and the removal of secrets. Does not know
files, sessions or answers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from atlas_gym.types import ToolCall
from atlas_gym.wire.codec import Unsendable, encode

SHORTEST_SECRET: Final = 6
"""Characters from which a variable's value is removed: "1" or "info" is no secret, and stands everywhere."""

REMOVED: Final = "[removed]"
"""What stands in a cassette in the place of a secret."""

_START: Final = hashlib.sha256(b"atlas-gym cassette").hexdigest()


def canonical(value: Any) -> str:
    """One text for one JSON value: keys sorted, no spaces, ASCII only.

    How the text was written does not count (order of keys, escapes, 1e3 or 1000.0, tuples or lists). What a
    server can tell apart does: 1 and 1.0, true and 1, composed and decomposed letters, the order of a list.

    Raises:
        Unsendable: No JSON message can carry it.
    """
    return json.dumps(
        json.loads(encode(value)), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def name_server(name: str, version: str, tools: Iterable[tuple[str, str]]) -> str:
    """A server's digest, the same on every machine.

    Args:
        name: What tasks call it.
        version: `package==version`.
        tools: Name and digest of each tool, as its lock holds them; their order does not count.
    """
    parts = [name, version, sorted([tool, digest] for tool, digest in tools)]
    return _hash(json.dumps(parts))


class Secrets:
    """Values that may not be stored, and what is put in their place.

    Args:
        values: The secrets; those shorter than `SHORTEST_SECRET` are none.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {value for value in values if len(value) >= SHORTEST_SECRET}
        self._values = sorted(found, key=lambda v: (-len(v), v))  # a secret may hold another one

    def __bool__(self) -> bool:
        return bool(self._values)

    def text(self, text: str) -> str:
        """A text without them."""
        for secret in self._values:
            if secret in text:
                text = text.replace(secret, REMOVED)
        return text

    def value(self, value: Any) -> Any:
        """A JSON value without them, in keys and strings."""
        if not self._values:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.value(key): self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def data(self, data: bytes) -> bytes:
        """The content of a file without them; as long as it was, so that no format breaks."""
        for secret in self._values:
            raw = secret.encode("utf-8", "surrogatepass")
            if raw in data:
                data = data.replace(raw, b"*" * len(raw))
        return data


@dataclass(frozen=True)
class Issued:
    """A call with its place in the episode."""

    call: ToolCall
    number: int
    """0 for the episode's first call."""
    key: str
    occurrence: int
    """How often the same call was made before, after the same writes."""
    server: str
    """The server's digest."""
    arguments: str
    """Canonical, without secrets."""
    history: str
    """Over the calls before it that may have changed something."""
    script: str
    """Over the agent's messages up to the one that makes it: no part of the key, it tells takes apart."""
    writes: bool
    sent: bool
    """Whether it could be sent to a server at all."""


class Track:
    """The calls of one episode in the order in which they were issued.

    Args:
        setup: Digest of the task's set-up.
        server_digest: Server -> its digest.
        read_only: Whether the manifest says that a server's tool changes nothing.
        secrets: What keys and arguments may not hold.
    """

    def __init__(
        self,
        setup: str,
        server_digest: Callable[[str], str],
        read_only: Callable[[str, str], bool],
        secrets: Secrets | None = None,
    ) -> None:
        self.setup: Final = setup
        self.history = _START
        """Over every call so far that may have changed something, to any server."""
        self.script = _START
        """Over every message of the agent so far."""
        self.count = 0
        """Calls so far."""
        self.written: list[str] = []
        """`server.tool` of the calls that are in the history."""
        self._server_digest = server_digest
        self._read_only = read_only
        self._secrets = secrets or Secrets()
        self._seen: dict[str, int] = {}

    def hear(self, message: str) -> None:
        """Note what the agent writes, before the calls that it makes."""
        self.script = _hash(json.dumps([self.script, message]))

    def issue(self, call: ToolCall) -> Issued:
        """Give a call its key. Do it when the call is made, not when it is answered.

        Calls that run at the same time are in the order in which they were made, which is the order in which
        they stand in the agent's message.
        """
        server = self._server_digest(call.server)
        try:
            arguments, sent = canonical(call.arguments), True
            if self._secrets:
                arguments = canonical(self._secrets.value(json.loads(arguments)))
        except Unsendable as exc:  # no server sees it; what is wrong with it is what it is known by
            arguments, sent = f"unsendable: {exc}", False
        writes = sent and not self._read_only(call.server, call.tool)
        key = _hash(json.dumps([server, self.setup, call.tool, arguments, self.history]))
        occurrence = self._seen.get(key, 0)
        issued = Issued(
            *(call, self.count, key, occurrence, server, arguments, self.history, self.script, writes, sent)
        )
        self._seen[key] = occurrence + 1
        self.count += 1
        if writes:
            self.history = _hash(json.dumps([self.history, server, call.tool, arguments]))
            self.written.append(f"{call.server}.{call.tool}")
        return issued


def named(calls: Sequence[str], most: int = 6) -> str:
    """Some calls in words."""
    if not calls:
        return "none"
    shown = ", ".join(calls[-most:])
    return f"{len(calls) - most} others, {shown}" if len(calls) > most else shown


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

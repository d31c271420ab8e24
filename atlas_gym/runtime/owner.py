"""Who owns an episode's directory: a process, told apart from later ones with the same number.

Owns the record and the question whether its process still lives. Does not know what is owned.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import platform
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Verdict: TypeAlias = Literal["alive", "dead", "unknown"]


def start_time(pid: int) -> int:
    """Start of a process in clock ticks since boot; 0 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    fields = stat[stat.rindex(b")") + 2 :].split()  # the name in brackets may hold anything
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


@functools.cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


@dataclass(frozen=True)
class Owner:
    """A process, of one boot of one machine, in one pid namespace (a container has its own)."""

    pid: int
    start: int
    boot: str
    namespace: str
    node: str

    @classmethod
    def current(cls) -> Owner:
        """This process."""
        return cls(os.getpid(), start_time(os.getpid()), _boot_id(), _namespace(), platform.node())

    @property
    def tag(self) -> str:
        """The owner in a few characters, for a name: of use to processes of the same boot and namespace."""
        place = "\0".join((self.boot, self.namespace, self.node)).encode()
        return f"{self.pid}-{self.start}-{zlib.crc32(place):08x}"

    @classmethod
    def is_dead(cls, tag: str) -> bool:
        """Whether the owner with this tag is provably dead; False where that cannot be seen from here."""
        numbers = tag.split("-")
        if len(numbers) != 3 or not (numbers[0].isdecimal() and numbers[1].isdecimal()):
            return False
        owner = dataclasses.replace(cls.current(), pid=int(numbers[0]), start=int(numbers[1]))
        return owner.tag == tag and owner.verdict() == "dead"

    def to_json(self) -> str:
        """One line, for `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Owner | None:
        """Read what `to_json` wrote; None when it is anything else."""
        try:
            raw = json.loads(text)
            return cls(int(raw["pid"]), int(raw["start"]), raw["boot"], raw["namespace"], raw["node"])
        except (ValueError, TypeError, KeyError):
            return None

    def verdict(self) -> Verdict:
        """Whether the process lives; `unknown` when that cannot be seen from here."""
        if self.node != platform.node():
            return "unknown"
        if self.boot != _boot_id():
            return "dead"
        if self.namespace != _namespace():
            return "unknown"
        return "alive" if start_time(self.pid) == self.start else "dead"

"""What an episode leaves behind for its checks, and safe access to it.

Everything under `files` and `state` was written by the agent or its servers: it may be missing, huge,
a link, or nonsense. Does not know which checks look at it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from atlas_gym.types import ToolResult

MAX_TEXT: Final = 4 * 1024 * 1024


class Unreadable(Exception):
    """What the check wants to see is missing or spoiled: the check fails, and this says why."""


class Unavailable(Exception):
    """The machine cannot run the check (no git, no openpyxl): the reward is invalid, not low."""


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Evidence:
    """The end of one episode. Servers are stopped; the files are a copy that nobody else uses."""

    answer: str | None
    """What the agent answered; None when it never did."""
    files: Path
    """Copy of the shared workspace."""
    state: Callable[[str], Path]
    """Copy of a server's private state directory."""
    calls: Sequence[ToolResult] = field(default_factory=tuple)
    """Every tool call of the episode, as the host recorded it."""
    shown: Callable[[Any], Any] = _as_it_is
    """Host paths in a value -> paths as the agent writes them: servers that do not live in a container of
    their own are given the former, and store them in what they write."""
    skipped: Sequence[tuple[str, str]] = ()
    """(path, reason) of what is not in the copy although it was there: links, FIFOs, what was too large. The
    path begins with "files" or "state"; an empty one stands for more of them than were noted."""

    def path(self, relative: str, server: str = "") -> Path:
        """Where an item of the setup would lie, whether or not it exists.

        Raises:
            Unreadable: It, or a folder on the way, is a link or was left out of the copy: then nobody can say
                whether it is there.
        """
        root = self.state(server) if server else self.files
        at = root
        for part in PurePosixPath(relative).parts:
            at = at / part
            if at.is_symlink():
                raise Unreadable(f"{relative}: a link, which is not followed")
        if self.skipped and not at.exists() and (reason := self._left_out(at)):
            raise Unreadable(f"{relative}: cannot be looked at: {reason}")
        return at

    def _left_out(self, at: Path) -> str:
        parts = at.relative_to(self.files.parent).parts
        for path, reason in self.skipped:
            other = PurePosixPath(path).parts
            if parts[: len(other)] == other:
                return reason
        return ""

    def left_out_below(self, at: Path) -> dict[str, str]:
        """Relative path -> reason, of what was left out of the copy below a folder."""
        found: dict[str, str] = {}
        if not self.skipped:
            return found
        top = at.relative_to(self.files.parent).parts
        for path, reason in self.skipped:
            parts = PurePosixPath(path).parts
            if not parts or parts[: len(top)] == top:
                found["/".join(parts[len(top) :])] = reason
        return found

    def text(self, relative: str, server: str = "") -> str:
        """A text file's content, with line feeds as line ends.

        Raises:
            Unreadable: It is missing, no plain file, too large, or not UTF-8.
        """
        at = self.path(relative, server)
        if not at.is_file():
            raise Unreadable(f"there is no file {relative!r}")
        if at.stat().st_size > MAX_TEXT:
            raise Unreadable(f"{relative}: larger than {MAX_TEXT} bytes")
        try:
            text = at.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as exc:
            raise Unreadable(f"{relative}: not UTF-8 text") from exc
        return str(self.shown(text))

    def raw(self, at: Path) -> bytes:
        """A file's bytes, with the paths of a text as the agent writes them."""
        data = at.read_bytes()
        try:
            return str(self.shown(data.decode())).encode()
        except UnicodeDecodeError:
            return data

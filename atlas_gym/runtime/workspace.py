"""One episode's directory tree, its names as the agent sees them, and a safe copy of it.

Owns `files` (what the agent knows as /workspace), a private state directory per server, the record of who
owns the tree, and its removal. Does not know what servers or tasks put there.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from atlas_gym import settings
from atlas_gym.runtime import trees
from atlas_gym.runtime.owner import Owner

AGENT_FILES: Final = "/workspace"
AGENT_HOME: Final = "/home/agent"
OWNER_FILE: Final = "owner.json"

# A path ends where its last name cannot go on: "/workspace2", "/workspace-old" and "/workspace.bak" are
# other paths, "/workspace." at the end of a sentence is not.
_END: Final = r"(?![\w\-+~@%]|\.[\w.\-])"
# And it begins where nothing stands before it that would make it the tail of another path or of a URL.
_BEGIN: Final = r"(?:(?<=file://)|(?<![\w./\\\-~%@+$*?)\]}]))"


class Workspace:
    """The directories of one episode. Make one with `create`; `close` removes everything."""

    def __init__(self, root: Path, skipped: tuple[tuple[str, str], ...] = ()) -> None:
        self.root = root
        """An absolute path without symbolic links."""
        self.files = root / "files"
        self.skipped = skipped
        """Of a snapshot: (relative path, reason) of what was not copied."""
        self._owner = os.getpid()
        self._states: dict[str, Path] = {}
        self._to_agent: re.Pattern[str] | None = None
        self._to_host: dict[str | None, re.Pattern[str]] = {}

    @classmethod
    def create(cls, label: str = "", *, kind: str = "ep") -> Workspace:
        """Make an empty one under `settings.run_dir()`, owned by this process.

        Args:
            label: Becomes part of the directory's name, for people who look.
            kind: Begins the directory's name: "ep" for an episode, "host" for a warmed parent.

        Raises:
            StorageError: The directory cannot be made (disk full, not writable, not ours).
        """
        return cls(_make_root(label, kind))

    def state(self, server: str) -> Path:
        """The private directory of one server, holding `home` and `tmp`; made on first use.

        Raises:
            StorageError: It cannot be made.
        """
        if server not in self._states:
            path = self.root / "state" / _file_name(server)
            with settings.storage(f"Making the state directory of server {server!r}"):
                for part in ("home", "tmp"):
                    (path / part).mkdir(mode=0o700, parents=True, exist_ok=True)
            self._states[server] = path
            self._to_agent = None
        return self._states[server]

    def to_host(self, value: Any, server: str | None = None) -> Any:
        """The same JSON value with the agent's paths replaced by real ones, in keys and values.

        "/workspace" and what is below it is replaced wherever it stands as a path of its own in a string;
        see `_BEGIN` and `_END`. With `server`, its "/home/agent" and "/tmp/<server>" are replaced too.
        """
        pattern = self._to_host.get(server)
        if pattern is None:
            names = [AGENT_FILES] + ([AGENT_HOME, f"/tmp/{_file_name(server)}"] if server else [])
            pattern = re.compile(_BEGIN + "(" + "|".join(map(re.escape, names)) + ")" + _END)
            self._to_host[server] = pattern
        real = {AGENT_FILES: str(self.files)}
        if server:
            state = self.state(server)
            real |= {AGENT_HOME: str(state / "home"), f"/tmp/{_file_name(server)}": str(state / "tmp")}
        regex = pattern

        def replace(text: str) -> str:
            return regex.sub(lambda hit: real[hit[1]], text) if "/" in text else text

        return _map_strings(value, replace)

    def to_agent(self, value: Any) -> Any:
        """The inverse of `to_host`, and more: no path into this episode's tree is left in the value.

        A server's home becomes "/home/agent", its tmp "/tmp/<server>", anything else "/episode/...". The
        name of the tree alone (it is in every server's environment, and random) becomes "episode".
        """
        name = self.root.name
        if self._to_agent is None:
            inside = rf"/files{_END}|/state/[A-Za-z0-9._%-]+/(?:home|tmp){_END}|"
            self._to_agent = re.compile(f"{re.escape(str(self.root))}({inside})|{re.escape(name)}")
        pattern = self._to_agent

        def replace(text: str) -> str:
            return pattern.sub(lambda hit: _agent_name(hit[1]), text) if name in text else text

        return _map_strings(value, replace)

    def snapshot(self, max_bytes: int = 256 << 20, max_files: int = 20_000, max_depth: int = 64) -> Workspace:
        """A copy that checks may read while nobody can change it; close it too.

        No symbolic link is followed or copied, no FIFO, socket or device is opened; hard links become
        files. What does not fit is left out and named in `skipped`: a tree that its owner made too large
        must not make the check of it impossible.

        Args:
            max_bytes: Sum of the sizes of files copied; a sparse file counts with its holes.
            max_files: Number of files and directories.
            max_depth: Levels of directories below the root.

        Raises:
            StorageError: The copy cannot be written.
        """
        root = _make_root("snapshot")
        with settings.storage(f"Copying the episode {self.root.name}"):
            budget = trees.CopyBudget(max_bytes, max_files, max_depth)
            for part in ("files", "state"):
                trees.copy(self.root / part, root / part, budget)
        copied = Workspace(root, tuple(budget.skipped))
        copied._states = {server: root / path.relative_to(self.root) for server, path in self._states.items()}
        return copied

    def close(self) -> None:
        """Remove everything, whatever its permissions; follows no links. Idempotent.

        Nothing happens in a fork of the owner: when that ends, the owner's episode must not end with it.

        Raises:
            StorageError: Something could not be removed; says what.
        """
        if os.getpid() != self._owner:
            return
        with settings.storage(f"Removing the episode {self.root.name}"):
            remove_episode(self.root)


def remove_episode(root: Path) -> None:
    """Remove an episode's tree, the record of its owner last: an interrupted removal can be taken up again.

    Raises:
        OSError: Something could not be removed.
    """
    for part in ("files", "state"):
        trees.remove(root / part)
    trees.remove(root)


def _make_root(label: str, kind: str = "ep") -> Path:
    parent = settings.run_dir()
    with settings.storage(f"Making an episode under {parent}"):
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        parent = parent.resolve()
        if parent.stat().st_uid != os.getuid():
            raise PermissionError(13, "belongs to another user", str(parent))
        name = "-".join(filter(None, (kind, _file_name(label)[:40].strip("-."), secrets.token_hex(6))))
        # The record of the owner is there before the name is: collection sees no tree without an owner.
        # Before that its name says who makes it, for the moment in which the record is not there yet.
        owner = Owner.current()
        staging = parent / f".{name}.{owner.tag}"
        staging.mkdir(mode=0o700)
        try:
            (staging / OWNER_FILE).write_text(owner.to_json(), encoding="utf-8")
            for part in ("files", "state"):
                (staging / part).mkdir(mode=0o700)
            staging.rename(parent / name)
        except OSError:
            trees.remove(staging)
            raise
        return parent / name


def _file_name(name: str) -> str:
    """`name` as one component of a path: itself where that is plain, else marked with its hash."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", name)
    if plain == name and not name.startswith(".") and len(name) <= 80:
        return name
    return f"{plain.strip('.')[:60]}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _agent_name(inside: str | None) -> str:
    if inside is None:
        return "episode"
    if inside == "/files":
        return AGENT_FILES
    parts = inside.split("/")
    if len(parts) == 4:
        return AGENT_HOME if parts[3] == "home" else f"/tmp/{parts[2]}"
    return "/episode"


def _map_strings(value: Any, replace: Callable[[str], str]) -> Any:
    """A copy of a JSON value with every string replaced; no recursion, so that any depth is fine."""
    top: list[Any] = [value]
    stack: list[tuple[Any, Any, Any]] = [(top, 0, value)]
    while stack:
        holder, key, item = stack.pop()
        if isinstance(item, str):
            holder[key] = replace(item)
        elif isinstance(item, dict):
            fresh: dict[Any, Any] = {(replace(k) if isinstance(k, str) else k): None for k in item}
            holder[key] = fresh
            stack += [(fresh, replace(k) if isinstance(k, str) else k, v) for k, v in item.items()]
        elif isinstance(item, list | tuple):
            filled: list[Any] = [None] * len(item)
            holder[key] = filled
            stack += [(filled, i, v) for i, v in enumerate(item)]
        else:
            holder[key] = item
    return top[0]

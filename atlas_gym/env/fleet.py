"""Servers made ready: installed, asked once for their tools, and compared with their locks.

Owns the order of these steps. Does not know tasks or episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeVar

from atlas_gym.errors import AtlasError, LockError
from atlas_gym.runtime.catalog import Server
from atlas_gym.runtime.install import Installation, install
from atlas_gym.runtime.mixed import ByServer
from atlas_gym.runtime.process import ProcessRuntime
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task.setup import lay_out
from atlas_gym.toolspace.examples import load_examples
from atlas_gym.toolspace.lock import Lock, compare, load_lock
from atlas_gym.toolspace.texts import Texts, drop_texts, load_texts, save_texts
from atlas_gym.wire.loop import portal
from atlas_gym.wire.session import Session

Say = Callable[[str], None]
T = TypeVar("T")

AT_ONCE: Final = 3
"""Servers that are made ready at the same time: downloads overlap with compiling."""


@dataclass(frozen=True)
class Prepared:
    """A server that episodes can use."""

    server: Server
    installation: Installation
    lock: Lock | None
    """None for a server of the user's mcp.json."""
    raw_tools: tuple[dict[str, Any], ...]
    """Entries of its `tools/list`."""
    skipped: tuple[str, ...] = ()
    """What was odd about the listing, or left out of it."""

    @cached_property
    def shapes(self) -> Mapping[str, str]:
        """Tool name -> what its results look like, where that was observed."""
        return self.lock.shapes if self.lock else {}


def _silent(_message: str) -> None:
    pass


def read_lock(server: Server) -> Lock | None:
    """The tool digests of a server's folder; None for a server of the user's mcp.json.

    Raises:
        LockError: Missing or corrupt.
    """
    return None if server.folder is None else load_lock(server.folder / "lock.json")


def prepare(server: Server, say: Say = _silent) -> Prepared:
    """Install the server if need be, and read its tools: from the cache, else from the server itself.

    Not for the event loop's thread: it waits for package tools and for the server.

    Args:
        server: Which one.
        say: Told, in one line each, what takes long.

    Raises:
        InstallError: It cannot be installed here.
        LockError: Its lock is corrupt, or its tools differ from it (the difference is named; no text is
            kept).
        StartError: It did not start.
        StorageError: The disk is full or the cache cannot be written.
    """
    lock = read_lock(server)
    installation = install(server, say)
    texts = load_texts(installation)
    if texts is not None and lock is not None and compare(lock, texts.tools):
        drop_texts(installation)
        texts = None
    if texts is None:
        say(f"reading the tools of {server.name}")
        asked = ask(installation)
        if lock is not None:
            _demand_equal(server.name, lock, asked.tools)
        texts = keep(installation, asked)
    return Prepared(server, installation, lock, texts.tools, texts.notes)


async def verify(prepared: Prepared, session: Session, workspace: Workspace) -> None:
    """Compare a started server with its lock.

    Args:
        prepared: What it should be.
        session: With the started server.
        workspace: Where it was started.

    Raises:
        LockError: Names the difference.
        WireError: The server did not list its tools.
    """
    if prepared.lock is not None:
        listing = await session.list_tools(seconds=prepared.server.manifest.limits.call_seconds)
        _demand_equal(prepared.server.name, prepared.lock, _shown(listing.tools, workspace))


def check(server: Server, say: Say = _silent) -> int:
    """Start the server afresh and compare it with its lock, whatever the cache says.

    Returns:
        How many tools it lists.

    Raises:
        AtlasError: What is wrong, as in `prepare`.
    """
    lock = read_lock(server)
    installation = install(server, say)
    say(f"asking {server.name}")
    asked = ask(installation)
    if lock is not None:
        _demand_equal(server.name, lock, asked.tools)
    keep(installation, asked)
    return len(asked.tools)


def each(
    servers: Iterable[Server],
    work: Callable[[Server], T],
    *,
    finished: Callable[[Server, T | AtlasError], None] = lambda _server, _result: None,
) -> dict[str, T | AtlasError]:
    """Do the same with several servers, a few at a time; one that fails does not stop the others.

    Args:
        servers: Which ones.
        work: `prepare`, `check` or the like; called on other threads.
        finished: Told about each as it is done, on other threads.

    Returns:
        Server name -> the result, or the error that `work` raised, in the order of `servers`.
    """

    def one(server: Server) -> tuple[str, T | AtlasError]:
        try:
            result: T | AtlasError = work(server)
        except AtlasError as exc:
            result = exc
        finished(server, result)
        return server.name, result

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="atlas-gym fleet") as pool:
        return dict(pool.map(one, servers))


def ask(installation: Installation) -> Texts:
    """Start the server in a scratch workspace, list its tools, end it. Keeps nothing.

    Raises:
        StartError: It did not start.
        WireError: It did not list its tools.
    """
    limits = installation.server.manifest.limits
    return portal().run(_ask(installation), timeout=limits.start_seconds + limits.call_seconds + 30)


def keep(installation: Installation, texts: Texts) -> Texts:
    """Write what a server said into the cache.

    Raises:
        StorageError: The cache cannot be written.
    """
    return save_texts(
        installation,
        texts.tools,
        server_version=texts.server_version,
        protocol=texts.protocol,
        notes=texts.notes,
    )


def scratch(server: Server) -> Workspace:
    """A workspace that holds what the server's example calls need."""
    workspace = Workspace.create(f"scratch-{server.name}")
    try:
        lay_out(load_examples(server).setup, workspace.files, workspace.state)
    except BaseException:  # Ctrl-C too: no half-made workspace may stay
        workspace.close()
        raise
    return workspace


async def _ask(installation: Installation) -> Texts:
    server = installation.server
    limits = server.manifest.limits
    workspace = scratch(server)
    try:
        link = await ByServer(ProcessRuntime(prefork=False)).start(installation, workspace)
        session = await Session.open(
            link, name=server.name, protocol=server.manifest.protocol, seconds=limits.start_seconds
        )
        try:
            listing = await session.list_tools(seconds=limits.call_seconds)
        finally:
            await session.close()
        tools = _shown(listing.tools, workspace)
        return Texts(tools, session.info.version, session.info.protocol, listing.notes)
    finally:
        workspace.close()


def _shown(tools: tuple[dict[str, Any], ...], workspace: Workspace) -> tuple[dict[str, Any], ...]:
    """Tools as agents see them: some servers write where they run into descriptions and defaults."""
    return tuple(workspace.to_agent(list(tools)))


def _demand_equal(name: str, lock: Lock, raw_tools: tuple[dict[str, Any], ...]) -> None:
    differences = compare(lock, raw_tools)
    if differences:
        shown = "; ".join(differences[:8]) + (f"; and {len(differences) - 8} more" if differences[8:] else "")
        raise LockError(
            f"Server {name!r} differs from its lock: {shown}. Restore servers/{name}/ and install again, or, "
            f"if the change is wanted, write the lock again: atlas-gym servers lock {name}."
        )

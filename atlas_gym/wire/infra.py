"""Whose fault a failed server is: the machinery's, or that of the agent's own calls.

Owns the episode's calls that may have changed something, and trials: the same calls again, in order, on clean
servers in a clean workspace. Does not know checks, budgets, or what follows from a verdict.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from atlas_gym.errors import AtlasError, StartError
from atlas_gym.runtime.aside import made, removed
from atlas_gym.runtime.gate import Refused
from atlas_gym.types import Failed, Outcome, ToolCall
from atlas_gym.wire.codec import encode
from atlas_gym.wire.session import Reply, Session

if TYPE_CHECKING:
    from atlas_gym.runtime.install import Installation
    from atlas_gym.runtime.link import Runtime
    from atlas_gym.runtime.manifest import Manifest
    from atlas_gym.runtime.workspace import Workspace

MAX_TRIALS: Final = 2
"""Trials of one episode. After so many verdicts against the agent, a failure needs no further one."""

MAX_REPLAYED: Final = 256
"""Earlier calls that a trial repeats; an episode that made more cannot be tried."""

MAX_REPLAY_SECONDS: Final = 600.0
"""Seconds that a trial has for the earlier calls, where they took so long in the episode itself."""

_IDLE_SECONDS: Final = 5.0
"""How long a trial waits for a server to end between two calls, as it did in the episode."""

Kind: TypeAlias = Literal["call", "start", "idle"]


@dataclass(slots=True)
class Done:
    """A call of the episode that may have changed something."""

    call: ToolCall
    seconds: float
    """Deadline that it had."""
    afresh: bool = False
    """Whether its server had ended since the call before, and was started again for this one."""
    outcome: Outcome | None = None
    """What it came to, `timeout` and `crashed` too; None while it runs."""
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Suspect:
    """What failed: a call, a start, or a server that ended between two calls (`idle`)."""

    kind: Kind
    call: ToolCall
    """The failed call; or the one that was to be made next."""
    seconds: float
    """Deadline of a call."""
    control: bool = False
    """Whether the trial must also see it work when nothing was done before: what fails on an untouched
    workspace too is not the agent's, unless it is the agent's own call."""
    afresh: bool = False
    """As of `Done`."""

    def key(self, earlier: int) -> tuple[object, ...]:
        """Equal for what need not be tried twice, when `earlier` calls were made before it."""
        if self.kind != "call":
            return (self.kind, self.call.server, earlier)
        return (self.control, self.call.server, self.call.tool, encode(self.call.arguments))


async def open_session(
    runtime: Runtime, installation: Installation, workspace: Workspace, name: str
) -> Session:
    """Start a server in a workspace and shake hands with it.

    Raises:
        StartError: It did not start or did not answer.
    """
    manifest = installation.server.manifest
    link = await runtime.start(installation, workspace)
    return await Session.open(
        link, name=name, protocol=manifest.protocol, seconds=manifest.limits.start_seconds
    )


async def send(
    session: Session, workspace: Workspace, call: ToolCall, seconds: float, *, paths: bool = True
) -> Reply:
    """Make one call as the agent wrote it, with its paths translated where the server needs that.

    Args:
        session: With the call's server.
        workspace: Where that was started.
        call: With paths as the agent writes them.
        seconds: Deadline.
        paths: False when the arguments are known to hold none.
    """
    arguments: dict[str, Any] = dict(call.arguments)
    if paths and not session.own_paths:
        arguments = workspace.to_host(arguments, call.server)
    return await session.call(call.tool, arguments, seconds=seconds)


def scored(manifest: Manifest, suspect: Suspect, reply: Reply, *, untried: bool = False) -> Reply:
    """What the agent reads of a failure that is its own: what happened, twice, and what is lost by it.

    Args:
        manifest: The server's.
        suspect: What failed.
        reply: How.
        untried: Whether the episode's earlier failures speak for this one, and no trial was made.
    """
    server, state = suspect.call.server, manifest.state
    if suspect.kind == "start":
        text = (
            f"Server {server!r} can no longer be started: what earlier calls wrote keeps it from starting, "
            "in a clean copy too. This call was not made. Undo what they wrote, or go on without this server."
        )
        return Reply("tool_error", text=text, detail=reply.detail, failed="crashed")
    failed: Failed = "timeout" if reply.outcome == "timeout" else "crashed"
    again = "as servers did in this episode before" if untried else "and so did a clean server"
    if suspect.kind == "idle":
        what = f"died after an earlier call, {again}. This call was not made."
    elif failed == "timeout":
        also = again if untried else "and neither did a clean server"
        what = f"did not answer this call within {suspect.seconds:g} s, {also}."
    else:
        what = f"died on these arguments, {again}."
    reads = suspect.call.tool in manifest.read_only and suspect.kind == "call"
    lost = {
        "memory": "It starts afresh: everything that earlier calls changed in it is lost.",
        "workspace": "" if reads else "It starts again; files are as this call left them.",
        "none": "",
    }[state]
    text = " ".join(filter(None, (f"Server {server!r} {what}", lost, "Use other arguments.")))
    return Reply("tool_error", text=text, detail=reply.detail, failed=failed)


def lost(manifest: Manifest, suspect: Suspect, reply: Reply, why: str) -> str:
    """Why an episode cannot go on after a failure that is not shown to be the agent's."""
    server = suspect.call.server
    if suspect.kind == "start":
        return f"Server {server!r} could not be started: {reply.detail}\nNot shown to be the agent's: {why}."
    if suspect.kind == "idle":
        what = f"Server {server!r} could not be started: it died between two calls, and its state with it: "
        return f"{what}{reply.detail}\nNot shown to be the agent's: {why}."
    doubt = "its state is gone" if manifest.state == "memory" else "a write may be half done"
    return (
        f"{reply.detail or reply.text} The episode cannot go on: {doubt}. Not shown to be the agent's: {why}."
    )


class Inquiry:
    """The trials of one episode.

    Args:
        runtime: Where servers are started.
        installation: Gives one by its server's name.
        replica: Makes a workspace as the episode's was at its beginning; blocking, called on a thread. None
            where that cannot be done: then nothing is ever proven.
    """

    def __init__(
        self,
        runtime: Runtime,
        installation: Callable[[str], Installation],
        replica: Callable[[], Workspace] | None,
    ) -> None:
        self._runtime = runtime
        self._installation = installation
        self._replica = replica
        self._history: list[Done] = []
        self._latest: dict[str, Done] = {}
        self._proven: set[tuple[object, ...]] = set()
        self._refused = ""
        self._trials = 0
        self.untried = False
        """Whether the last failure was judged by the earlier ones, without a trial."""
        self._one_at_a_time = asyncio.Lock()

    @contextmanager
    def recorded(self, call: ToolCall, seconds: float, *, reads: bool, afresh: bool) -> Iterator[Done]:
        """Note a call that is made now, unless it only reads; whoever makes it sets what it came to."""
        done = Done(call, seconds, afresh)
        self._latest[call.server] = done
        if not reads:
            self._history.append(done)
        began = time.monotonic()
        try:
            yield done
        finally:
            done.took = time.monotonic() - began

    async def acquits(self, suspect: Suspect) -> str:
        """Try a failure again on clean servers, after the same earlier calls.

        Returns:
            "" when it fails again, so that it is the agent's; else why that is not shown. Ids that a server
            invents may make the agent's arguments meaningless to its replica; then it answers, and that
            shows nothing.
        """
        # What has no outcome yet is the failed call itself, and calls that other servers are busy with.
        earlier = [done for done in self._history if done.outcome is not None]
        latest = self._latest.get(suspect.call.server)
        if suspect.kind == "idle" and latest is not None and latest not in earlier:
            earlier.append(latest)  # what only reads may have ended the server all the same
        key = suspect.key(len(earlier))
        async with self._one_at_a_time:
            self.untried = False
            if self._refused or key in self._proven:
                return self._refused
            self.untried = self._trials >= MAX_TRIALS
            if self._trials < MAX_TRIALS:  # else each of them was against the agent
                self._refused = await self._tried(suspect, earlier)
            if not self._refused:
                self._proven.add(key)
            return self._refused

    async def _tried(self, suspect: Suspect, earlier: Sequence[Done]) -> str:
        if self._replica is None:
            return "it could not be tried on a clean server"
        if suspect.control and not earlier:
            return "nothing was done before that could be the reason"
        if len(earlier) > MAX_REPLAYED:
            return f"{len(earlier)} earlier calls are too many to repeat them on a clean server"
        names = {suspect.call.server, *(done.call.server for done in earlier)}
        if any(self._installation(name).server.manifest.url for name in names):
            return "a server that is only reached at its url has no clean one beside it"
        self._trials += 1
        limits = self._installation(suspect.call.server).server.manifest.limits
        failed = sum(done.outcome in ("timeout", "crashed") for done in earlier)
        seconds = limits.start_seconds + (2 + failed) * suspect.seconds
        seconds += min(MAX_REPLAY_SECONDS, sum(done.took for done in earlier))
        try:
            async with asyncio.timeout(seconds):
                why = await self._trial(suspect, earlier)
                if not why and suspect.control and not await self._trial(suspect, ()):
                    why = "it fails in an untouched workspace too"
                return why
        except TimeoutError:
            return "a trial on a clean server took too long"
        except AtlasError as exc:
            return f"it could not be tried on a clean server: {exc}"

    async def _trial(self, suspect: Suspect, earlier: Sequence[Done]) -> str:
        """Why this trial shows nothing against the agent; "" when the failure came again."""
        assert self._replica is not None
        differs = ""
        bench = _Bench(self._runtime, self._installation, await made(self._replica))
        try:
            for done in earlier:
                name = f"{done.call.server}.{done.call.tool}"
                try:
                    reply = await bench.call(done.call, done.seconds, done.afresh)
                except StartError as exc:
                    return f"server {done.call.server!r} did not start for a trial: {exc}"
                if reply.outcome == done.outcome:
                    continue
                why = f"{name} came to {reply.outcome} on a clean server, and to {done.outcome} before"
                if {reply.outcome, done.outcome} & {"timeout", "crashed"}:
                    return why
                differs = differs or why  # chance, or ids that the copy does not know: the failure decides
            return "" if await bench.fails(suspect) else differs or "it does not happen on a clean server"
        finally:
            await bench.close()


class _Bench:
    """The servers of one trial, each started at its first call and anew after a failure."""

    def __init__(
        self, runtime: Runtime, installation: Callable[[str], Installation], workspace: Workspace
    ) -> None:
        self._runtime = runtime
        self._installation = installation
        self._workspace = workspace
        self._sessions: dict[str, Session] = {}

    async def call(self, call: ToolCall, seconds: float, afresh: bool) -> Reply:
        if afresh and call.server in self._sessions:  # on its way out, as in the episode, and not there yet
            await self._sessions[call.server].ends(seconds=min(_IDLE_SECONDS, seconds))
        session = await self._session(call.server)
        reply = await send(session, self._workspace, call, seconds)
        if reply.outcome in ("timeout", "crashed"):
            await session.close()
        return reply

    async def fails(self, suspect: Suspect) -> bool:
        """Whether a failure comes again."""
        server = suspect.call.server
        started = self._sessions.get(server)
        if suspect.kind == "idle":
            seconds = min(_IDLE_SECONDS, suspect.seconds)
            return started is not None and await started.ends(seconds=seconds)
        if suspect.kind == "start":
            if started is not None:
                await started.close()
            try:
                await self._session(server)
            except Refused:  # not even tried: it says nothing
                raise
            except StartError:
                return True
            return False
        reply = await self.call(suspect.call, suspect.seconds, suspect.afresh)
        return reply.outcome in ("timeout", "crashed")

    async def _session(self, server: str) -> Session:
        session = self._sessions.get(server)
        if session is None or session.over:
            if session is not None:
                await session.close()
            session = await open_session(self._runtime, self._installation(server), self._workspace, server)
            self._sessions[server] = session
        return session

    async def close(self) -> None:
        try:
            await asyncio.gather(*(session.close() for session in self._sessions.values()))
        finally:
            await removed(self._workspace)

"""The sessions of one episode: started at the first call, serialised per server, replaced where that is safe.

Owns the rule for infra failures: what is repeated, what is scored, what is lost. Does not know whose fault
a failure is (`infra`), tasks, budgets, tools' schemas or who calls.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from atlas_gym.errors import AtlasError, StartError, UnknownNameError, unknown
from atlas_gym.runtime.gate import Refused
from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire import infra
from atlas_gym.wire.codec import Unsendable, encode
from atlas_gym.wire.infra import Inquiry, Suspect, open_session, send
from atlas_gym.wire.session import Reply, Session
from atlas_gym.wire.values import Blob

if TYPE_CHECKING:
    from atlas_gym.runtime.install import Installation
    from atlas_gym.runtime.link import Runtime
    from atlas_gym.runtime.manifest import Manifest
    from atlas_gym.runtime.workspace import Workspace

Installations: TypeAlias = "Mapping[str, Installation] | Callable[[str], Installation]"
Verify: TypeAlias = Callable[[str, Session], Awaitable[None]]

MAX_BLOBS: Final = 64 * 2**20
"""Bytes of binary results that one episode keeps."""

_ATTEMPTS: Final = 2
"""Clean servers on which a reading call must fail before that is the agent's, and a start before it fails."""


class _StateGoneError(AtlasError):
    """A server ended between two calls, and what it kept in memory with it."""


class _Slot:
    """One server of the episode."""

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.manifest: Manifest = installation.server.manifest
        self.lock = asyncio.Lock()
        self.session: Session | None = None
        self.lost = ""
        self.ended = False
        """Whether the server was found to have ended by itself, and no writing call was made since."""


class Sessions:
    """Every server of one episode, by name. All coroutines run on one loop.

    Args:
        runtime: Where servers are started.
        installations: One per server, or a function that gives it (and raises for an unknown name).
        workspace: The episode's directories; translates paths both ways.
        verify: Called with each session after its start, before its first call. An `AtlasError` from it
            is a failed start.
        ready: Sessions that are open already, with servers started in this workspace, by server. They are
            this object's from here on; one counts in `versions`, `walls` and `how` once it is used.
        replica: Makes a workspace as this one was at its beginning (blocking, called on a thread), so that
            a failure can be tried again there. Without it, no failed write is ever the agent's.
    """

    def __init__(
        self,
        runtime: Runtime,
        installations: Installations,
        workspace: Workspace,
        *,
        verify: Verify | None = None,
        ready: Mapping[str, Session] | None = None,
        replica: Callable[[], Workspace] | None = None,
    ) -> None:
        self.lost = ""
        """Why the episode must end as infra: state is gone or in doubt. "" while it may go on."""
        self.infra_errors = 0
        """Timeouts, crashes and failed starts, those that a repetition healed included."""
        self.versions: dict[str, str] = {}
        """Server -> package==version, of the servers that were started."""
        self.walls: dict[str, str] = {}
        """Server -> what held it, of the servers that were started."""
        self.how: dict[str, str] = {}
        """Server -> how it was started ("spawn", "fork", ...), of the servers that were started."""
        self.blobs: dict[str, Blob] = {}
        """Handle -> the image, audio or file that a result names; the oldest go beyond `MAX_BLOBS`."""
        self._runtime = runtime
        self._installations = installations
        self._workspace = workspace
        self._verify = verify
        self._ready = dict(ready or {})
        self._inquiry = Inquiry(runtime, self._installation, replica)
        self._slots: dict[str, _Slot] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def start(self, server: str) -> Session:
        """Start a server now instead of at its first call; nothing happens if it runs.

        Raises:
            StartError: It did not start, or `verify` raised (then that `AtlasError`).
        """
        slot = self._slot(server)
        async with slot.lock:
            return await self._session(server, slot)

    async def call(self, call: ToolCall, *, seconds: float | None = None) -> ToolResult:
        """Make one call. Calls to one server run one after the other, in order; others run beside them.

        A caller that is cancelled abandons the answer, not the call: it runs on to its deadline, and the
        next call to that server waits for it.

        Args:
            call: With paths as the agent writes them.
            seconds: Deadline of one attempt; the manifest's `call_seconds` if None.

        Returns:
            The result, with paths as the agent knows them. `timeout` and `crashed` come with `lost` set; a
            `tool_error` with `failed` set is a failure of the server that came again on a clean one.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[ToolResult] = loop.create_future()

        async def make() -> None:
            result = await self._call(call, seconds)
            if not answer.done():  # the caller may be gone
                answer.set_result(result)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            if not answer.done():
                error = None if task.cancelled() else task.exception()
                if error is not None:
                    answer.set_exception(error)
                else:
                    answer.set_result(
                        ToolResult(call, "crashed", text="The episode was closed during the call.")
                    )

        task = loop.create_task(make())
        self._tasks.add(task)
        task.add_done_callback(ended)
        return await answer

    async def settled(self) -> None:
        """Wait for the calls that nobody waits for any more; each ends at its deadline."""
        while running := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(running)

    async def close(self) -> None:
        """End every call and every server, all at once. Idempotent."""
        self._closed = True
        while True:
            running = [slot.session for slot in self._slots.values() if slot.session]
            running += self._ready.values()
            self._ready.clear()
            for slot in self._slots.values():
                slot.session = None
            await asyncio.gather(*(session.close() for session in running))
            unfinished = [task for task in self._tasks if not task.done()]
            if not unfinished:
                return
            for task in unfinished:
                task.cancel()
            await asyncio.wait(unfinished)

    async def _call(self, call: ToolCall, seconds: float | None) -> ToolResult:
        start = time.perf_counter()
        try:
            # Encoded before a server is started for it, and before its strings are walked.
            paths = b"/" in encode(call.arguments)
            slot = self._slot(call.server)
        except Unsendable as exc:
            reply = Reply("invalid_call", text=f"Nothing was sent to {call.server}.{call.tool}: {exc}.")
        except UnknownNameError as exc:
            reply = Reply("invalid_call", text=str(exc))
        except AtlasError as exc:
            self.infra_errors += 1
            self.lost = self.lost or f"Server {call.server!r} cannot be had: {exc}"
            reply = Reply("crashed", text=f"Server {call.server!r} could not be started.", detail=str(exc))
        else:
            deadline = seconds if seconds is not None else slot.manifest.limits.call_seconds
            async with slot.lock:
                reply = await self._attempt(slot, call, deadline, paths)
        self._keep(reply.blobs)
        return ToolResult(
            call=call,
            outcome=reply.outcome,
            value=self._workspace.to_agent(reply.value),
            text=self._workspace.to_agent(reply.text),
            seconds=time.perf_counter() - start,
            failed=reply.failed,
        )

    async def _attempt(self, slot: _Slot, call: ToolCall, seconds: float, paths: bool) -> Reply:
        """The infra rule: repeat what is safe to repeat, score what fails on clean servers, else give up."""
        reads = call.tool in slot.manifest.read_only
        safe = reads and slot.manifest.state != "memory"
        for attempt in range(1, _ATTEMPTS + 1):
            if slot.lost or self._closed:
                return Reply("crashed", text=f"Server {call.server!r} is gone for the rest of this episode.")
            try:
                session = await self._session(call.server, slot)
            except _StateGoneError as exc:
                return await self._judged(
                    slot, Suspect("idle", call, seconds), Reply("crashed", detail=str(exc))
                )
            except AtlasError as exc:
                failed = Reply(
                    "crashed", text=f"Server {call.server!r} could not be started.", detail=str(exc)
                )
                if isinstance(exc, StartError) and not isinstance(exc, Refused) and not self._closed:
                    return await self._judged(slot, Suspect("start", call, seconds, control=True), failed)
                self.infra_errors += 1
                self._lose(slot, f"Server {call.server!r} could not be started: {exc}")
                return failed
            afresh, slot.ended = slot.ended, slot.ended and reads
            with self._inquiry.recorded(call, seconds, reads=reads, afresh=afresh) as done:
                reply = await send(session, self._workspace, call, seconds, paths=paths)
            if reply.outcome not in ("timeout", "crashed") or self._closed:
                done.outcome = reply.outcome
                return reply
            self.infra_errors += 1
            await session.close()
            slot.session = None
            checks = call.via == "check"
            if not safe or (checks and attempt == _ATTEMPTS):
                judged = await self._judged(slot, Suspect("call", call, seconds, checks, afresh), reply)
                done.outcome = reply.outcome
                return judged
        return infra.scored(slot.manifest, Suspect("call", call, seconds), reply)

    async def _judged(self, slot: _Slot, suspect: Suspect, reply: Reply) -> Reply:
        """What a failure comes to that may not simply be repeated: the agent's error, or the end."""
        why = await self._inquiry.acquits(suspect)
        if not why:
            return infra.scored(slot.manifest, suspect, reply, untried=self._inquiry.untried)
        self._lose(slot, infra.lost(slot.manifest, suspect, reply, why))
        return reply

    async def _session(self, server: str, slot: _Slot) -> Session:
        """The running session of a slot whose lock is held, started if need be."""
        if slot.session is not None and not slot.session.over:
            return slot.session
        if self._closed or slot.lost:
            raise StartError(slot.lost or f"The episode is closed; server {server!r} is not started again.")
        if slot.session is not None:
            died, slot.session, slot.ended = slot.session, None, True
            await died.close()
            self.infra_errors += 1
            if slot.manifest.state == "memory":
                raise _StateGoneError(died.broken)
        session = await self._taken(server) or await self._started(server, slot)
        if self._verify is not None:
            try:
                await self._verify(server, session)
            except BaseException:  # cancelled too: no server may stay without an owner
                await session.close()
                raise
        slot.session = session
        self.versions[server] = slot.manifest.requirement
        self.walls[server] = session.walls
        self.how[server] = session.how
        return session

    async def _taken(self, server: str) -> Session | None:
        """The session that was made ready for this server, if it still lives."""
        session = self._ready.pop(server, None)
        if session is not None and session.over:  # nothing was done in it yet
            await session.close()
            return None
        return session

    async def _started(self, server: str, slot: _Slot) -> Session:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await open_session(self._runtime, slot.installation, self._workspace, server)
            except Refused:  # not even tried
                self.infra_errors += 1
                raise
            except StartError:
                self.infra_errors += 1
                if attempt == _ATTEMPTS or self._closed:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _slot(self, server: str) -> _Slot:
        slot = self._slots.get(server)
        if slot is None:
            slot = self._slots[server] = _Slot(self._installation(server))
        return slot

    def _installation(self, server: str) -> Installation:
        if not isinstance(self._installations, Mapping):
            return self._installations(server)
        try:
            return self._installations[server]
        except KeyError:
            raise unknown("server", server, self._installations) from None

    def _keep(self, blobs: Sequence[Blob]) -> None:
        self.blobs |= {blob.handle: blob for blob in blobs}
        size = sum(blob.size for blob in self.blobs.values()) if blobs else 0
        while size > MAX_BLOBS:
            size -= self.blobs.pop(next(iter(self.blobs))).size

    def _lose(self, slot: _Slot, why: str) -> None:
        slot.lost = why
        self.lost = self.lost or why

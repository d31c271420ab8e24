"""Sessions that play a cassette: answers without any server, and going live after a miss.

Owns what a replay has given so far, and what a miss comes to. Starts nothing unless it may go live. Does not
know checks, budgets or who calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from atlas_gym.errors import AtlasError
from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire import cassette_near as near
from atlas_gym.wire.calls import Calls
from atlas_gym.wire.cassette import Answer, Cassette, End
from atlas_gym.wire.cassette_keys import Issued, Track
from atlas_gym.wire.cassette_recording import Recording
from atlas_gym.wire.values import Blob

MAX_BLOBS: Final = 64 * 2**20
"""Bytes of binary results that a replayed episode keeps, as a live one does."""

GoLive: TypeAlias = Callable[[], Awaitable[Calls]]
"""Lays out the episode's workspace and gives its (still closed) sessions."""


class Replaying:
    """Answers from a cassette. Starts nothing, unless it may go live.

    Args:
        cassette: What is played.
        track: The episode's calls: none yet.
        label: Takes of this label are looked at first.
        go_live: What a miss does; None makes it the end of the episode.
        record: Makes the recording of an episode that has gone live.
    """

    def __init__(
        self,
        cassette: Cassette,
        track: Track,
        *,
        label: str,
        go_live: GoLive | None = None,
        record: Callable[[Calls], Recording] | None = None,
    ) -> None:
        self.track = track
        self.recording: Recording | None = None
        """The live half, once there is one."""
        self._cassette = cassette
        self._label = label
        self._go_live = go_live
        self._record = record
        self._take: int | None = None
        self._lost = ""
        self._infra = 0
        self._versions: dict[str, str] = {}
        self._walls: dict[str, str] = {}
        self._how: dict[str, str] = {}
        self._blobs: dict[str, Blob] = {}
        self._given: list[tuple[Issued, Answer]] = []
        self._turning: asyncio.Task[None] | None = None

    @property
    def lost(self) -> str:
        """Why the episode must end as infra: a miss, or what the live half says."""
        return self._lost or (self.recording.lost if self.recording else "")

    @property
    def infra_errors(self) -> int:
        """Failures of servers: those of the recorded episode, and those since."""
        return self._infra + (self.recording.infra_errors if self.recording else 0)

    @property
    def versions(self) -> Mapping[str, str]:
        """Server -> package==version, as in the recorded episode."""
        return {**self._versions, **(self.recording.versions if self.recording else {})}

    @property
    def walls(self) -> Mapping[str, str]:
        """Server -> what held it in the recorded episode."""
        return {**self._walls, **(self.recording.walls if self.recording else {})}

    @property
    def how(self) -> Mapping[str, str]:
        """Server -> how it was started in the recorded episode."""
        return {**self._how, **(self.recording.how if self.recording else {})}

    @property
    def blobs(self) -> Mapping[str, Blob]:
        """Handle -> the image, audio or file that a result names."""
        return {**self._blobs, **(self.recording.blobs if self.recording else {})}

    async def start(self, server: str) -> object:
        """Nothing, unless the episode has gone live."""
        return await self.recording.start(server) if self.recording else None

    async def call(self, call: ToolCall, *, seconds: float | None = None) -> ToolResult:
        """Answer one call; a miss comes back as `crashed`, with `lost` set."""
        issued = self.track.issue(call)
        if self._turning is None:
            try:
                found = self._cassette.find(issued, self._take, self._label)
                if found is not None:
                    return self._give(issued, *found)
                miss = near.missing_call(self._cassette, issued, self.track.setup, self.track.written)
            except AtlasError as exc:
                return self._miss(call, str(exc))
            if self._go_live is None:
                return self._miss(call, miss)
        await self.turn_live()
        if self.recording is None or self._lost:
            return self._crashed(call)
        return await self.recording.make(issued, seconds)

    def _give(self, issued: Issued, take: int, answer: Answer) -> ToolResult:
        call, self._take = issued.call, take
        start = self._cassette.start_of(take, call.server) if issued.sent else None
        if start is not None:
            self._versions[call.server] = start.version
            self._walls[call.server] = start.walls
            self._how[call.server] = start.how
        self._infra += answer.infra
        self._given.append((issued, answer))
        self._blobs |= {blob.handle: blob for blob in answer.blobs}
        size = sum(blob.size for blob in self._blobs.values()) if answer.blobs else 0
        while size > MAX_BLOBS:
            size -= self._blobs.pop(next(iter(self._blobs))).size
        return ToolResult(call, answer.outcome, answer.value, answer.text, failed=answer.failed)

    def _miss(self, call: ToolCall, why: str) -> ToolResult:
        self._infra += 1
        self._lost = self._lost or why
        return self._crashed(call)

    def _crashed(self, call: ToolCall) -> ToolResult:
        return ToolResult(call, "crashed", text=f"Server {call.server!r} is not there: this is a replay.")

    async def turn_live(self) -> None:
        """Go on with live servers: the calls so far are made again, and must come to the same.

        From here on every call is live, in its order. What cannot be done, or comes to something else than
        the agent was told, ends the episode as infra: `lost` says why.
        """
        if self._turning is None:
            self._turning = asyncio.get_running_loop().create_task(self._turn())
        await asyncio.shield(self._turning)  # a caller that is cancelled must not leave it half done

    async def _turn(self) -> None:
        assert self._go_live is not None
        assert self._record is not None
        try:
            sessions = await self._go_live()
            self.recording = self._record(sessions)
            await self._repeat(sessions, self.recording)
        except AtlasError as exc:
            self._lost = f"This replay cannot go on live: {exc}"

    async def _repeat(self, sessions: Calls, recording: Recording) -> None:
        for issued, answer in self._given:
            call = issued.call
            if issued.writes:
                again = recording.shown(await sessions.call(call))
                if sessions.lost:
                    return
                if (again.outcome, again.value, again.text) != (answer.outcome, answer.value, answer.text):
                    self._lost = (
                        f"This replay cannot go on live: {call.server}.{call.tool} answers differently now "
                        "than the agent was told, so that what follows would rest on something else. Record "
                        "the whole episode again: cassette_mode='record'."
                    )
                    return
            elif issued.sent:
                await sessions.start(call.server)  # starting may write too
        await recording.adopt(self._given)

    async def prepare_end(self, *, needed: bool) -> None:
        """Find what the checks will look at; without it, go live where that is allowed.

        Args:
            needed: Whether any check looks at it.
        """
        if self.recording is not None or self._lost or not needed or self.has_end():
            return
        if self._go_live is not None:
            await self.turn_live()
        else:
            self._lost = near.missing_end(self._cassette, self.track)

    def has_end(self) -> bool:
        """Whether the cassette holds what this episode left."""
        return self.find_end() is not None

    def find_end(self) -> End | None:
        """What the recorded episode left."""
        return self._cassette.find_end(self.track.setup, self.track.history, self._take, self._label)

    async def settled(self) -> None:
        """Wait for the calls that nobody waits for any more."""
        if self.recording is not None:
            await self.recording.settled()

    async def close(self) -> None:
        """End the live half, if there is one. Idempotent."""
        if self._turning is not None and not self._turning.done():
            self._turning.cancel()
            await asyncio.wait({self._turning})
        if self.recording is not None:
            await self.recording.close()

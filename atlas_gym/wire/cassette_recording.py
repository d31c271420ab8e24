"""Live sessions that write what servers answer into a cassette, as it comes.

Owns what is stored of a call and when a take is forgotten. Does not know replays, checks or who calls.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from atlas_gym.errors import AtlasError
from atlas_gym.types import ToolCall, ToolResult
from atlas_gym.wire.calls import Calls
from atlas_gym.wire.cassette import STORED, Answer, Cassette, End, Start
from atlas_gym.wire.cassette_keys import Issued, Secrets, Track
from atlas_gym.wire.values import Blob

_HANDLE: Final = re.compile(r"blob:[0-9a-f]{16}")


class Recording:
    """Live sessions whose answers are written to a cassette as they come.

    What goes on is what is stored: secrets are removed before the agent sees a result, so that the replay of
    an episode is the same episode. Failures of the machine are not stored, and an episode that they end is
    forgotten as a whole.

    Args:
        sessions: The live ones; this object's from here on.
        cassette: Where to write.
        track: The episode's calls so far.
        task: The task's id.
        label: What a replay of the same episode is to be found by.
        secrets: What is not stored.
    """

    def __init__(
        self, sessions: Calls, cassette: Cassette, track: Track, *, task: str, label: str, secrets: Secrets
    ) -> None:
        self.track = track
        self._sessions = sessions
        self._cassette = cassette
        self._task = task
        self._label = label
        self._secrets = secrets
        self._take: int | None = None
        self._counted = 0
        self._started: set[str] = set()
        self._error = ""
        self._tasks: set[asyncio.Task[ToolResult]] = set()
        self._writing = asyncio.Lock()

    @property
    def lost(self) -> str:
        """Why the episode must end as infra; also that the cassette cannot be written."""
        return self._sessions.lost or self._error

    @property
    def infra_errors(self) -> int:
        """Failures of servers, mended ones included."""
        return self._sessions.infra_errors

    @property
    def versions(self) -> Mapping[str, str]:
        """Server -> package==version, of the servers that were started."""
        return self._sessions.versions

    @property
    def walls(self) -> Mapping[str, str]:
        """Server -> what held it."""
        return self._sessions.walls

    @property
    def how(self) -> Mapping[str, str]:
        """Server -> how it was started."""
        return self._sessions.how

    @property
    def blobs(self) -> Mapping[str, Blob]:
        """Handle -> the image, audio or file that a result names."""
        return self._sessions.blobs

    async def start(self, server: str) -> object:
        """Start a server now instead of at its first call."""
        return await self._sessions.start(server)

    async def call(self, call: ToolCall, *, seconds: float | None = None) -> ToolResult:
        """Make one call and record what it came to, also where the caller is gone meanwhile."""
        return await self.make(self.track.issue(call), seconds)

    async def make(self, issued: Issued, seconds: float | None) -> ToolResult:
        """Make and record a call that was issued already."""
        task = asyncio.get_running_loop().create_task(self._make(issued, seconds))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return await asyncio.shield(task)

    def _ended(self, task: asyncio.Task[ToolResult]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved: its caller may be gone

    async def _make(self, issued: Issued, seconds: float | None) -> ToolResult:
        result = await self._sessions.call(issued.call, seconds=seconds)
        result = self.shown(result)
        if result.outcome in STORED and not self.lost:
            infra, self._counted = self.infra_errors - self._counted, self.infra_errors
            answer = Answer(
                result.outcome, result.value, result.text, result.failed, self._named(result), infra
            )
            await self._keep(issued, answer)
        return result

    def shown(self, result: ToolResult) -> ToolResult:
        """A result as it is stored, and so as the agent sees it."""
        if not self._secrets:
            return result
        value, text = self._secrets.value(result.value), self._secrets.text(result.text)
        return replace(result, value=value, text=text)

    async def adopt(self, given: Sequence[tuple[Issued, Answer]]) -> None:
        """Begin with what a replay gave, so that the take is whole; the servers of it are started."""
        self._counted = self.infra_errors
        for issued, answer in given:
            await self._keep(issued, answer)

    async def _keep(self, issued: Issued, answer: Answer) -> None:
        """Write an answer. A cassette that cannot be written ends the episode as infra."""
        starts = self._fresh_starts()
        try:
            async with self._writing:
                if self._take is None:
                    begin = self._cassette.begin
                    self._take = await asyncio.to_thread(begin, self.track.setup, self._task, self._label)
                await asyncio.to_thread(self._cassette.add_call, self._take, issued, answer, starts)
        except AtlasError as exc:
            self._error = self._error or str(exc)

    def _named(self, result: ToolResult) -> tuple[Blob, ...]:
        """The binary parts that a result names, in the order in which it does."""
        handles = dict.fromkeys(_handles([result.value, result.text]))
        return tuple(self.blobs[handle] for handle in handles if handle in self.blobs)

    def _fresh_starts(self) -> dict[str, Start]:
        fresh = {
            name: Start(self.versions.get(name, ""), walls, self.how.get(name, ""))
            for name, walls in self.walls.items()
            if name not in self._started
        }
        self._started |= fresh.keys()
        return fresh

    def end(self, end: End) -> None:
        """Keep what the episode left. Blocks: for a thread, after `close`.

        Raises:
            CassetteError: The cassette is damaged.
            StorageError: It cannot be written.
        """
        if self.lost:
            return
        if self._take is None:
            self._take = self._cassette.begin(self.track.setup, self._task, self._label)
        tree = {p: None if data is None else self._secrets.data(data) for p, data in end.tree.items()}
        end = replace(end, tree=tree, verdicts=self._secrets.value(end.verdicts))
        self._cassette.end(self._take, self.track.history, end)

    async def settled(self) -> None:
        """Wait for the calls that nobody waits for any more; each ends at its deadline."""
        await self._sessions.settled()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """End the servers and finish writing; what a failure of the machine ended is forgotten."""
        await self._sessions.close()
        while self._tasks:
            await asyncio.wait(self._tasks)
        if self.lost and self._take is not None:
            take, self._take = self._take, None
            try:
                await asyncio.to_thread(self._cassette.drop, take)
            except AtlasError as exc:
                self._error = self._error or str(exc)


def _handles(value: Any) -> list[str]:
    """Handles of binary parts, wherever they stand in a value."""
    if isinstance(value, str):
        return _HANDLE.findall(value)
    if isinstance(value, dict):
        return [h for pair in value.items() for part in pair for h in _handles(part)]
    if isinstance(value, list):
        return [h for part in value for h in _handles(part)]
    return []

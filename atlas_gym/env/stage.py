"""Where one episode plays: on live servers, on live servers that are recorded, or on a cassette alone.

Owns the episode's workspace and sessions, and what the state checks look at in each of the three. Does not
know turns, budgets or rewards.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from atlas_gym.env.tape import secrets
from atlas_gym.env.world import World
from atlas_gym.errors import AtlasError
from atlas_gym.runtime.aside import removed
from atlas_gym.runtime.workspace import Workspace
from atlas_gym.task import fingerprint
from atlas_gym.task.checks import Evidence, state_checks
from atlas_gym.task.kinds import AnswerJson, AnswerNumber, AnswerText, CalledCheck, CheckBase, ToolCheck
from atlas_gym.task.model import Task
from atlas_gym.task.setup import lay_out
from atlas_gym.types import CheckResult, ToolResult
from atlas_gym.wire.calls import Calls
from atlas_gym.wire.cassette import CassetteError, End
from atlas_gym.wire.cassette_keys import Track
from atlas_gym.wire.cassette_recording import Recording
from atlas_gym.wire.cassette_tree import read_tree, write_tree
from atlas_gym.wire.replay import Replaying

_TOLD: Final = (AnswerJson, AnswerNumber, AnswerText, CalledCheck)
"""Checks of what was said and called; the others, `ToolCheck` apart, look at what lies on disk."""


class Stage:
    """One episode's place. `open` it, `settle` it before its sessions are closed, then `close` it.

    Args:
        world: What all episodes share.
        task: Whose set-up and checks.
        servers: The visible ones.
        label: What a replay of this very episode is to be found by: its seed and variant.
    """

    def __init__(self, world: World, task: Task, servers: Sequence[str], label: str) -> None:
        self._world = world
        self._task = task
        self._servers = tuple(servers)
        self._label = label
        self._workspace: Workspace | None = None
        self._recording: Recording | None = None
        self._replaying: Replaying | None = None
        self._track: Track | None = None

    async def open(self) -> Calls:
        """Lay out the set-up, where servers will need it. None starts.

        Returns:
            What the episode makes its calls through.

        Raises:
            StorageError: The workspace cannot be written.
            CassetteError: There is no cassette, or it cannot be read.
        """
        tape = self._world.tape
        if tape is None:
            return await self._live()
        catalog = self._world.catalog
        hidden = secrets(catalog.get(name).manifest for name in self._servers)
        self._track = track = Track(
            fingerprint.digest(self._task.setup),
            lambda name: tape.server_digest(catalog.get(name)) if name in catalog else "",
            lambda name, tool: name not in catalog or self._world.read_only(name, tool),
            hidden,
        )

        def record(live: Calls) -> Recording:
            return Recording(
                live, tape.cassette, track, task=self._task.id, label=self._label, secrets=hidden
            )

        if tape.mode == "record":
            self._recording = record(await self._live())
            return self._recording
        go_live = None if tape.replays_only else self._go_live
        self._replaying = Replaying(tape.cassette, track, label=self._label, go_live=go_live, record=record)
        return self._replaying

    def hear(self, message: str) -> None:
        """Note what the agent writes: of several recordings, its own is the one that is played."""
        if self._track is not None:
            self._track.hear(message)

    async def _live(self) -> Calls:
        await asyncio.to_thread(self._world.sweep)
        setup = self._task.setup
        housing, task = self._world.housing, self._task
        self._workspace, ready = await housing.place(task.id, setup, self._servers)
        if self._world.config.spares:
            housing.want(task.id, setup, task.servers, self._world.config.spares, refill=True)
        return self._world.sessions(self._workspace, setup, ready)

    async def _go_live(self) -> Calls:
        await asyncio.to_thread(self._world.prepare, self._servers)
        return await self._live()

    async def settle(self) -> None:
        """Be ready for `state_checks`: after the tool checks, before the servers are stopped.

        Raises:
            CassetteError: A replay could not answer something, or does not hold what the checks look at.
        """
        if self._replaying is None:
            return
        looks = any(_on_disk(check) for check in self._task.checks)
        # Where nothing was called, what there is to see is the set-up itself.
        await self._replaying.prepare_end(needed=looks and self._replaying.track.count > 0)
        if self._replaying.lost:
            raise CassetteError(self._replaying.lost)

    def state_checks(self, answer: str | None, calls: Sequence[ToolResult]) -> list[CheckResult]:
        """Run the checks that call no tool, with every server stopped. Blocks: for a thread.

        Raises:
            AtlasError: They could not be run at all.
        """
        workspace = self._workspace
        if workspace is None:
            return self._replayed_checks(answer, calls)
        copy = workspace.snapshot()
        try:
            shown, skipped = workspace.to_agent, copy.skipped
            evidence = Evidence(answer, copy.files, copy.state, calls, shown=shown, skipped=skipped)
            found = state_checks(self._task, evidence)
            recording = self._replaying.recording if self._replaying else self._recording
            if recording is not None and not any(result.error for result in found):
                root, verdicts = str(workspace.root), self._verdicts(found)
                recording.end(End(root, read_tree(copy.root), verdicts, skipped))
            return found
        finally:
            copy.close()

    def _verdicts(self, found: Sequence[CheckResult]) -> dict[str, Mapping[str, Any]]:
        checks = [check for check in self._task.checks if not isinstance(check, ToolCheck)]
        pairs = zip(checks, found, strict=True)
        return {_digest(check): asdict(result) for check, result in pairs if _on_disk(check)}

    def _replayed_checks(self, answer: str | None, calls: Sequence[ToolResult]) -> list[CheckResult]:
        assert self._replaying is not None
        end = self._replaying.find_end()
        workspace = Workspace.create(f"replay-{self._task.id}")
        try:
            if end is not None:
                write_tree(workspace.root, end.tree)
            elif any(_on_disk(check) for check in self._task.checks):
                lay_out(self._task.setup, workspace.files, workspace.state)
            shown = Workspace(Path(end.root)).to_agent if end else workspace.to_agent
            skipped = end.skipped if end else ()
            evidence = Evidence(answer, workspace.files, workspace.state, calls, shown=shown, skipped=skipped)
            return self._checked(evidence, end.verdicts if end else {})
        finally:
            workspace.close()

    def _checked(self, evidence: Evidence, verdicts: Mapping[str, Mapping[str, Any]]) -> list[CheckResult]:
        """Judge with the real checks; what this machine cannot judge (no git) has the recorded verdict."""
        try:
            found = state_checks(self._task, evidence)
            if not any(result.error for result in found):
                return found
        except AtlasError:
            if not verdicts:
                raise
        found = []
        for check in self._task.checks:
            if not isinstance(check, ToolCheck):
                found.append(self._checked_alone(check, evidence, verdicts.get(_digest(check))))
        return found

    def _checked_alone(
        self, check: CheckBase, evidence: Evidence, verdict: Mapping[str, Any] | None
    ) -> CheckResult:
        try:
            (result,) = state_checks(self._task.model_copy(update={"checks": (check,)}), evidence)
        except AtlasError as exc:
            result = CheckResult(check.name, False, check.weight, check.gate, error=str(exc)[:500])
        return CheckResult(**verdict) if result.error and verdict else result

    def facts(self) -> dict[str, Any]:
        """What a trajectory's settings say of the cassette; empty without one."""
        tape = self._world.tape
        if tape is None:
            return {}
        live = self._replaying is None or self._replaying.recording is not None
        return {"cassette": {"mode": tape.mode, "digest": tape.digest, "live": live}}

    async def close(self) -> None:
        """Remove the workspace. Idempotent. The sessions must be closed before."""
        if self._workspace is not None:
            workspace, self._workspace = self._workspace, None
            try:
                await self._world.housing.pool.end(workspace.root.name)
            finally:
                await removed(workspace)


def _on_disk(check: CheckBase) -> bool:
    return not isinstance(check, (*_TOLD, ToolCheck))


def _digest(check: CheckBase) -> str:
    """Over everything that a check says, so that a verdict is never one of another check."""
    return hashlib.sha256(check.model_dump_json().encode("utf-8", "surrogatepass")).hexdigest()

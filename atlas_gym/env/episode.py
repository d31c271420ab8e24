"""One episode, asynchronous: from a task to a checked trajectory.

Owns the order of things in a turn (count the agent's tokens, read its actions, run them, fit the answer
into the budget, stop or go on) and the end (tool checks, servers stopped, state checks, reward).
Does not know Gymnasium, judges or models.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass, field
from typing import Final

from atlas_gym.context.budget import Budget
from atlas_gym.context.conversation import Conversation
from atlas_gym.context.fit import fit
from atlas_gym.env.actions import MAX_ACTION_CHARS, Grammar, encodable
from atlas_gym.env.dispatch import Dispatcher, Piece
from atlas_gym.env.stage import Stage
from atlas_gym.env.world import World
from atlas_gym.errors import AtlasError
from atlas_gym.task.checks import reward, tool_checks
from atlas_gym.task.kinds import ToolCheck
from atlas_gym.task.model import Task
from atlas_gym.toolspace.exposure import View
from atlas_gym.toolspace.prompts import Execution, Exposure
from atlas_gym.types import (
    CheckResult,
    InvalidReason,
    Label,
    Segment,
    Stop,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
)
from atlas_gym.wire.calls import Calls

LONG_TEXT: Final = 100_000
"""Characters from which tokenising is worth a thread."""

_guards: set[asyncio.Task[None]] = set()
"""Strong references: a loop holds its tasks only weakly, and an open episode must not be collected."""


@dataclass(frozen=True)
class EpisodeSettings:
    """How an episode is played; the same for every task."""

    exposure: Exposure = "tools"
    execution: Execution = "code"
    budget: Budget = field(default_factory=Budget)
    sandbox: str = "auto"
    strict: bool = True
    """Refuse tools whose schema was not loaded."""
    prose_answer: bool = True
    """Prose without any call is the answer."""
    check_seconds: float = 60.0
    """Deadline of the checks: for each one that calls a tool, and for the others together."""


@dataclass(frozen=True)
class StepResult:
    """What one step gave."""

    observation: str
    reward: float
    terminated: bool
    truncated: bool


class Episode:
    """One task being played. `open`, then `step` until it says it is over; `close` at any time."""

    def __init__(
        self, world: World, task: Task, servers: tuple[str, ...], settings: EpisodeSettings, seed: int | None
    ) -> None:
        self.world = world
        self.task = task
        self.servers = servers
        self.settings = settings
        self.seed = seed
        self.stop: Stop = ""
        self.error = ""
        self.answer: str | None = None
        self.reward = 0.0
        self.invalid_reason: InvalidReason = ""
        self.checks: tuple[CheckResult, ...] = ()
        self.turns: list[Turn] = []
        self.invalid_actions = 0
        self.prompt = ""
        self.context_at_reset = 0
        self._prompt_segments: tuple[Segment, ...] = ()
        self._conversation = Conversation(world.renderer)
        self._stage: Stage | None = None
        self._sessions: Calls | None = None
        self._dispatcher: Dispatcher | None = None
        self._guard: asyncio.Task[None] | None = None
        self._started = 0.0
        self._infra_errors = 0
        self._versions: dict[str, str] = {}
        self._walls: dict[str, str] = {}
        self._how: dict[str, str] = {}

    async def open(self) -> None:
        """Lay out the workspace and build the prompt. No server starts.

        Raises:
            ConfigError: A visible server is unknown or cannot run here.
            StorageError: The workspace cannot be written.
        """
        self._guard = asyncio.create_task(self._close_with_the_loop())
        _guards.add(self._guard)
        self._guard.add_done_callback(_guards.discard)
        toolset = await asyncio.to_thread(self.world.toolset, self.servers)
        view = View(toolset, self.settings.exposure, self.settings.execution, strict=self.settings.strict)
        self._stage = Stage(self.world, self.task, self.servers, self._label())
        self._sessions = await self._stage.open()
        self._dispatcher = Dispatcher(
            view=view,
            sessions=self._sessions,
            budget=self.settings.budget,
            sandbox=self.settings.sandbox,
            seed=self.seed or 0,
            read_only=self.world.read_only,
        )
        self._grammar = Grammar(view.meta_tools, self.settings.prose_answer)
        system = view.pieces()
        user: list[tuple[Label, str]] = [("task", self.task.prompt)]
        self._prompt_segments = tuple(self._conversation.open(system, user))
        self.prompt = "".join(text for _, text in system) + "\n\n" + self.task.prompt
        self.context_at_reset = self._conversation.used
        self._started = time.monotonic()

    def _label(self) -> str:
        """What a recording of this very episode is found by."""
        settings = self.settings
        rest = hashlib.sha256(repr((settings.budget, settings.sandbox, settings.strict)).encode()).hexdigest()
        return f"{settings.exposure}/{settings.execution}, seed {self.seed}, {rest[:8]}"

    async def _close_with_the_loop(self) -> None:
        """An episode that nobody closed is put away when the interpreter ends and the loop with it."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # not when a fork's child collects what is its parent's
            self._guard = None
            await self.close()

    @property
    def done(self) -> bool:
        """Whether the episode is over."""
        return bool(self.stop)

    @property
    def context_used(self) -> int:
        """Tokens of the whole conversation so far."""
        return self._conversation.used

    @property
    def context_left(self) -> int:
        """Tokens that the budget still holds; never negative."""
        return max(0, self.settings.budget.context_tokens - self._conversation.used)

    @property
    def conversation(self) -> Conversation:
        """The token-exact conversation, for policies that sample from it."""
        return self._conversation

    def ledger(self) -> dict[Label, int]:
        """Tokens per label; the values sum to `context_used`."""
        return self._conversation.ledger()

    @property
    def tool_calls(self) -> int:
        """Tool calls made, inside cells or not; meta-tools and refused calls do not count."""
        return self._dispatcher.tool_calls if self._dispatcher else 0

    @property
    def infra_errors(self) -> int:
        """Failures of servers or sandboxes so far, mended ones included."""
        live = self._sessions.infra_errors if self._sessions else 0
        return self._infra_errors + live

    async def step(self, text: str) -> StepResult:
        """Play one message of the agent. Raises for nothing that the agent, a tool or a server did."""
        if self.done or self._dispatcher is None or self._stage is None:
            return StepResult("", 0.0, self.stop == "answer", self.stop != "answer")
        began = time.monotonic()
        if len(text) > MAX_ACTION_CHARS:
            text = text[:MAX_ACTION_CHARS]
        text_safe = text if encodable(text) else text.encode("utf-8", "replace").decode()
        agent = self._conversation.agent(text_safe)
        actions = self._grammar.parse(text)
        self.invalid_actions += sum(a.kind == "invalid" for a in actions)
        pieces: list[Piece] = []
        results: tuple[ToolResult, ...] = ()
        stop: Stop = ""
        answers = actions[-1].kind == "answer"
        over = self._conversation.used > self.settings.budget.context_tokens
        if over or (self.context_left == 0 and not answers):  # no room for this message, or for a result
            stop = "context"
            self.error = self._no_room()
        else:
            left = self.settings.budget.episode_seconds - (began - self._started)
            self._stage.hear(text_safe)
            outcome = await self._dispatcher.run(actions, seconds=max(0.0, left))
            pieces, results, stop = outcome.pieces, outcome.results, outcome.stop
            self.answer, self.error = outcome.answer, outcome.error
        observation: str = ""
        reply: tuple[Segment, ...] = ()
        if stop != "answer":
            fitted = [await self._fit(piece) for piece in pieces]
            observation, reply, full = self._respond(fitted)
            stop = stop or ("context" if full else "") or self._spent()
        self.turns.append(
            Turn(
                index=len(self.turns) + 1,
                text=text_safe,
                actions=actions,
                results=results,
                observation=observation,
                segments=(*agent, *reply),
                context_used=self._conversation.used,
                ledger={str(label): n for label, n in self._conversation.ledger().items()},
                seconds=time.monotonic() - began,
            )
        )
        if stop:
            await self._finish(stop)
        return StepResult(
            observation, self.reward, self.stop == "answer", bool(self.stop) and self.stop != "answer"
        )

    def _no_room(self) -> str:
        budget = self.settings.budget.context_tokens
        return f"This message brings the conversation to {self._conversation.used} tokens of {budget}."

    def _spent(self) -> Stop:
        budget = self.settings.budget
        if time.monotonic() - self._started > budget.episode_seconds:
            return "time"
        return "turns" if len(self.turns) + 1 >= budget.turns else ""

    async def _fit(self, piece: Piece) -> tuple[Label, str]:
        """Cut a piece to the response budget; a huge one beside the loop, so that no other episode waits."""
        tokenizer, limit = self.world.tokenizer, self.settings.budget.response_tokens
        if 2 * len(piece.text) <= limit and piece.text.isascii():  # a character is a token at the most
            return piece.label, piece.text
        if len(piece.text) < LONG_TEXT:
            return piece.label, fit(tokenizer, piece.text, limit)[0]
        return piece.label, (await asyncio.to_thread(fit, tokenizer, piece.text, limit))[0]

    def _respond(self, fitted: list[tuple[Label, str]]) -> tuple[str, tuple[Segment, ...], bool]:
        """Fit the pieces into what is left, add them, and say whether the budget is full."""
        left = self.context_left
        if not fitted or left == 0:
            return "", (), left == 0
        need = self._conversation.preview(fitted)
        if need > left:
            fitted = self._shrink(fitted, left)
            if not fitted:
                return "", (), True
        segments = self._conversation.respond(fitted)
        return "".join(text for _, text in fitted), tuple(segments), need >= left

    def _shrink(self, pieces: list[tuple[Label, str]], left: int) -> list[tuple[Label, str]]:
        """As many pieces as fit into the remainder, the last of them cut; empty when not even that."""
        kept: list[tuple[Label, str]] = []
        for label, text in pieces:
            if self._conversation.preview([*kept, (label, text)]) <= left:
                kept.append((label, text))
                continue
            room = left - self._conversation.preview([*kept, (label, "")])
            while room > 0:  # the seam between two pieces may cost a token or two more than each alone
                short = fit(self.world.tokenizer, text, room)[0]
                if self._conversation.preview([*kept, (label, short)]) <= left:
                    return [*kept, (label, short)]
                room -= 4
            break
        return kept

    async def _finish(self, stop: Stop) -> None:
        assert self._sessions is not None
        assert self._dispatcher is not None
        assert self._stage is not None
        self.stop = stop
        await self._dispatcher.close()
        if self.stop != "infra":
            await self._sessions.settled()  # calls that a stopped cell had begun
        if self._sessions.lost:
            self.stop, self.error = "infra", self._sessions.lost
        if self.stop == "infra":
            self.invalid_reason = "infra"
        else:
            await self._check(self._sessions, self._stage)
        await self.close()

    async def _check(self, sessions: Calls, stage: Stage) -> None:
        """Tool checks on the live servers; then, with every server stopped, the rest on a copy."""
        seconds = self.settings.check_seconds

        async def call(call: ToolCall) -> ToolResult:
            # A call that hangs is made twice, and then on a clean server: all of that must fit.
            return await sessions.call(call, seconds=min(seconds / 6, self.settings.budget.call_seconds))

        calls_made = sum(isinstance(check, ToolCheck) for check in self.task.checks)
        try:
            async with asyncio.timeout(seconds * max(1, calls_made)):
                found = await tool_checks(self.task, call)
                await stage.settle()
            await self._stop_servers()
            calls = [result for turn in self.turns for result in turn.results]
            found += await asyncio.to_thread(stage.state_checks, self.answer, calls)
        except (TimeoutError, AtlasError) as exc:
            what = str(exc) or f"the checks took longer than {seconds:g} seconds"
            self.invalid_reason, self.error = "infra", f"Checks could not be run: {what}"
            return
        self.checks = tuple(found)
        broken = [check for check in found if check.error]
        if broken:
            self.invalid_reason = "infra"
            self.error = f"Check {broken[0].name!r} could not be run: {broken[0].error}"
        else:
            self.reward = reward(found)

    async def _stop_servers(self) -> None:
        if self._sessions is not None:
            sessions, self._sessions = self._sessions, None
            self._infra_errors += sessions.infra_errors
            self._versions.update(sessions.versions)
            self._walls.update(sessions.walls)
            self._how.update(sessions.how)
            await sessions.close()

    async def close(self) -> None:
        """End the sandbox, the servers and the workspace. Idempotent; never raises for their fault."""
        if self._dispatcher is not None:
            await self._dispatcher.close()
        await self._stop_servers()
        if self._stage is not None:
            await self._stage.close()
        guard, self._guard = self._guard, None
        if guard is not None:
            guard.cancel()

    def trajectory(self, *, policy: str = "") -> Trajectory:
        """The episode so far, as a frozen record."""
        settings = self.settings
        sessions = self._sessions
        walls = {**self._walls, **(sessions.walls if sessions else {})}
        return Trajectory(
            task_id=self.task.id,
            suite=self.task.suite,
            seed=self.seed,
            settings={
                "exposure": settings.exposure,
                "execution": settings.execution,
                "budget": settings.budget.to_dict(),
                "sandbox": self._dispatcher.sandbox_kind if self._dispatcher else settings.sandbox,
                "strict": settings.strict,
                "runtime": self.world.config.runtime,
                "tokenizer": self.world.tokenizer.name,
                "suite": self.world.suite.version,
                "walls": walls,
                "started": {**self._how, **(sessions.how if sessions else {})},
                **(self._stage.facts() if self._stage else {}),
            },
            prompt=self.prompt,
            servers=self.servers,
            segments=self._prompt_segments,
            turns=tuple(self.turns),
            stop=self.stop,
            answer=self.answer,
            checks=self.checks,
            reward=self.reward,
            reward_valid=not self.invalid_reason,
            invalid_reason=self.invalid_reason,
            error=self.error,
            versions={**self._versions, **(sessions.versions if sessions else {})},
            context_at_reset=self.context_at_reset,
            policy=policy,
        )

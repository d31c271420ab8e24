"""Messages to labelled token ids, for one tokenizer and one chat template.

The text between two control tokens is tokenised whole, and a token gets the label of the piece in which
it starts: the ids equal those of the rendered text tokenised in one go, and every token has one label.
What the agent wrote is tokenised apart (it was sampled after the generation prompt), or not at all when
it brings its ids. Rendering only ever appends: a template that would rewrite earlier turns is refused.
Does not know budgets.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from atlas_gym.context.template import ChatTemplate, RefusedError
from atlas_gym.context.tokenizer import Tokenizer
from atlas_gym.errors import ContextError
from atlas_gym.types import Label, Segment

Piece: TypeAlias = tuple[Label, str]
Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

_AGENT: Final = "assistant"


class SampledText(str):
    """The agent's text with what the policy sampled; in every other way it is the text.

    Args:
        text: The decoded text, with or without the end-of-turn token's text.
        ids: The sampled token ids, in order; never tokenised again.
        logprobs: One log-probability per id, where known.
        policy_version: Which weights sampled them.

    Raises:
        ContextError: The numbers of ids and log-probabilities differ, or an id is no whole number >= 0.
    """

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    policy_version: str

    def __new__(
        cls,
        text: str,
        ids: Iterable[int],
        logprobs: Iterable[float] | None = None,
        policy_version: str = "",
    ) -> SampledText:
        """See the class."""
        self = super().__new__(cls, text)
        self.ids = tuple(int(i) for i in ids)
        self.logprobs = None if logprobs is None else tuple(float(p) for p in logprobs)
        self.policy_version = policy_version
        if any(i < 0 for i in self.ids):
            raise ContextError(f"Sampled id {min(self.ids)} is below zero: give the ids without padding.")
        if self.logprobs is not None and len(self.logprobs) != len(self.ids):
            raise ContextError(
                f"{len(self.ids)} sampled ids but {len(self.logprobs)} log-probabilities: give one per id."
            )
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (str(self), self.ids, self.logprobs, self.policy_version)


@dataclass(frozen=True, slots=True)
class Message:
    """One message as labelled pieces; their texts joined are its content."""

    role: Role
    pieces: tuple[Piece, ...]
    sampled: SampledText | None = None
    """For the assistant: what the policy sampled, where it says so."""

    @property
    def content(self) -> str:
        """The text of all pieces."""
        return "".join(text for _, text in self.pieces)


class Renderer:
    """Renders messages to segments. Immutable but for a cache of markup; safe to share.

    Args:
        tokenizer: From `load_tokenizer`.
        template: `"chatml"`, `"qwen3"`, jinja text or the path of a file of it; None takes the one that
            came with the tokenizer, else `"chatml"`.
        variables: More names for the template (`{"enable_thinking": False}`).

    Raises:
        ContextError: The template cannot be used, or rewrites earlier turns.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: str | Path | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        self.tokenizer: Final = tokenizer
        self._template = ChatTemplate(
            template or tokenizer.chat_template or "chatml", {**tokenizer.variables, **(variables or {})}
        )
        self.template: Final = self._template.name
        self._markup: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[bool, ...]]] = {}
        # Some templates have no system role, others move its message to the last turn.
        self._has_system = self._accepts(("system", "user")) and self._accepts(
            ("system", "user", _AGENT, "user")
        )
        first = ("system", "user") if self._has_system else ("user",)
        self._has_tool = self._accepts((*first, _AGENT, "tool"))
        turn = "tool" if self._has_tool else "user"
        roles = first
        for role in (turn, "user", turn):
            self._grow(roles, role)
            roles = (*roles, _AGENT, role)
        closing = self._ask((*first, _AGENT, "user"))[0][-2]
        parts = tokenizer.controls.split(closing)
        ends = [i for i, part in enumerate(parts) if isinstance(part, int)]
        self._closing = parts[: ends[0] + 1] if ends else []
        self.end_of_turn: Final = self._closing[-1] if ends else None
        """The control token that ends the agent's message, if the template has one."""
        text = [text for text, i in tokenizer.controls.ids.items() if i == self.end_of_turn]
        self.end_of_turn_text: Final = text[0] if text else ""

    def opening(self, messages: Sequence[Message]) -> tuple[list[Segment], tuple[str, ...]]:
        """The messages before the agent's first one, up to and with the generation prompt.

        Returns:
            The segments, and the roles as rendered (a template without a system role gets the system's
            pieces at the head of the user's).
        """
        kept = [self._for_template(m) for m in messages if m.pieces]
        if len(kept) > 1 and kept[0].role == "system" and not self._has_system:
            gap: Piece = ("template", "\n\n")
            kept[:2] = [Message(kept[1].role, (*kept[0].pieces, gap, *kept[1].pieces))]
        roles = tuple(m.role for m in kept)
        texts, trims = self._ask(roles)
        runs = _Runs(self.tokenizer)
        for text, message, trim in zip(texts, kept, trims, strict=False):
            runs.markup(text)
            runs.content(_trimmed(message.pieces) if trim else message.pieces)
        runs.markup(texts[-1])
        return runs.segments(), roles

    def agent(self, message: Message) -> list[Segment]:
        """The agent's message, closed by the end-of-turn token unless the agent sampled it itself."""
        sampled = message.sampled
        if sampled is not None and sampled.ids:
            piece = Segment("agent", sampled.ids, sampled.logprobs, True, sampled.policy_version)
            if self.end_of_turn is not None and sampled.ids[-1] == self.end_of_turn:
                return [piece]
        else:
            ids = self.tokenizer.encode(message.content.removesuffix(self.end_of_turn_text))
            piece = Segment("agent", tuple(ids))
        runs = _Runs(self.tokenizer)
        runs.parts(self._closing)
        return [piece, *runs.segments()] if piece.ids else runs.segments()

    def answer(self, roles: tuple[str, ...], message: Message) -> tuple[list[Segment], tuple[str, ...]]:
        """What follows a closed message of the agent: a message to it, and the generation prompt.

        Args:
            roles: The roles so far, the agent's last message left out.
            message: The environment's answer.

        Returns:
            The segments, and the roles with both messages.
        """
        message = self._for_template(message)
        texts, trims = self._grow(roles, message.role)
        runs = _Runs(self.tokenizer)
        runs.parts(self.tokenizer.controls.split(texts[-2])[len(self._closing) :])
        runs.content(_trimmed(message.pieces) if trims[-1] else message.pieces)
        runs.markup(texts[-1])
        return runs.segments(), (*roles, _AGENT, message.role)

    def _for_template(self, message: Message) -> Message:
        if message.role == "tool" and not self._has_tool:
            return Message("user", message.pieces)
        return message

    def _accepts(self, roles: tuple[str, ...]) -> bool:
        try:
            self._template.markup(roles)
        except RefusedError:
            return False
        return True

    def _ask(self, roles: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[bool, ...]]:
        found = self._markup.get(roles)
        if found is None:
            try:
                found = self._template.markup(roles)
            except RefusedError as exc:
                raise ContextError(
                    f"Chat template {self.template!r} refuses the roles {', '.join(roles)}: {exc}. "
                    "Use template='chatml', or another template."
                ) from exc
            if len(self._markup) > 4096:
                self._markup.clear()
            self._markup[roles] = found
        return found

    def _grow(self, roles: tuple[str, ...], role: str) -> tuple[tuple[str, ...], tuple[bool, ...]]:
        before, _ = self._ask(roles)
        after, trims = self._ask((*roles, _AGENT, role))
        if after[: len(roles)] != before[:-1]:
            raise ContextError(
                f"Chat template {self.template!r} rewrites earlier turns when a turn is added, so what the "
                "agent saw could not be trained on. Use template='chatml' or 'qwen3', or change the template "
                "so that it only appends."
            )
        return after, trims


class _Runs:
    """Collects labelled text and control tokens; tokenises the text between control tokens whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._run: list[Piece] = []
        self._done: list[tuple[Label, list[int]]] = []

    def markup(self, text: str) -> None:
        self.parts(self._tokenizer.controls.split(text))

    def parts(self, parts: Iterable[str | int]) -> None:
        for part in parts:
            if isinstance(part, int):
                self._flush()
                self._done.append(("template", [part]))
            else:
                self._run.append(("template", part))

    def content(self, pieces: Iterable[Piece]) -> None:
        self._run += pieces

    def segments(self) -> list[Segment]:
        self._flush()
        return [
            Segment(label, tuple(i for _, ids in group for i in ids))
            for label, group in groupby(self._done, key=lambda entry: entry[0])
        ]

    def _flush(self) -> None:
        run = [piece for piece in self._run if piece[1]]
        self._run = []
        if not run:
            return
        if len(run) == 1:
            self._done.append((run[0][0], self._tokenizer.encode(run[0][1])))
            return
        ids, starts = self._tokenizer.encode_offsets("".join(text for _, text in run))
        at = 0
        for (label, _), end in zip(run, accumulate(len(text) for _, text in run), strict=True):
            upto = bisect_left(starts, end, at)
            if upto > at:
                self._done.append((label, ids[at:upto]))
            at = upto


def _trimmed(pieces: Sequence[Piece]) -> list[Piece]:
    """The pieces without white space at the ends of the text that they make together."""
    kept = [piece for piece in pieces if piece[1]]
    while kept and not kept[0][1].strip():
        kept.pop(0)
    while kept and not kept[-1][1].strip():
        kept.pop()
    if kept:
        kept[0] = (kept[0][0], kept[0][1].lstrip())
        kept[-1] = (kept[-1][0], kept[-1][1].rstrip())
    return kept

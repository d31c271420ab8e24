"""One episode's conversation: append-only labelled token ids, and the ledger that counts them.

Earlier turns are never tokenised again, and never rewritten: an agent's `<think>` stays in its history
even where the model's own template would strip it, because that is what the agent saw when it sampled.
Does not know budgets or what the text says.
"""

from __future__ import annotations

from collections.abc import Sequence

from atlas_gym.context.renderer import Message, Piece, Renderer, Role, SampledText
from atlas_gym.errors import ContextError
from atlas_gym.types import LABELS, Label, Segment


class Conversation:
    """The conversation that a model sees, as segments of token ids.

    First `open`, then `agent` and `respond` in turn. Not for several threads at once.

    Args:
        renderer: Tokenizer and chat template; may be shared.
    """

    def __init__(self, renderer: Renderer) -> None:
        self.renderer = renderer
        self._segments: list[Segment] = []
        self._ledger: dict[Label, int] = dict.fromkeys(LABELS, 0)
        self._messages: list[Message] = []
        self._roles: tuple[str, ...] = ()
        self._expects = "open"
        self._drafted: tuple[Message, list[Segment], tuple[str, ...]] | None = None

    @property
    def used(self) -> int:
        """Tokens of the whole conversation; the ledger's items sum to it."""
        return sum(self._ledger.values())

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Everything so far, in order."""
        return tuple(self._segments)

    def open(self, system: Sequence[Piece], user: Sequence[Piece]) -> list[Segment]:
        """The system's and the user's first message, and the generation prompt.

        Args:
            system: Labelled pieces of the system message; none leaves it out.
            user: Labelled pieces of the user's message.

        Raises:
            ContextError: The conversation is open already, or the template refuses.
        """
        self._due("open")
        messages = [Message("system", tuple(system)), Message("user", tuple(user))]
        messages = [message for message in messages if message.pieces]
        segments, self._roles = self.renderer.opening(messages)
        return self._append(messages, segments, then="agent")

    def agent(self, text: str | SampledText) -> list[Segment]:
        """The agent's message, as sampled, closed by the end-of-turn token.

        Args:
            text: A `SampledText` brings its ids, which are taken as they are. Other text is tokenised as
                ordinary text; an end-of-turn token's text at its end is taken for that token.

        Raises:
            ContextError: It is not the agent's turn.
        """
        self._due("agent")
        sampled = text if isinstance(text, SampledText) and text.ids else None
        message = Message("assistant", (("agent", str(text)),), sampled)
        return self._append([message], self.renderer.agent(message), then="respond")

    def respond(self, pieces: Sequence[Piece], role: Role = "tool") -> list[Segment]:
        """What the environment answers, and the next generation prompt.

        Args:
            pieces: Labelled pieces of the answer.
            role: `"tool"` for results (a template without that role shows them as the user's), else
                `"user"`.

        Raises:
            ContextError: It is not the environment's turn, or the template refuses.
        """
        self._due("respond")
        message, segments, self._roles = self._draft(pieces, role)
        self._drafted = None
        return self._append([message], segments, then="agent")

    def preview(self, pieces: Sequence[Piece], role: Role = "tool") -> int:
        """Tokens that `respond` would add, markup and generation prompt included.

        Raises:
            ContextError: It is not the environment's turn, or the template refuses.
        """
        self._due("respond")
        return sum(len(segment.ids) for segment in self._draft(pieces, role)[1])

    def ledger(self) -> dict[Label, int]:
        """Tokens per label, every label present; the values sum to `used`."""
        return dict(self._ledger)

    def ids(self) -> list[int]:
        """The token ids of the whole conversation."""
        return [i for segment in self._segments for i in segment.ids]

    def text(self) -> str:
        """The text of `ids`, markup included."""
        return self.renderer.tokenizer.decode(self.ids())

    def messages(self) -> list[dict[str, str]]:
        """The same conversation as chat messages (`role`, `content`), for policies behind a chat API."""
        end = self.renderer.end_of_turn_text
        return [
            {
                "role": message.role,
                "content": message.content.removesuffix(end)
                if message.role == "assistant"
                else message.content,
            }
            for message in self._messages
        ]

    def _draft(self, pieces: Sequence[Piece], role: Role) -> tuple[Message, list[Segment], tuple[str, ...]]:
        message = Message(role, tuple(pieces))
        if self._drafted is None or self._drafted[0] != message:
            self._drafted = (message, *self.renderer.answer(self._roles, message))
        return self._drafted

    def _append(self, messages: list[Message], segments: list[Segment], then: str) -> list[Segment]:
        self._messages += messages
        self._segments += segments
        for segment in segments:
            self._ledger[segment.label] += len(segment.ids)
        self._expects = then
        return segments

    def _due(self, now: str) -> None:
        if self._expects != now:
            raise ContextError(
                f"Conversation.{now}() was called when {self._expects}() is due: "
                "open once, then agent and respond in turn."
            )

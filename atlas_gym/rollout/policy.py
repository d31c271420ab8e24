"""Policies: what takes the agent's place, one message at a time.

Owns the protocol, what a policy may see, and the floor policies that need no model. A policy never
sees rewards, checks or gold; the scripted gold policy is given its program by who makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from atlas_gym.env.episode import Episode
from atlas_gym.types import Turn


@dataclass(frozen=True)
class PolicyInput:
    """What an agent can know before it writes its next message."""

    prompt: str
    """System text, index and task."""
    result: str
    """What the environment answered last; "" at the start."""
    messages: Sequence[Mapping[str, Any]]
    """The conversation for chat endpoints: `role` and `content`."""
    ids: Sequence[int]
    """The conversation as token ids, ending where the agent is to go on."""
    context_left: int
    turn: int
    """Messages written so far."""
    last: Turn | None
    """The last turn with its typed results; None at the start."""


class Policy(Protocol):
    """One agent in one episode."""

    name: str

    async def act(self, seen: PolicyInput) -> str:
        """Write the next message; a `SampledText` carries its token ids and log-probabilities."""
        ...


PolicyFactory: TypeAlias = Callable[[Episode], Policy]
"""Makes the policy of one episode. What it takes from the episode is its own honesty."""


@dataclass
class ScriptedPolicy:
    """Says the given messages in order, then gives `last` for ever."""

    messages: Sequence[str]
    last: str = "<answer></answer>"
    name: str = "scripted"

    async def act(self, seen: PolicyInput) -> str:
        """The message of this turn."""
        return self.messages[seen.turn] if seen.turn < len(self.messages) else self.last


def empty_answer(episode: Episode) -> Policy:
    """Floor: an empty answer."""
    return ScriptedPolicy([], "<answer></answer>", "empty")


def echo_prompt(episode: Episode) -> Policy:
    """Floor: the task text itself as the answer."""
    return ScriptedPolicy([], f"<answer>{episode.task.prompt}</answer>", "echo")


def says_impossible(episode: Episode) -> Policy:
    """Floor: claims that the task cannot be done, whatever it is."""
    text = "This is impossible: it cannot be done with the tools and data that are available."
    return ScriptedPolicy([], f"<answer>{text}</answer>", "impossible")


def see(episode: Episode) -> PolicyInput:
    """What the agent of this episode can know now."""
    turns = episode.turns
    conversation = episode.conversation
    return PolicyInput(
        prompt=episode.prompt,
        result=turns[-1].observation if turns else "",
        messages=conversation.messages(),
        ids=conversation.ids(),
        context_left=episode.context_left,
        turn=len(turns),
        last=turns[-1] if turns else None,
    )

"""What a task costs at least in a variant, predicted without starting a server.

Owns the lower bound: the prompt, the schemas that the gold program needs, and in code the program
itself. Results are not in it, so that what it says does not fit, does not. Does not know rewards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from atlas_gym.context.budget import Budget
from atlas_gym.context.conversation import Conversation
from atlas_gym.env.world import World
from atlas_gym.rollout.gold import tools_used
from atlas_gym.rollout.variants import VARIANTS, Variant
from atlas_gym.task.model import Task
from atlas_gym.toolspace.exposure import View
from atlas_gym.types import Label


@dataclass(frozen=True)
class Prediction:
    """One task in one variant."""

    task_id: str
    variant: Variant
    at_reset: int
    """Tokens of the prompt; exact."""
    at_least: int
    """Tokens that any solution with the gold program's tools needs."""

    def misses(self, budget: Budget) -> str:
        """Why the task cannot fit the budget in this variant; "" when it may."""
        if self.at_reset > budget.context_tokens:
            return f"the prompt alone has {self.at_reset:,} tokens of {budget.context_tokens:,}"
        if self.at_least > budget.context_tokens:
            return f"prompt, schemas and calls need at least {self.at_least:,} of {budget.context_tokens:,}"
        return ""


def predict(world: World, task: Task, variants: Iterable[Variant] = VARIANTS) -> tuple[Prediction, ...]:
    """Predict one task. Installs servers that are not; not for the event loop's thread.

    Raises:
        ConfigError: A visible server cannot run on this machine.
        TaskError: The gold program is not Python.
    """
    toolset = world.toolset(task.visible)
    used = tools_used(task.gold)
    found = []
    for variant in variants:
        view = View(toolset, variant.exposure, variant.execution)
        conversation = Conversation(world.renderer)
        user: list[tuple[Label, str]] = [("task", task.prompt)]
        conversation.open(view.pieces(), user)
        texts = [
            text
            for server, tools in used.items()
            for text in _loads(view, server, tools)
            if variant.exposure != "eager"
        ]
        if variant.execution == "code":
            texts.append(task.gold)
        extra = sum(len(world.tokenizer.encode(text)) for text in texts)
        found.append(Prediction(task.id, variant, conversation.used, conversation.used + extra))
    return tuple(found)


def _loads(view: View, server: str, tools: Sequence[str]) -> list[str]:
    if view.exposure == "servers":
        return [view.load_server(server)]
    return [view.load_tools(server, tools)] if tools else []

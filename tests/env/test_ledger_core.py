"""On real servers: the ledger's items sum to the token count of the conversation that a model would see.

The count is made afresh at every step: the chat messages are rendered here once more, split at control
tokens and tokenised again. A few tasks by default, every task under `slow`; every variant both times.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from atlas_gym.context.budget import Budget
from atlas_gym.env.episode import Episode
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.rollout.compare import choose
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.play import play
from atlas_gym.rollout.variants import VARIANTS, Variant
from atlas_gym.task.model import Task
from atlas_gym.types import LABELS
from atlas_gym.wire.loop import portal

pytestmark = pytest.mark.servers
NAMES = [v.name for v in VARIANTS]


def playable() -> tuple[World, list[Task]]:
    world = World.shared(WorldConfig())
    return world, [t for t in world.suite.tasks if not any(world.unavailable(name) for name in t.visible)]


def rendered(episode: Episode) -> str:
    """The chat messages in Qwen3's form, written out here once more: system, user, tool results, agent."""
    text = ""
    messages = episode.conversation.messages()
    for message in messages:
        role, content = message["role"], message["content"]
        if role == "tool":
            role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
        text += f"<|im_start|>{role}\n{content}<|im_end|>\n"
    # After the agent's last message nobody goes on: neither the line feed nor another turn is there.
    return text.removesuffix("\n") if role == "assistant" else text + "<|im_start|>assistant\n"


def recount(episode: Episode) -> int:
    """Tokens of the rendered conversation, without what the ledger knows."""
    tokenizer = episode.world.tokenizer
    text = rendered(episode)
    assert text == episode.conversation.text()
    return sum(1 if isinstance(p, int) else len(tokenizer.encode(p)) for p in tokenizer.controls.split(text))


def check(world: World, variant: Variant, tasks: Sequence[Task]) -> int:
    """Play the tasks with gold, recounting after every step; returns how many steps there were."""
    steps = 0

    def watch(episode: Episode) -> None:
        nonlocal steps
        steps += 1
        ledger = episode.ledger()
        where = f"{episode.task.id} {variant.name} turn {len(episode.turns)}"
        assert tuple(sorted(ledger)) == tuple(sorted(LABELS)), where
        assert min(ledger.values()) >= 0, where
        assert sum(ledger.values()) == episode.context_used == recount(episode), where
        assert episode.context_used == len(episode.conversation.ids()), where
        if episode.turns:
            assert dict(episode.turns[-1].ledger) == ledger, where

    for task in tasks:
        played = portal().run(play(variant.episode(world, task, budget=Budget().lifted()), gold, watch=watch))
        assert played.stop == "answer", (task.id, variant.name, played.stop, played.error)
    return steps


@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_the_ledger_is_exact_at_every_step(variant: Variant) -> None:
    world, tasks = playable()
    assert check(world, variant, choose(tasks, 2, seed=1)) >= 4


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("variant", VARIANTS, ids=NAMES)
def test_the_ledger_is_exact_at_every_step_of_every_task(variant: Variant) -> None:
    world, tasks = playable()
    assert check(world, variant, tasks) >= 2 * len(tasks)

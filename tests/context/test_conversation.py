from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas_gym.context.conversation import Conversation
from atlas_gym.context.renderer import Renderer, SampledText
from atlas_gym.context.tokenizer import Controls, Tokenizer
from atlas_gym.errors import ContextError
from atlas_gym.types import LABELS

END, NEWLINE = 151_645, 198

anything = st.lists(
    st.sampled_from(
        ["<|im_end|>", "<|im_start|>", "<think>", "</tool_response>", "\n", " ", "\ud800", "👩\u200d🔬"]
    )
    | st.text(max_size=10),
    max_size=6,
).map("".join)
labelled = st.lists(st.tuples(st.sampled_from(LABELS), anything), max_size=4)
sampled = st.builds(
    lambda ids: SampledText("?", ids, [-1.0] * len(ids)), st.lists(st.integers(0, 151_935), max_size=6)
)


@settings(max_examples=200, deadline=None)
@given(
    template=st.sampled_from(["chatml", "qwen3"]),
    system=labelled,
    user=labelled.filter(bool),
    turns=st.lists(st.tuples(anything | sampled, labelled, st.sampled_from(["tool", "user"])), max_size=4),
)
def test_the_ledger_sums_whatever_is_said(
    template: str, system: Any, user: Any, turns: Any, qwen: Tokenizer
) -> None:
    conversation = Conversation(Renderer(qwen, template))
    controls = set(qwen.controls.ids.values())
    steps = [conversation.open(system, user)]
    for text, answer, role in turns:
        before = conversation.ids()
        steps.append(conversation.agent(text))
        added = conversation.preview(answer, role)
        used = conversation.used
        steps.append(conversation.respond(answer, role))
        assert conversation.used - used == added
        assert conversation.ids()[: len(before)] == before
        ledger = conversation.ledger()
        assert tuple(ledger) == LABELS
        assert sum(ledger.values()) == conversation.used == len(conversation.ids())
    segments = [segment for step in steps for segment in step]
    assert tuple(segments) == conversation.segments
    for segment in segments:
        assert segment.ids
        assert segment.trained == (segment.logprobs is not None)
        if not segment.trained and segment.label != "template":
            assert not controls & set(segment.ids)


def _started(qwen: Tokenizer) -> Conversation:
    conversation = Conversation(Renderer(qwen))
    conversation.open([("system", "Be brief.")], [("task", "Go.")])
    return conversation


def test_sampled_ids_are_taken_as_they_are(qwen: Tokenizer) -> None:
    conversation = _started(qwen)
    odd = [*qwen.encode("hel"), *qwen.encode("lo")]
    assert odd != qwen.encode("hello")
    (agent,) = conversation.agent(SampledText("hello", [*odd, END], [-0.1] * 3, "v1"))
    assert (agent.ids, agent.logprobs, agent.trained, agent.policy_version) == (
        (*odd, END),
        (-0.1,) * 3,
        True,
        "v1",
    )
    answer = conversation.respond([("results", "more")])
    assert answer[0].label == "template"
    assert answer[0].ids[0] == NEWLINE
    assert conversation.text().count("<|im_end|>") == 4
    assert conversation.ledger()["agent"] == 3


def test_a_missing_end_of_turn_is_markup(qwen: Tokenizer) -> None:
    ids = qwen.encode("cut off")
    for text in (SampledText("cut off", ids), "cut off"):
        conversation = _started(qwen)
        agent, end = conversation.agent(text)
        assert agent.ids == tuple(ids)
        assert agent.trained == isinstance(text, SampledText)
        assert (end.label, end.ids, end.trained) == ("template", (END,), False)
        assert conversation.respond([("results", "more")])[0].ids[0] == NEWLINE


def test_plain_text_may_end_with_the_end_of_turn(qwen: Tokenizer) -> None:
    one, two = _started(qwen), _started(qwen)
    one.agent("done<|im_end|>")
    two.agent("done")
    assert one.ids() == two.ids()
    assert one.messages() == two.messages()


def test_an_empty_message_is_only_its_end(qwen: Tokenizer) -> None:
    for text in ("", SampledText("", [])):
        conversation = _started(qwen)
        (end,) = conversation.agent(text)
        assert end.ids == (END,)


def test_earlier_turns_are_never_tokenised_again(qwen: Tokenizer) -> None:
    counting = Counting(qwen)
    conversation = Conversation(Renderer(counting))
    conversation.open([("system", "s" * 1_000)], [("task", "t" * 1_000)])
    for _ in range(5):
        counting.characters = 0
        conversation.agent("a")
        conversation.preview([("results", "r" * 50)])
        conversation.respond([("results", "r" * 50)])
        assert counting.characters < 150


def test_calls_out_of_turn_say_what_is_due(qwen: Tokenizer) -> None:
    conversation = Conversation(Renderer(qwen))
    with pytest.raises(ContextError, match=r"agent\(\) was called when open\(\) is due"):
        conversation.agent("x")
    conversation.open([], [("task", "Go.")])
    with pytest.raises(ContextError, match=r"respond\(\) was called when agent\(\) is due"):
        conversation.respond([("results", "x")])
    with pytest.raises(ContextError, match=r"open\(\) was called when agent\(\) is due"):
        conversation.open([], [])
    conversation.agent("x")
    with pytest.raises(ContextError, match=r"agent\(\) was called when respond\(\) is due"):
        conversation.agent("x")


def test_messages_are_those_of_a_chat_api(qwen: Tokenizer) -> None:
    conversation = _started(qwen)
    conversation.agent("ok")
    conversation.respond([("results", "4"), ("errors", "2")], "user")
    assert conversation.messages() == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "42"},
    ]


class Counting:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, inner: Tokenizer) -> None:
        self._inner = inner
        self.characters = 0
        self.name = inner.name
        self.size = inner.size
        self.controls: Controls = inner.controls
        self.chat_template = inner.chat_template
        self.variables = inner.variables

    def encode(self, text: str) -> list[int]:
        self.characters += len(text)
        return self._inner.encode(text)

    def encode_offsets(self, text: str) -> tuple[list[int], list[int]]:
        self.characters += len(text)
        return self._inner.encode_offsets(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self._inner.decode(ids)

    def special(self, text: str) -> int | None:
        return self._inner.special(text)

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas_gym.context.fit import count, fit
from atlas_gym.context.tokenizer import Tokenizer

NOTICE = re.compile(r"\n\[… (\d+) tokens cut …\]\n")

signs = st.sampled_from(
    [
        "word ",
        "\n",
        " ",
        "é",
        "e\u0301",
        "👩\u200d🔬",
        "🇩🇪",
        "👍🏽",
        "中文",
        "<|im_end|>",
        "<think>",
        "0",
        "\r\n",
        "\ud800",
    ]
)
texts = st.lists(signs | st.text(max_size=6), max_size=200).map("".join)


@settings(max_examples=250, deadline=None)
@given(text=texts, limit=st.integers(-2, 120))
def test_the_limit_holds_exactly(text: str, limit: int, qwen: Tokenizer) -> None:
    fitted, cut = fit(qwen, text, limit)
    total = len(qwen.encode(text))
    assert len(qwen.encode(fitted)) <= max(limit, 0)
    assert fitted.count("\ufffd") <= text.count("\ufffd") + text.count("\ud800")
    if total <= max(limit, 0):
        assert (fitted, cut) == (text.replace("\ud800", "\ufffd"), 0)
    else:
        assert 0 < cut <= total


def test_head_and_tail_stay_and_the_notice_counts(qwen: Tokenizer) -> None:
    lines = [f"line {i}: value {i * i}" for i in range(2_000)]
    text = "\n".join(lines)
    fitted, cut = fit(qwen, text, 400)
    head, said, tail = NOTICE.split(fitted)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert int(said) == cut == len(qwen.encode(text)) - len(qwen.encode(head)) - len(qwen.encode(tail))
    assert 390 <= len(qwen.encode(fitted)) <= 400
    assert abs(len(qwen.encode(head)) - len(qwen.encode(tail))) <= 2


@pytest.mark.parametrize("sign", ["👩\u200d🔬", "e\u0301", "🇩🇪", "👍🏽", "\r\n", "각"])
def test_a_cut_never_parts_a_sign(sign: str, qwen: Tokenizer) -> None:
    text = sign * 3_000
    for limit in range(20, 60):
        fitted, cut = fit(qwen, text, limit)
        head, _, tail = NOTICE.split(fitted)
        assert cut
        assert set(head.split(sign)) | set(tail.split(sign)) == {""}


def test_tiny_limits(qwen: Tokenizer) -> None:
    text = "word " * 1_000
    total = len(qwen.encode(text))
    assert fit(qwen, text, 0) == ("", total)
    assert fit(qwen, text, -5) == ("", total)
    assert fit(qwen, text, 1) == ("[…]", total)
    assert fit(qwen, "", 0) == ("", 0)
    assert fit(qwen, text, 12)[0] == f"\n[… {total} tokens cut …]\n"


@pytest.mark.parametrize("unit", ["Ten megabytes of text, line by line.\n", " ", "中", "\n", "x"])
def test_very_large_texts(unit: str, qwen: Tokenizer) -> None:
    text = unit * (4_000_000 // len(unit.encode()))
    fitted, cut = fit(qwen, text, 200)
    assert len(qwen.encode(fitted)) <= 200
    assert len(fitted) > 100
    assert cut > 1_000


def test_count_in_parts_is_nearly_the_whole(qwen: Tokenizer) -> None:
    text = "Some text, line by line, with 12 numbers.\n" * 60_000
    assert abs(count(qwen, text) - len(qwen.encode(text))) <= 2

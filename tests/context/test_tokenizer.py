from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any
from unicodedata import is_normalized

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atlas_gym.context.huggingface import HuggingFaceTokenizer
from atlas_gym.context.tokenizer import Tokenizer, load_tokenizer
from atlas_gym.errors import ContextError, UnknownNameError

CONTROL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|vision_pad|>", "<|fim_prefix|>", "<|file_sep|>"]
IN_TEXT = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
EASY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

tricky = st.sampled_from(
    [
        *IN_TEXT,
        *" \n\r\t\x00\x85abz019-_'\"{}é中かΩ가\u00a0\u0301\u0338\u2028\u1100\u1161\u11a8\u0958\u212b",
        "'s",
        "'LL",
        " \n",
        "  ",
        "👩\u200d🔬",
        "\U0001d15e",
    ]
)
texts = st.lists(tricky | st.text(max_size=8), max_size=20).map("".join)


@pytest.fixture(scope="session")
def tokenizers(qwen: Tokenizer, qwen_folder: Path) -> list[Tokenizer]:
    return [qwen, load_tokenizer(qwen_folder)]


@EASY
@given(text=texts)
def test_both_backends_equal_the_reference(text: str, tokenizers: list[Tokenizer], reference: Any) -> None:
    expected = reference.encode(text, add_special_tokens=False).ids
    for tokenizer in tokenizers:
        ids, starts = tokenizer.encode_offsets(text)
        assert tokenizer.encode(text) == ids == expected
        assert starts == sorted(starts)
        assert len(starts) == len(ids)
        assert all(0 <= start < len(text) for start in starts)
        if is_normalized("NFC", text):
            assert tokenizer.decode(ids) == text


@EASY
@given(parts=st.lists(st.sampled_from(CONTROL) | st.text(max_size=5), max_size=12))
def test_no_text_becomes_a_control_token(parts: list[str], tokenizers: list[Tokenizer]) -> None:
    for tokenizer in tokenizers:
        ids = tokenizer.encode("".join(parts))
        assert not set(ids) & set(tokenizer.controls.ids.values())
        assert set(CONTROL) <= set(tokenizer.controls.ids)
        assert not set(IN_TEXT) & set(tokenizer.controls.ids)


def test_offsets_are_those_of_characters(tokenizers: list[Tokenizer]) -> None:
    text = "Größe: 中文 👩\u200d🔬 ok"
    by_hand = [len(reading) for reading in _prefixes(tokenizers[0], text)]
    for tokenizer in tokenizers:
        assert tokenizer.encode_offsets(text)[1] == by_hand


def _prefixes(tokenizer: Tokenizer, text: str) -> list[str]:
    """For each token, the characters that end before it."""
    ids = tokenizer.encode(text)
    whole = [tokenizer.decode(ids[:i]) for i in range(len(ids))]
    return [reading.rstrip("\ufffd") for reading in whole]


def test_names_and_sizes(qwen: Tokenizer, qwen_folder: Path) -> None:
    assert load_tokenizer() is qwen
    assert load_tokenizer("Qwen3").size == 151_669
    other = load_tokenizer(qwen_folder)
    assert other is load_tokenizer(str(qwen_folder))
    assert (other.size, other.controls.ids) == (qwen.size, qwen.controls.ids)
    assert other.variables == qwen.variables
    assert qwen.special("<|im_end|>") == other.special("<|im_end|>") == 151_645
    assert qwen.special("<think>") is None
    assert load_tokenizer(qwen_folder / "tokenizer.json").size == qwen.size


def test_decode_leaves_out_ids_without_text(tokenizers: list[Tokenizer]) -> None:
    for tokenizer in tokenizers:
        ids = [*tokenizer.encode("ab"), 151_645, 151_935, 10**9]
        assert tokenizer.decode(ids) == "ab<|im_end|>"


def test_lone_surrogates_are_replaced(tokenizers: list[Tokenizer]) -> None:
    for tokenizer in tokenizers:
        assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")
        assert tokenizer.encode_offsets("a\ud800b")[0] == tokenizer.encode("a\ufffdb")


@pytest.mark.parametrize("sign", [" ", "\t", "\n", "a", "=", "1", "\u3000", "\u0301"])
def test_a_megabyte_of_one_sign(sign: str, qwen: Tokenizer) -> None:
    text = sign * 1_100_000
    ids, starts = qwen.encode_offsets(text)
    assert qwen.decode(ids) == text
    assert starts[0] == 0


def test_blanks_below_the_limit_equal_the_reference(qwen: Tokenizer, reference: Any) -> None:
    for text in (" " * 300_000 + "x", "\t" * 300_000, " " * 300_000 + "\n" + " " * 1_000 + "y"):
        assert qwen.encode(text) == reference.encode(text, add_special_tokens=False).ids


def test_threads_share_one(qwen: Tokenizer) -> None:
    text = "Several threads at once, with 中文. " * 500
    expected = qwen.encode(text)
    seen: list[bool] = []
    threads = [threading.Thread(target=lambda: seen.append(qwen.encode(text) == expected)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 4


def test_unknown_name_says_what_is_known() -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'qwen3'\?.*tokenizer\.json"):
        load_tokenizer("qwen33")


def test_unreadable_files_are_context_errors(tmp_path: Path) -> None:
    for name, body in {"a": "{", "b": "[]", "c": '{"model": 3}', "d": "\udcff"}.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "tokenizer.json").write_bytes(body.encode("utf-8", "surrogateescape"))
        with pytest.raises(ContextError, match=r"reading the tokenizer .*tokenizer\.json"):
            load_tokenizer(folder)


def _metaspace(folder: Path) -> Any:
    """A small SentencePiece-like tokenizer, whose blank goes before the first piece of a document only."""
    from tokenizers import Tokenizer as Core
    from tokenizers import models, pre_tokenizers

    words = ["<s>", "</s>", "<unk>", "▁", *"helowrd", "he", "ll", "hell", "hello", "▁hello"]
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "hello")]
    core = Core(models.BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    core.add_special_tokens(["<s>", "</s>"])
    core.save(str(folder / "tokenizer.json"))
    return core


def test_text_after_a_control_token_is_not_the_start_of_a_document(tmp_path: Path) -> None:
    core = _metaspace(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    whole = core.encode("<s>hello hello</s>hello", add_special_tokens=False).ids
    parts = [1 if part == "</s>" else 0 for part in ("<s>", "</s>")]
    assert whole == [
        parts[0],
        *tokenizer.encode("hello hello"),
        parts[1],
        *tokenizer.encode_offsets("hello")[0],
    ]
    assert tokenizer.encode_offsets("hello hello")[1] == [0, 5]
    assert tokenizer.size == core.get_vocab_size()


def test_chat_template_beside_the_tokenizer(tmp_path: Path) -> None:
    _metaspace(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    path = tmp_path / "tokenizer.json"
    assert HuggingFaceTokenizer(path, "x").chat_template is None
    config.write_text(json.dumps({"chat_template": "{{ 1 }}", "bos_token": {"content": "<s>"}}))
    assert HuggingFaceTokenizer(path, "x").chat_template == "{{ 1 }}"
    assert HuggingFaceTokenizer(path, "x").variables == {"bos_token": "<s>"}
    config.write_text(json.dumps({"chat_template": [{"name": "default", "template": "{{ 2 }}"}]}))
    assert HuggingFaceTokenizer(path, "x").chat_template == "{{ 2 }}"
    (tmp_path / "chat_template.jinja").write_text("{{ 3 }}")
    assert HuggingFaceTokenizer(path, "x").chat_template == "{{ 3 }}"
    config.write_text("{")
    with pytest.raises(ContextError, match="tokenizer_config"):
        HuggingFaceTokenizer(path, "x")

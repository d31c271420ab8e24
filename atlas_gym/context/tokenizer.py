"""Tokenizers by name or path: `qwen3` offline from an installed package, or any `tokenizer.json`.

Owns the rule about control tokens. A *control token* is one that the chat template alone may make:
every token that the tokenizer calls special, and every added token written `<|...|>`. Text never
becomes one: `<|im_end|>` in a tool's output is encoded as ordinary characters. The other added tokens
(`<think>`, `<tool_call>`, ...) are matched in text, as Hugging Face tokenizers do and models expect.
Does not know chat templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

from atlas_gym.errors import unknown

DEFAULT: Final = "qwen3"

_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_MARKUPS: Final = 256
"""Pieces of markup whose split is kept: a template writes the same few in every turn."""


class Tokenizer(Protocol):
    """Text to ids and back. Safe to share between threads."""

    @property
    def name(self) -> str:
        """The name or path that it was loaded by."""

    @property
    def size(self) -> int:
        """One more than the largest id."""

    @property
    def controls(self) -> Controls:
        """The tokens that no text becomes."""

    @property
    def chat_template(self) -> str | None:
        """The template that came with it: a built-in name or jinja text."""

    @property
    def variables(self) -> Mapping[str, str]:
        """What a chat template may name (`bos_token`, `eos_token`, ...)."""

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text, never a control token; lone surrogates become U+FFFD."""

    def encode_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """Ids, and for each the index in `text` of the character in which it starts (not falling)."""

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens included; ids without text are left out."""

    def special(self, text: str) -> int | None:
        """The id of a control token, by its text."""


class Controls:
    """The control tokens of one tokenizer, and how template markup is split at them.

    Args:
        ids: Text of each control token -> id.
        left: Those that swallow the white space before them.
        right: Those that swallow the white space after them.
    """

    def __init__(self, ids: Mapping[str, int], left: Iterable[str] = (), right: Iterable[str] = ()) -> None:
        self.ids: Final = dict(ids)
        lefts, rights = set(left), set(right)
        longest_first = sorted(self.ids, key=len, reverse=True)
        parts = [
            (r"\s*" if text in lefts else "") + f"({re.escape(text)})" + (r"\s*" if text in rights else "")
            for text in longest_first
        ]
        self._order = [self.ids[text] for text in longest_first]
        self._pattern = re.compile("|".join(parts)) if parts else None
        self._known: dict[str, list[str | int]] = {}

    def split(self, markup: str) -> list[str | int]:
        """Template markup as runs of ordinary text and ids of control tokens, in order."""
        known = self._known.get(markup)
        if known is None:
            if len(self._known) >= _MARKUPS:
                self._known.clear()
            known = self._known[markup] = self._split(markup)
        return [*known]

    def _split(self, markup: str) -> list[str | int]:
        if self._pattern is None:
            return [markup] if markup else []
        out: list[str | int] = []
        end = 0
        for match in self._pattern.finditer(markup):
            if match.start() > end:
                out.append(markup[end : match.start()])
            out.append(self._order[(match.lastindex or 1) - 1])
            end = match.end()
        if end < len(markup):
            out.append(markup[end:])
        return out


def clean(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD, character for character."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def is_control(text: str, special: bool) -> bool:
    """Whether an added token may be made by the template alone (see the module's docstring)."""
    return special or (text.startswith("<|") and text.endswith("|>"))


def load_tokenizer(name: str | Path | None = None) -> Tokenizer:
    """A tokenizer, made once per process.

    Args:
        name: `"qwen3"` (the default; offline), or the path of a `tokenizer.json`, or of a folder that
            holds one, with `tokenizer_config.json` and `chat_template.jinja` beside it where there are.

    Raises:
        UnknownNameError: Neither a known name nor a path.
        ContextError: A file that cannot be read as a tokenizer.
    """
    return _load(DEFAULT if name is None else str(name))


@lru_cache(maxsize=8)
def _load(name: str) -> Tokenizer:
    # The two backends cost a native library each: only the one that is asked for is imported.
    if name.casefold() == DEFAULT:
        from atlas_gym.context.qwen import QwenTokenizer

        return QwenTokenizer()
    path = Path(name).expanduser()
    if path.is_dir():
        path = path / "tokenizer.json"
    if not path.is_file():
        raise unknown(
            "tokenizer",
            name,
            [DEFAULT],
            "Or give the path of a tokenizer.json, or of a folder that holds one.",
        )
    from atlas_gym.context.huggingface import HuggingFaceTokenizer

    return HuggingFaceTokenizer(path, name)

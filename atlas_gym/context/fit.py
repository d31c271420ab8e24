"""Fitting text into a number of tokens: the middle is cut, and the text says how much.

Does not know why there is a limit.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Final

from atlas_gym.context.tokenizer import Tokenizer, clean

# Longer texts are counted in parts of this many characters, so that memory stays bounded.
_PART: Final = 1_000_000
# How far a cut may move so that it does not fall inside one written sign.
_REACH: Final = 32
_JOINER: Final = "\u200d"


def fit(tokenizer: Tokenizer, text: str, limit: int) -> tuple[str, int]:
    """The text, or its head and tail with a notice between them, in at most `limit` tokens.

    Args:
        tokenizer: Counts.
        text: Of any length.
        limit: Tokens that the result may have, the notice included; below zero counts as zero.

    Returns:
        The fitted text, and how many tokens were cut (0 where nothing was): those of the whole text less
        those of its head and tail. Lone surrogates become U+FFFD.
    """
    text, limit = clean(text), max(limit, 0)
    head_end, tail_start = _head(tokenizer, text, limit), len(text)
    if head_end == len(text) and len(tokenizer.encode(text)) <= limit:
        return text, 0
    total = count(tokenizer, text)
    if total <= limit:
        return text, 0
    keep = max(limit - len(tokenizer.encode(_notice(total))), 0)
    while keep > 1:
        head_end = _head(tokenizer, text, keep // 2)
        tail_start = max(_tail(tokenizer, text, keep - keep // 2), head_end)
        head, tail = text[:head_end], text[tail_start:]
        cut = total - len(tokenizer.encode(head)) - len(tokenizer.encode(tail))
        fitted = head + _notice(cut) + tail
        over = len(tokenizer.encode(fitted)) - limit
        if over <= 0:
            return fitted, cut
        keep -= over
    for notice in (_notice(total), "[…]", "…"):
        if len(tokenizer.encode(notice)) <= limit:
            return notice, total
    return "", total


def count(tokenizer: Tokenizer, text: str) -> int:
    """Tokens of the text; beyond a million characters, the sum over its parts."""
    return sum(len(tokenizer.encode(part)) for part in _parts(text))


def _notice(cut: int) -> str:
    return f"\n[… {cut} tokens cut …]\n"


def _parts(text: str) -> Iterator[str]:
    at = 0
    while len(text) - at > _PART:
        # After a line break the next part is tokenised as it would be in place, nearly always.
        end = text.rfind("\n", at + _PART // 2, at + _PART) + 1 or at + _PART
        yield text[at:end]
        at = end
    yield text[at:]


def _head(tokenizer: Tokenizer, text: str, tokens: int) -> int:
    """Where the first `tokens` tokens end, moved back to the start of a sign."""
    size = 8 * tokens + 64
    while True:
        ids, starts = tokenizer.encode_offsets(text[:size])
        if len(ids) > tokens:
            return _before(text, starts[tokens])
        if size >= len(text):
            return len(text)
        size *= 4


def _tail(tokenizer: Tokenizer, text: str, tokens: int) -> int:
    """Where the last `tokens` tokens start, moved on to the start of a sign."""
    size = 8 * tokens + 64
    while True:
        first = max(len(text) - size, 0)
        ids, starts = tokenizer.encode_offsets(text[first:])
        if len(ids) > tokens:
            return _after(text, first + starts[-tokens] if tokens else len(text))
        if first == 0:
            return 0
        size *= 4


def _before(text: str, at: int) -> int:
    for place in range(at, max(at - _REACH, 0), -1):
        if not _inside(text, place):
            return place
    return max(at - _REACH, 0)


def _after(text: str, at: int) -> int:
    for place in range(at, min(at + _REACH, len(text))):
        if not _inside(text, place):
            return place
    return min(at + _REACH, len(text))


def _inside(text: str, at: int) -> bool:
    """Whether a cut before `text[at]` would part what is written as one sign."""
    if at <= 0 or at >= len(text):
        return False
    before, after = text[at - 1], text[at]
    if after.isascii():
        return before == "\r" and after == "\n"
    return (
        before == _JOINER
        or after == _JOINER
        or unicodedata.category(after) in ("Mn", "Mc", "Me")
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff")
    )

"""Reading an agent's prose: the numbers in it, the names in it, the JSON in it.

The rules are generous about writing (`$1,234.50`, `1 234,50 EUR`, `12 %`, `3 million`, `five`) and strict
about dumping: a check can limit how many different numbers or names an answer holds. Knows no checks.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, Final

MAX_ANSWER: Final = 20_000
"""Characters of an answer that are read; nothing that a person asked for is longer."""

_DATES: Final = re.compile(
    r"\b\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    r"|\b\d{1,2}:\d{2}(?::\d{2})?\b"
)
_UNIT: Final = r"kg|g|km|cm|mm|m|ms|s|h|min|[KMGT]?i?B|(?i:USD|EUR|GBP|AED|CHF)"
_NUMBER: Final = re.compile(
    r"(?P<sign>(?<![\w)])-)?[$€£¥]?(?P<sign2>-)?"
    r"(?<![\w.])(?<!\w-)(?P<digits>"
    r"\d{1,3}(?:[ \u00a0\u202f\u2009]\d{3}){1,5},\d{1,2}(?!,?\d)"  # 1 234,5
    r"|\d{1,3}(?:\.\d{3})+,\d+(?!,?\d)"  # 1.234,5
    r"|\d{1,3}(?:[,'\u2019\u00a0\u202f\u2009_]\d{3})+(?:\.\d+)?"  # 1,234.5
    r"|(?<!\d,)(?:\d+,\d\d|\d{3,},\d)(?!,?\d)"  # 1234,50; "1,2" and "1,2,3" are lists
    r"|\d+(?:\.\d+)?"
    r"|\.\d+)"
    r"(?P<exp>[eE][-+]?\d{1,3})?"
    r"(?:\s?(?P<scale>thousand|million|billion|bn|k)\b|\s?(?P<percent>%|percent\b|per cent\b)"
    rf"|(?:{_UNIT})\b)?"
    r"(?![A-Za-z0-9_])(?!\.\d)(?!-[A-Za-z0-9])"
)
_DECIMAL_COMMA: Final = re.compile(r"[ \u00a0\u202f\u2009.].*,\d+\Z|\A\d+,\d{1,2}\Z")
_CURRENCY: Final = re.compile(r"\b(?:USD|EUR|GBP|AED|CHF|JPY|Rs\.?)(?=[-\d.])")
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
_EMPHASIS: Final = re.compile(r"[*`]|(?<!\w)_++|(?<!_)_++(?!\w)")
_MARKER: Final = re.compile(r"^[ \t]*(\d{1,2})[.)][ \t]+(?=\S)", re.M)
_WORDS: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_SCALES: Final = {"thousand": 1e3, "k": 1e3, "million": 1e6, "billion": 1e9, "bn": 1e9}


def normalised(text: str) -> str:
    """NFKC, folded letter case, one space between words."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _plain(text: str) -> str:
    """What a person reads of a text: no invisible characters, no Markdown emphasis."""
    return _EMPHASIS.sub("", _INVISIBLE.sub("", text[:MAX_ANSWER]))


def _unlisted(text: str) -> str:
    """Without the markers of a numbered list ("1. ", "2. ", ...), which say nothing."""
    markers = [int(match[1]) for match in _MARKER.finditer(text)]
    return _MARKER.sub("", text) if len(markers) > 1 and markers == [*range(1, len(markers) + 1)] else text


def numbers(text: str) -> list[tuple[float, ...]]:
    """The numbers of a text, in order; each as every value that it can mean ("12 %": 12 and 0.12).

    Digits inside identifiers (`C-1007`, `v2`), ISO dates, clock times and list markers are no numbers.
    """
    plain = _unlisted(_plain(text)).replace("\u2212", "-")
    plain = _CURRENCY.sub(" ", _DATES.sub(" ", plain))
    found: list[tuple[float, ...]] = []
    for match in _NUMBER.finditer(plain):
        digits = match["digits"]
        if _DECIMAL_COMMA.search(digits):
            digits = digits.replace(".", "").replace(",", ".")
        value = float(re.sub(r"[, '\u2019\u00a0\u202f\u2009_]", "", digits) + (match["exp"] or ""))
        value *= _SCALES.get((match["scale"] or "").lower(), 1.0)
        if match["sign"] == "-" or match["sign2"]:
            value = -value
        if math.isfinite(value):
            found.append((value, value / 100) if match["percent"] else (value,))
    return found


def number_words(text: str) -> list[tuple[float, ...]]:
    """The small numbers that a text spells out in English, "zero" to "twenty"."""
    return [
        (float(_WORDS.index(word)),) for word in re.findall(r"[a-z]+", _plain(text).lower()) if word in _WORDS
    ]


def has_number(text: str, wanted: float, *, tolerance: float, limit: int, known: str = "") -> str:
    """Whether the text states a number, and does not merely list many.

    Args:
        text: The answer.
        wanted: The number.
        tolerance: Largest allowed absolute difference.
        limit: How many different numbers the text may hold, beside those of `known`.
        known: A text whose numbers are free (the prompt: an answer may repeat the question).

    Returns:
        "" when it does; else what is wrong.
    """
    found = numbers(text)
    if not _holds(found, wanted, tolerance):
        # Words are read only where digits do not say it: in prose, "one" and "two" are mostly no results.
        found += number_words(text)
        if not _holds(found, wanted, tolerance):
            return "the number is not in it"
    free = {values[0] for values in numbers(known)}
    extra = {values[0] for values in found} - free
    if len(extra) > limit:
        return f"it lists {len(extra)} different numbers; at most {limit} are allowed"
    return ""


def _holds(found: Iterable[tuple[float, ...]], wanted: float, tolerance: float) -> bool:
    return any(abs(value - wanted) <= tolerance + 1e-9 for values in found for value in values)


def mentions(text: str, phrase: str) -> bool:
    """Whether the phrase stands in the text as whole words; letter case, spacing and emphasis apart."""
    wanted = normalised(_plain(phrase))
    pattern = rf"(?<!\w){re.escape(wanted)}(?!\w)"
    return bool(wanted) and re.search(pattern, normalised(_plain(text))) is not None


def mentioned(text: str, phrases: Iterable[str]) -> list[str]:
    """Those of the phrases that the text mentions."""
    return [phrase for phrase in phrases if mentions(text, phrase)]


def json_in(text: str) -> Any:
    """The JSON object or array in an answer: the whole text, a fenced block, or the first one inside.

    Raises:
        ValueError: There is none.
    """
    text = text[:MAX_ANSWER]
    fenced = re.findall(r"```(?:json)?\s*\n(.*?)```", text, flags=re.DOTALL)
    for candidate in (text, *fenced):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list):
            return value
    decoder = json.JSONDecoder()
    for match in itertools.islice(re.finditer(r"[{\[]", text), 200):
        try:
            value, _ = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list) and value:
            return value
    raise ValueError("there is no JSON object in it")


_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[([^\[\]=]+)=([^\[\]]*)\]")


def at(value: Any, path: str) -> Any:
    """The part of a JSON value that a path names.

    A path is made of `name` (separated by dots), `[3]` (an item) and `[name=text]` (the list of those
    items whose field `name`, written as text, is `text`): `data[to=ann@example.com][0].subject`.

    Raises:
        LookupError: The value has no such part.
        ValueError: The path cannot be read.
    """
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if not step:
            raise ValueError(f"path {path!r} cannot be read from character {position}")
        position = step.end()
        name, item, field, text = step.groups()
        if name is not None:
            if not isinstance(value, dict):
                raise LookupError(f"{name!r} of {type(value).__name__}")
            value = value[name]
        elif not isinstance(value, list):
            raise LookupError(f"{step[0]} of {type(value).__name__}")
        elif item is not None:
            value = value[int(item)]
        else:
            value = [v for v in value if isinstance(v, dict) and str(v.get(field)) == text]
    return value


def same(found: Any, wanted: Any, tolerance: float = 0.0) -> bool:
    """Whether two JSON values mean the same.

    Numbers within the tolerance (a text that is a number counts), texts normalised, objects and lists whole.
    """
    if isinstance(wanted, bool) or wanted is None:
        return type(found) is type(wanted) and found == wanted
    if isinstance(wanted, int | float):
        number = _as_number(found)
        return number is not None and abs(number - wanted) <= tolerance + 1e-9
    if isinstance(wanted, str):
        return isinstance(found, str) and normalised(found) == normalised(wanted)
    if isinstance(wanted, dict):
        return (
            isinstance(found, dict)
            and found.keys() == wanted.keys()
            and all(same(found[key], part, tolerance) for key, part in wanted.items())
        )
    parts: Sequence[Any] = wanted
    return (
        isinstance(found, list | tuple)
        and len(found) == len(parts)
        and all(same(one, two, tolerance) for one, two in zip(found, parts, strict=True))
    )


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str):
        try:
            number = float(value.strip())
        except ValueError:
            return None
        return number if math.isfinite(number) else None
    return None

"""Names of servers, tools and arguments as Python identifiers, and tolerant matching of names.

Owns the rule that makes an identifier of any name, and what counts as the same name. Does not know
what a tool is.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

MAX_LENGTH: Final = 80
"""A longer name is cut; a model could not repeat it anyway."""

_RESERVED: Final = frozenset({"self", "cls"})
_NOT_WORD = re.compile(r"\W+")


def is_natural(name: str, *, public: bool = False) -> bool:
    """Whether a name is used as it is: a plain identifier that cannot shadow how objects work.

    Args:
        name: Any text.
        public: Whether a leading underscore is out too.
    """
    return (
        name.isidentifier()
        and len(name) <= MAX_LENGTH
        and not keyword.iskeyword(name)
        and not name.startswith("_" if public else "__")
        and name not in _RESERVED
        and name == unicodedata.normalize("NFKC", name)
    )


def clean(name: str, prefix: str, *, public: bool = False) -> str:
    """The nearest identifier to a name, not yet made unique.

    Args:
        name: Any text.
        prefix: Stands before what would start with a digit, or alone when nothing is left.
        public: Whether a leading underscore is taken away.
    """
    word = _NOT_WORD.sub("_", unicodedata.normalize("NFKC", name))[: MAX_LENGTH - 16]
    word = "".join(c if f"a{c}".isidentifier() else "_" for c in word)
    if public or word.startswith("__"):
        word = word.lstrip("_")
    if not word.strip("_"):
        return prefix
    if keyword.iskeyword(word) or word in _RESERVED:
        return word + "_"
    return word if word.isidentifier() else f"{prefix}_{word.lstrip('_')}"


def python_names(names: Iterable[str], prefix: str, *, public: bool = False) -> dict[str, str]:
    """Name -> Python identifier, one to one and the same on every run.

    A name that is an identifier already keeps itself, whatever the others are; the rest are cleaned,
    and those that collide get `_2`, `_3`, ... in the order given.

    Args:
        names: Real names; one given twice counts once.
        prefix: What a name is called of which nothing is left ("tool", "arg").
        public: Whether a leading underscore is taken away (methods; arguments keep theirs).
    """
    order = list(dict.fromkeys(names))
    taken = {name for name in order if is_natural(name, public=public)}
    made: dict[str, str] = {}
    for name in order:
        word = name
        if not is_natural(name, public=public):
            base = word = clean(name, prefix, public=public)
            number = 2
            while word in taken:
                word, number = f"{base.rstrip('_')}_{number}", number + 1
            taken.add(word)
        made[name] = word
    return made


def fold(name: str) -> str:
    """What is left of a name when case, spaces and punctuation do not count ("Math MCP" ~ "math_mcp")."""
    return re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", name).casefold())


def match(name: str, known: Iterable[str]) -> str | None:
    """The one known name that is meant: exactly, or else when case and punctuation do not count."""
    names = list(known)
    if name in names:
        return name
    folded = fold(name)
    hits = [k for k in names if fold(k) == folded] if folded else []
    return hits[0] if len(hits) == 1 else None

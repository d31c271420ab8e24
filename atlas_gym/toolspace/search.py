"""Finding tools by words: BM25 over names, descriptions, argument names and servers.

Owns what counts as a word (case and underscores split names; CJK text becomes pairs of characters)
and the order of equal scores. The ranking itself is `bm25s`, loaded at the first index.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any, Final

from atlas_gym.toolspace.records import Tool, Toolset
from atlas_gym.toolspace.signatures import parameters

MAX_RESULTS: Final = 50
DEFAULT_RESULTS: Final = 5
MAX_CHARS: Final = 4_000
"""Characters read of one query or description."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+)")


def words(text: str) -> list[str]:
    """The words of a text, in lower case; `getHTTPResponse` and `get_http_response` give the same."""
    spaced = _CAMEL.sub(" ", unicodedata.normalize("NFKC", text[:MAX_CHARS]))
    found: list[str] = []
    for word in _WORD.findall(spaced.casefold()):
        for part in _CJK.split(word):
            if _CJK.fullmatch(part):
                found += [part[i : i + 2] for i in range(max(1, len(part) - 1))]
            elif part:
                found.append(part)
    return found


class Index:
    """A search index over all tools of a toolset."""

    def __init__(self, toolset: Toolset) -> None:
        self._tools = sorted(toolset, key=lambda tool: (tool.server, tool.name))
        self._ranking: Any = None
        if not self._tools:
            return
        import bm25s

        about = {
            server.name: words(f"{server.name} {server.description}") for server in toolset.servers.values()
        }
        self._ranking = bm25s.BM25(backend="numpy")
        self._ranking.index(
            [_document(t) + about[t.server] or [""] for t in self._tools], show_progress=False
        )

    def search(self, query: str, k: int = DEFAULT_RESULTS) -> list[tuple[Tool, float]]:
        """The tools that match best.

        Args:
            query: Words in any language; the whole task text works too.
            k: How many at most, kept between 1 and `MAX_RESULTS`.

        Returns:
            (tool, score) with falling scores, equal ones by server and name; tools that share no word
            with the query are left out.
        """
        known = [word for word in words(query) if self._ranking and word in self._ranking.vocab_dict]
        if not known:
            return []
        scores = self._ranking.get_scores(known)
        order = (-scores).argsort(kind="stable")[: min(max(k, 1), MAX_RESULTS)]
        return [(self._tools[i], float(scores[i])) for i in order if scores[i] > 0]


def _document(tool: Tool) -> list[str]:
    names = words(tool.name)
    arguments = [word for p in parameters(tool).items for word in words(p.name)]
    return names + names + words(tool.description) + arguments

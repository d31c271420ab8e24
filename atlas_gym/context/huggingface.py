"""Any `tokenizer.json`, through the `tokenizers` library, with the chat template that lies beside it.

Does not know how templates are rendered, nor where models come from: nothing is downloaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from atlas_gym.context.tokenizer import Controls, clean, is_control
from atlas_gym.errors import ContextError, boundary

# Stands before text so that it is not taken for the start of a document (see `_needs_sentinel`).
_SENTINEL: Final = "\U0010fff5\U0010fffa"


class HuggingFaceTokenizer:
    """One `tokenizer.json`.

    Args:
        path: The file.
        name: What the user called it, for messages and traces.

    Raises:
        ContextError: The file, or one beside it, cannot be used.
    """

    def __init__(self, path: Path, name: str) -> None:
        from tokenizers import AddedToken
        from tokenizers import Tokenizer as Core

        self.name: Final = name
        with boundary(ContextError, f"reading the tokenizer {path}"):
            raw = json.loads(path.read_text(encoding="utf-8"))
            added = raw.get("added_tokens") or []
            for token in added:
                token["special"] = is_control(token["content"], bool(token["special"]))
            core = Core.from_str(json.dumps(raw))
        core.no_truncation()
        core.no_padding()
        self._prefix = _SENTINEL if _needs_sentinel(raw) else ""
        control = [token for token in added if token["special"]]
        self.controls = Controls(
            {token["content"]: token["id"] for token in control},
            left=[token["content"] for token in control if token.get("lstrip")],
            right=[token["content"] for token in control if token.get("rstrip")],
        )
        self.size: Final = 1 + max(core.get_vocab(with_added_tokens=True).values(), default=-1)
        if self._prefix:
            core.add_tokens([AddedToken(_SENTINEL, normalized=False, special=False)])
        core.encode_special_tokens = True
        self._core = core
        self.chat_template, self.variables = _beside(path)

    def encode(self, text: str) -> list[int]:
        """See `Tokenizer.encode`."""
        ids: list[int] = self._encode(text).ids
        return ids[1:] if self._prefix else ids

    def encode_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """See `Tokenizer.encode_offsets`."""
        found = self._encode(text)
        skip, shift = (1, len(self._prefix)) if self._prefix else (0, 0)
        starts: list[int] = []
        at = 0
        for start, _ in found.offsets[skip:]:
            at = max(at, start - shift)
            starts.append(at)
        return list(found.ids[skip:]), starts

    def decode(self, ids: Sequence[int]) -> str:
        """See `Tokenizer.decode`."""
        known = [i for i in ids if 0 <= i < self.size]
        text: str = self._core.decode(known, skip_special_tokens=False)
        return text

    def special(self, text: str) -> int | None:
        """See `Tokenizer.special`."""
        return self.controls.ids.get(text)

    def _encode(self, text: str) -> Any:
        text = clean(text)
        if self._prefix:  # else the sentinel is no token, and a text that holds it is like any other
            text = self._prefix + text.replace(_SENTINEL, "\ufffd" * 2)
        return self._core.encode(text, add_special_tokens=False)


def _needs_sentinel(raw: Mapping[str, Any]) -> bool:
    """Whether text at the start of a document is split otherwise than text after a control token.

    True of SentencePiece tokenizers whose Metaspace adds its blank to the first piece only.
    """
    stack: list[Any] = [raw.get("pre_tokenizer")]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("prepend_scheme") == "first":
                return True
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return False


def _beside(path: Path) -> tuple[str | None, dict[str, str]]:
    """The chat template and the named tokens from the files beside a `tokenizer.json`."""
    template: str | None = None
    variables: dict[str, str] = {}
    config = path.with_name("tokenizer_config.json")
    if config.is_file():
        with boundary(ContextError, f"reading {config}"):
            raw = json.loads(config.read_text(encoding="utf-8"))
            found = raw.get("chat_template")
            if isinstance(found, list):
                found = {entry["name"]: entry["template"] for entry in found}.get("default")
            template = found
            for key, value in raw.items():
                text = value.get("content") if isinstance(value, dict) else value
                if key.endswith("_token") and isinstance(text, str):
                    variables[key] = text
    jinja = path.with_name("chat_template.jinja")
    if jinja.is_file():
        with boundary(ContextError, f"reading {jinja}"):
            template = jinja.read_text(encoding="utf-8")
    return template, variables

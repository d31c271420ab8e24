"""What a signature says beside its types: descriptions, bounds, examples, as a docstring.

Owns the wording and the limits on length. Does not know where a tool comes from.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from atlas_gym.toolspace.schema import (
    Parameters,
    Schema,
    branches,
    fields,
    kinds,
    needs,
    plain,
    resolved,
    values_of,
)
from atlas_gym.toolspace.shapes import Types, literal

MAX_DESCRIPTION: Final = 2_000
MAX_NOTE: Final = 300
MAX_NOTES: Final = 60
MAX_DEFAULT: Final = 60
"""A default or example whose text is longer is not shown in the signature."""

_LEVELS: Final = 3
_MEANINGS: Final = 12
"""Constants whose own descriptions are shown."""
_SAFE: Final = 2**53 - 1
"""Integers that a JSON library adds as bounds by itself say nothing."""

_RANGES: Final = (
    ("minimum", "maximum", ""),
    ("minLength", "maxLength", " characters"),
    ("minItems", "maxItems", " items"),
)
_FACTS: Final = (
    ("exclusiveMinimum", "> {}"),
    ("exclusiveMaximum", "< {}"),
    ("multipleOf", "multiple of {}"),
    ("pattern", "matches {}"),
    ("format", "format {}"),
    ("contentEncoding", "encoded as {}"),
)


def cut(text: str, limit: int) -> str:
    """The text, or its start and an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def prose(description: str) -> str:
    """A description with its lines kept, blank ones taken out, and a bounded length."""
    lines = (line.rstrip() for line in inspect.cleandoc(description).splitlines())
    return cut("\n".join(line for line in lines if line), MAX_DESCRIPTION)


def docstring(text: str) -> list[str]:
    """A docstring that gives these words, as the lines of the body of a `def`."""
    if not text:
        return ["    ..."]
    text = text.replace('"""', "'''")
    lines = (('r"""' if "\\" in text else '"""') + text).splitlines()
    if len(lines) > 1 or text.endswith(('"', "\\")):
        lines.append('"""')
    else:
        lines[-1] += '"""'
    return [f"    {line}" for line in lines]


class Notes:
    """One line for each argument, field or shared shape that has something to say."""

    def __init__(self, root: Schema, types: Types, said: str) -> None:
        """Start empty.

        Args:
            root: The schema that references point into.
            types: Knows which shapes have a name, and so are explained once.
            said: The tool's description; what it says already is not repeated.
        """
        self._root = root
        self._types = types
        self._said = " ".join(said.split())
        self.lines: list[str] = []

    def write(self, known: Parameters) -> list[str]:
        """The lines for all arguments, then for all shared shapes; at most `MAX_NOTES`."""
        for parameter in known.items:
            facts = []
            if parameter.name != parameter.python_name:
                facts.append(f"the server's {cut(parameter.name, 60)!r}")
            if parameter.has_default and not parameter.required:
                default = literal(parameter.default)
                facts += [f"default {cut(default, MAX_NOTE)}"] if len(default) > MAX_DEFAULT else []
            self._note(parameter.python_name, parameter.schema, facts, 0)
        together = [cut(rule, MAX_NOTE) for rule in needs(resolved(self._root, self._root))]
        self.lines += [f"({'; '.join(together)})"] if together else []
        for name, schema in self._types.schemas.items():
            for field, part, _ in fields(schema):
                self._note(f"{name}.{field}", part, [], 1)
        if len(self.lines) > MAX_NOTES:
            self.lines[MAX_NOTES:] = ["(more fields are not described here)"]
        return self.lines

    def _note(self, path: str, raw: Any, facts: list[str], level: int) -> None:
        if len(self.lines) > MAX_NOTES:
            return
        schema = resolved(raw, self._root)
        text = schema.get("description")
        words = " ".join(text.split()) if isinstance(text, str) else ""
        words = "" if words in self._said else cut(words, MAX_NOTE)
        facts = [*facts, *dict.fromkeys(self._facts(schema))]
        if (
            level
            and schema.get("default") is not None
            and len(t := literal(schema["default"])) <= MAX_DEFAULT
        ):
            facts.append(f"default {t}")
        if words or facts:
            shown = f"({'; '.join(facts)})" if facts else ""
            self.lines.append(f"{path}: {words}{' ' if words and shown else ''}{shown}")
        if level < _LEVELS and not self._types.is_named(raw):
            for suffix, part in self._inside(schema):
                for name, below, _ in fields(part):
                    self._note(f"{path}{suffix}.{name}", below, [], level + 1)

    def _parts(self, schema: Schema) -> Iterator[Schema]:
        """A schema and its alternatives, without those that are explained elsewhere."""
        yield schema
        for part in branches(schema):
            if not self._types.is_named(part):
                yield resolved(part, self._root)

    def _inside(self, schema: Schema) -> Iterator[tuple[str, Schema]]:
        for part in self._parts(schema):
            yield "", part
            items = part.get("items")
            if isinstance(items, Mapping) and not self._types.is_named(items):
                yield "[]", resolved(items, self._root)

    def _facts(self, schema: Schema) -> Iterator[str]:
        for part in self._parts(schema):
            yield from _bounds(part)
            if "array" in kinds(part) and isinstance(part.get("items"), Mapping):
                yield from (f"each {fact}" for fact in _bounds(resolved(part["items"], self._root)))
        told = [(v, plain(p).get("description")) for p in branches(schema) for v in values_of(plain(p))]
        for value, words in told[:_MEANINGS]:
            if isinstance(words, str) and words.strip():
                yield f"{literal(value)}: {cut(' '.join(words.split()), MAX_DEFAULT)}"
        if schema.get("deprecated") is True:
            yield "deprecated"
        examples = schema.get("examples")
        if isinstance(examples, list) and examples and len(text := literal(examples[0])) <= MAX_DEFAULT:
            yield f"e.g. {text}"


def _bounds(schema: Schema) -> list[str]:
    """Bounds in words."""
    found = []
    for low_key, high_key, unit in _RANGES:
        low, high = _number(schema.get(low_key)), _number(schema.get(high_key))
        low = None if unit and low == 0 else low
        if low is not None and low == high:
            found.append(f"exactly {low}{unit if low != 1 else unit.removesuffix('s')}")
        elif low is not None and high is not None:
            found.append(f"{low} to {high}{unit}")
        elif unit and low == 1:
            found.append("not empty")
        elif low is not None or high is not None:
            found.append(f">= {low}{unit}" if high is None else f"<= {high}{unit}")
    for key, words in _FACTS:
        value = schema.get(key)
        if isinstance(value, str) or _number(value) is not None:
            found.append(words.format(cut(" ".join(str(value).split()), 80)))
    return found + (["no item twice"] if schema.get("uniqueItems") is True else [])


def _number(value: Any) -> int | float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if number and abs(value) < _SAFE else None

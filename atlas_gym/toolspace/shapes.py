"""JSON Schema -> Python types as text, for a model to read: `list[{"name": str, "age?": int}] | None`.

Owns the notation: objects are written as dictionaries whose optional keys end in `?`; schemas used
twice or within themselves get a name. The text always compiles. Does not know tools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from atlas_gym.toolspace.naming import clean
from atlas_gym.toolspace.schema import (
    ANY,
    Schema,
    branches,
    fields,
    kinds,
    merged,
    plain,
    references,
    resolved,
    values_of,
)

MAX_NESTING: Final = 6
MAX_ENUM: Final = 60
_ENUM_CHARS: Final = 2_000
"""Values are shown whole or not at all: a model must be able to send them as they stand."""
MAX_FIELDS: Final = 60
_STEPS: Final = 2_000
_DEPTH: Final = 40
_INLINE_CHARS: Final = 40
"""A shared schema whose text is not longer is repeated rather than named."""

_SCALARS: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_OUTLINES: Final = {**_SCALARS, "array": "list", "object": "dict"}
_PYTHON_TYPES: Final = ("str", "int", "float", "bool", "list", "dict", "tuple", "Any", "Literal", "None")


def literal(value: Any) -> str:
    """A JSON value as a Python expression that means the same."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(str(k))}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(literal(v) for v in value) + "]"
    if isinstance(value, str):
        text = repr(value)
        return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text and "\\'" not in text else text
    return repr(value)


class Types:
    """Writes types of one root schema, and remembers which of its parts it gave a name.

    Attributes:
        named: Name -> type text, each after those it uses.
        schemas: Name -> the schema behind it.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._uses = Counter(references(root))
        for pointer in self._uses:  # a part that is in use where it stands, unlike a definition
            self._uses[pointer] += not pointer.startswith(("#/$defs/", "#/definitions/"))
        self._open: dict[str, str] = {}
        self._done: dict[str, str] = {}
        self._recursive: set[str] = set()
        self._steps = _STEPS
        self._depth = 0
        self.named: dict[str, str] = {}
        self.schemas: dict[str, Schema] = {}

    def text(self, raw: Any, nesting: int = 0) -> str:
        """The type of a schema, as a Python expression."""
        self._steps -= 1
        if self._steps < 0 or self._depth > _DEPTH:
            return "Any"
        self._depth += 1
        try:
            return self._text(plain(raw), nesting)
        finally:
            self._depth -= 1

    def is_named(self, raw: Any) -> bool:
        """Whether a schema is a reference that was given a name, and so is explained once elsewhere."""
        return self._done.get(str(plain(raw).get("$ref"))) in self.named

    def outline(self, raw: Any) -> str:
        """Only the outermost type of a schema, where all of it is too long to show."""
        return union(_OUTLINES[kind] for kind in kinds(resolved(raw, self._root)))

    def _text(self, schema: Schema, nesting: int) -> str:
        pointer = schema.get("$ref")
        if isinstance(pointer, str) and self._uses[pointer] > 1:
            if pointer not in self._open:
                return self._shared(pointer, nesting)
            self._recursive.add(pointer)
            return f'"{self._open[pointer]}"'
        return self._inline(resolved(schema, self._root), nesting)

    def _shared(self, pointer: str, nesting: int) -> str:
        if pointer in self._done:
            return self._done[pointer]
        base = name = clean(pointer.rpartition("/")[2].strip("#") or "Arguments", "Shape", public=True)
        number = 2
        while name in self._open.values() or name in self.named or name in _PYTHON_TYPES:
            name, number = f"{base}_{number}", number + 1
        self._open[pointer] = name
        target = resolved({"$ref": pointer}, self._root)
        text = self._inline(target, max(nesting - 2, 0))
        del self._open[pointer]
        if pointer in self._recursive or len(text) > _INLINE_CHARS:
            self.named[name] = text
            self.schemas[name] = target
            text = name
        if text == name or nesting == 0:
            self._done[pointer] = text
        return text

    def _inline(self, schema: Schema, nesting: int) -> str:
        if values_of(schema):
            return self._values(values_of(schema))
        found = kinds(schema)
        parts = branches(schema)
        if parts and not (found == ["object"] and isinstance(schema.get("properties"), Mapping)):
            base = {k: v for k, v in schema.items() if k in ("type", "items") and found != ["object"]}
            constants = [] if "$ref" in schema else [v for p in parts for v in values_of(plain(p))]
            rest = [p for p in parts if not values_of(plain(p))]
            texts = [self._values(constants)] if constants else []
            return union(
                [*texts, *(self.text({**base, **plain(p)} if plain(p) else ANY, nesting) for p in rest)]
            )
        if any(isinstance(resolved(p, self._root).get("properties"), Mapping) for p in parts):
            # What all alternatives have in common stands beside them: each is shown with it.
            common = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")}
            return union(self.text(merged(resolved(p, self._root), common), nesting) for p in parts)
        return union(self._kind(kind, schema, nesting) for kind in found) if found else "Any"

    def _kind(self, kind: str, schema: Schema, nesting: int) -> str:
        if kind == "array":
            return self._array(schema, nesting)
        return self._object(schema, nesting) if kind == "object" else _SCALARS[kind]

    def _array(self, schema: Schema, nesting: int) -> str:
        items = schema.get("prefixItems") or schema.get("items")
        if nesting >= MAX_NESTING or not items or items is True:
            return "list"
        if isinstance(items, list):
            return f"tuple[{', '.join(self.text(item, nesting + 1) for item in items[:MAX_FIELDS])}]"
        inner = self.text(items, nesting + 1)
        return "list" if inner == "Any" else f"list[{inner}]"

    def _object(self, schema: Schema, nesting: int) -> str:
        found = fields(schema)
        if nesting >= MAX_NESTING:
            return "dict"
        if not found:
            patterns, extra = schema.get("patternProperties"), schema.get("additionalProperties")
            values = [*patterns.values()] if isinstance(patterns, Mapping) else []
            values += [extra] if isinstance(extra, Mapping) and extra else []
            inner = union(self.text(value, nesting + 1) for value in values)
            return "dict" if inner == "Any" else f"dict[str, {inner}]"
        parts = [
            f"{literal(name + ('' if required else '?'))}: {self.text(part, nesting + 1)}"
            for name, part, required in found[:MAX_FIELDS]
        ]
        return "{" + ", ".join(parts + (["...: ..."] if len(found) > MAX_FIELDS else [])) + "}"

    def _values(self, values: list[Any]) -> str:
        words = [v for v in values if isinstance(v, str | int)]
        texts = list(dict.fromkeys(literal(v) for v in words))
        shown = texts[:MAX_ENUM]
        while len(shown) > 1 and sum(map(len, shown)) > _ENUM_CHARS:
            shown.pop()
        texts = shown if len(shown) == len(texts) else [*shown, "..."]
        parts = [f"Literal[{', '.join(texts)}]"] if texts else []
        parts += [_json_type(v) for v in values if not isinstance(v, str | int)]
        return union(parts)


def union(parts: Iterable[str]) -> str:
    """Several types as one: each once, None last, Any swallows all."""
    texts = list(parts)
    bare = [text.removesuffix(" | None") for text in texts if text != "None"]
    found = list(dict.fromkeys(bare)) + (["None"] if any(t.endswith("None") for t in texts) else [])
    return "Any" if "Any" in found or not found else " | ".join(found)


def _json_type(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, float):
        return "float"
    return "dict" if isinstance(value, Mapping) else "list"

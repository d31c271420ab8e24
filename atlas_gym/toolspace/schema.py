"""JSON Schema, read: references followed, `allOf` merged, odd forms made plain, parameters listed.

Owns what a schema means here. Every function takes whatever servers write and never raises. Does
not know Python's syntax, nor tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from atlas_gym.toolspace.naming import python_names

Schema = Mapping[str, Any]

ANY: Final[Schema] = {}
NOTHING: Final[Schema] = {"not": {}}
TYPES: Final = ("string", "integer", "number", "boolean", "null", "array", "object")

_NAMED: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
_SINGLE: Final = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_MANY: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_NOISE: Final = ("title", "$schema", "$id", "$comment")
_ALIASES: Final = {"int": "integer", "str": "string", "float": "number", "bool": "boolean", "dict": "object"}
_STEPS: Final = 200
"""References and `allOf` parts followed for one schema; keeps hostile schemas from growing without end."""
_UNSET: Final = object()


@dataclass(frozen=True)
class Parameter:
    """One argument of a tool."""

    name: str
    """As the server calls it."""
    python_name: str
    schema: Any
    """As the server wrote it; read it with `resolved`."""
    required: bool
    default: Any = _UNSET

    @property
    def has_default(self) -> bool:
        """Whether the schema states a default (which may be null)."""
        return self.default is not _UNSET


@dataclass(frozen=True)
class Parameters:
    """A tool's arguments: the required ones first, each part in the server's order."""

    items: tuple[Parameter, ...]
    open: bool
    """Whether arguments that are not listed may be sent too."""


def plain(raw: Any) -> Schema:
    """Any value that stands where a schema should, as a dictionary."""
    if isinstance(raw, Mapping):
        return raw
    if raw is False:
        return NOTHING
    if isinstance(raw, str) and raw in TYPES:
        return {"type": raw}
    return ANY


def target(pointer: Any, root: Schema) -> Schema:
    """What a `$ref` points to; the schema that allows everything where it points nowhere."""
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        return ANY
    place: Any = root
    for part in unquote(pointer[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(place, Mapping) and key in place:
            place = place[key]
        elif isinstance(place, list) and key.isdecimal() and int(key) < len(place):
            place = place[int(key)]
        else:
            return ANY
    return plain(place)


def resolved(raw: Any, root: Schema) -> Schema:
    """A schema with the references and `allOf` at its top followed; cycles end in "anything"."""
    return _resolved(raw, root, frozenset(), [_STEPS])


def _resolved(raw: Any, root: Schema, seen: frozenset[str], steps: list[int]) -> Schema:
    schema = plain(raw)
    steps[0] -= 1
    if steps[0] < 0:
        return ANY
    if "$ref" in schema:
        pointer = str(schema["$ref"])
        below = ANY if pointer in seen else _resolved(target(pointer, root), root, seen | {pointer}, steps)
        schema = {**below, **{k: v for k, v in schema.items() if k != "$ref"}}
    if isinstance(schema.get("allOf"), list):
        parts = schema["allOf"]
        schema = {k: v for k, v in schema.items() if k != "allOf"}
        for part in parts:
            schema = merged(schema, _resolved(part, root, seen, steps))
    return schema


def merged(first: Schema, second: Schema) -> Schema:
    """Both schemas at once, near enough to be shown: properties and needs add up, the first wins else."""
    out = {**second, **first}
    for key in ("properties", "$defs"):
        if isinstance(first.get(key), Mapping) and isinstance(second.get(key), Mapping):
            out[key] = {**second[key], **first[key]}
            out[key] = {k: out[key][k] for k in [*first[key], *second[key]]}
    if "required" in first and "required" in second:
        out["required"] = [*_strings(first["required"]), *_strings(second["required"])]
    both = isinstance(first.get("enum"), list) and isinstance(second.get("enum"), list)
    if both and (common := [v for v in first["enum"] if v in second["enum"]]):
        out["enum"] = common
    return out


def kinds(schema: Schema) -> list[str]:
    """The JSON types that a schema names, or lets one guess; empty when it could be anything."""
    named = schema.get("type")
    found = [t for t in (named if isinstance(named, list) else [named]) if t in TYPES]
    if not found and isinstance(named, str):
        found = [_ALIASES[named]] if named in _ALIASES else []
    if not found and any(k in schema for k in ("properties", "additionalProperties", "patternProperties")):
        found = ["object"]
    if not found and any(k in schema for k in ("items", "prefixItems", "minItems", "maxItems")):
        found = ["array"]
    if not found and any(k in schema for k in ("pattern", "minLength", "maxLength", "format")):
        found = ["string"]
    if not found and any(k in schema for k in ("minimum", "maximum", "multipleOf")):
        found = ["number"]
    if found and schema.get("nullable") is True and "null" not in found:
        found.append("null")
    return list(dict.fromkeys(found))


def branches(schema: Schema) -> list[Any]:
    """The parts of `anyOf` or `oneOf`, unless they only say which fields are needed together."""
    for key in ("anyOf", "oneOf"):
        parts = schema.get(key)
        if isinstance(parts, list) and any(set(plain(p)) - {"required", "not", "title"} for p in parts):
            return parts
    return []


def fields(schema: Schema) -> list[tuple[str, Any, bool]]:
    """(name, schema, required) of each property of an object, in the server's order."""
    raw = schema.get("properties")
    found: dict[str, Any] = dict(raw) if isinstance(raw, Mapping) else {}
    needed = set(_strings(schema.get("required")))
    needed |= {k for k, v in found.items() if isinstance(v, Mapping) and v.get("required") is True}
    found.update({k: True for k in _strings(schema.get("required")) if k not in found})
    return [(name, value, name in needed) for name, value in found.items()]


def parameters(input_schema: Schema) -> Parameters:
    """A tool's arguments, with their Python names.

    Args:
        input_schema: The schema of the arguments object; also the root for references.
    """
    top = resolved(input_schema, input_schema)
    listed = {name: (schema, required) for name, schema, required in fields(top)}
    choices = [fields(resolved(part, input_schema)) for part in branches(top)]
    always = [{name for name, _, needed in choice if needed} for choice in choices]
    for choice in [*choices, *(fields(part) for part in _conditional(input_schema))]:
        for name, schema, _ in choice:
            known, required = listed.get(name, (True, False))
            required = required or (bool(always) and all(name in needed for needed in always))
            listed[name] = (known if plain(known) else schema, required)
    names = python_names(listed, "arg")
    made = []
    for name, (raw, required) in listed.items():
        default = resolved(raw, input_schema).get("default", _UNSET)
        made.append(Parameter(name, names[name], raw, required, default))
    extra = top.get("additionalProperties")
    return Parameters(
        items=tuple(sorted(made, key=lambda p: not p.required)),
        open=bool(extra) or isinstance(extra, Mapping) or (extra is None and not _listed(top)),
    )


def _conditional(root: Schema) -> Iterator[Schema]:
    """What arguments may look like under a condition: `then` and `else`, at the top or in `allOf`."""
    top = resolved({k: v for k, v in root.items() if k != "allOf"}, root)
    parts = root.get("allOf")
    for part in [top, *(resolved(p, root) for p in (parts if isinstance(parts, list) else ()))]:
        for key in ("then", "else"):
            if isinstance(part.get(key), Mapping):
                yield resolved(part[key], root)


def _listed(top: Schema) -> bool:
    """Whether the schema says at all which arguments there are."""
    return any(key in top for key in ("properties", "required", "anyOf", "oneOf"))


def references(root: Any) -> Iterator[str]:
    """Every `$ref` that stands anywhere in a schema, once for each place."""
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            if isinstance(value.get("$ref"), str):
                yield value["$ref"]
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def compact(raw: Any) -> Any:
    """The same schema without what tells a model nothing: titles, dialects, unused definitions."""
    small = _compact(raw)
    used = {pointer.split("/")[2] for pointer in references(small) if pointer.count("/") >= 2}
    for key in ("$defs", "definitions"):
        if isinstance(small, dict) and isinstance(small.get(key), dict):
            kept = {k: v for k, v in small[key].items() if k.replace("~", "~0").replace("/", "~1") in used}
            small = {**{k: v for k, v in small.items() if k != key}, **({key: kept} if kept else {})}
    return small


def _compact(raw: Any) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    out: dict[str, Any] = {}
    for key, value in raw.items():
        if key in _NOISE and isinstance(value, str):
            continue
        if key in _NAMED and isinstance(value, Mapping):
            out[key] = {name: _compact(part) for name, part in value.items()}
        elif key in _SINGLE:
            out[key] = [_compact(v) for v in value] if isinstance(value, list) else _compact(value)
        elif key in _MANY and isinstance(value, list):
            out[key] = [_compact(part) for part in value]
        elif key == "description" and isinstance(value, str):
            out[key] = " ".join(value.split())
        else:
            out[key] = value
    return out


def _strings(raw: Any) -> list[str]:
    return [v for v in raw if isinstance(v, str)] if isinstance(raw, list | tuple) else []

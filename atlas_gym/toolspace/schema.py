"""JSON Schema, read: references followed, `allOf` merged, odd forms made plain, parameters listed.

Owns what a schema means here. Every function takes whatever servers write and never raises. Does
not know Python's syntax, nor tools.
"""

from __future__ import annotations

import json
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
_ALIASES: Final = {
    **{
        "int": "integer",
        "str": "string",
        "float": "number",
        "bool": "boolean",
        "dict": "object",
        "list": "array",
    },
    **{kind: kind for kind in TYPES},
}
"""What servers write for a type, in lower case: some give Python's names, some capitals."""
_DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
_GROUPS: Final = ("$defs", "definitions")
_MAX_WORDS: Final = 2_000
"""Characters of one description; signatures show less."""
_MAX_DEFAULT: Final = 300
"""A default whose JSON is longer is left out."""
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
        if "$ref" not in raw and (found := [raw[k] for k in _DYNAMIC if isinstance(raw.get(k), str)]):
            return {**{k: v for k, v in raw.items() if k not in _DYNAMIC}, "$ref": found[0]}
        return raw
    if raw is False:
        return NOTHING
    if isinstance(raw, str) and raw in TYPES:
        return {"type": raw}
    return ANY


def path_of(pointer: Any, root: Schema) -> list[str] | None:
    """The keys that lead from the root to where a `$ref` points; None where that is not in this schema."""
    if not isinstance(pointer, str):
        return None
    document, _, inside = pointer.partition("#")
    start: list[str] = []
    if document and document != root.get("$id"):
        home = _definition(root, ("$id",), document)
        if home is None:
            return None
        start = home
    inside = unquote(inside)
    if inside and not inside.startswith("/"):
        return _definition(root, _ANCHORS, inside) or _definition(root, ("$id", "id"), f"#{inside}")
    return start + [part.replace("~1", "/").replace("~0", "~") for part in inside.split("/")[1:]]


def _definition(root: Schema, marks: tuple[str, ...], name: str) -> list[str] | None:
    """The path of the definition that calls itself `name`. Names further inside are not looked for."""
    for group in _GROUPS:
        parts = root.get(group)
        for key, part in parts.items() if isinstance(parts, Mapping) else ():
            if isinstance(part, Mapping) and any(part.get(mark) == name for mark in marks):
                return [group, key]
    return None


def target(pointer: Any, root: Schema) -> Schema:
    """What a `$ref` points to; the schema that allows everything where it points nowhere."""
    path = path_of(pointer, root)
    if path is None:
        return ANY
    place: Any = root
    for key in path:
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
    listed = [t.lower() for t in (named if isinstance(named, list) else [named]) if isinstance(t, str)]
    found = [_ALIASES[t] for t in listed if t in _ALIASES]
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
    offered: dict[str, list[Any]] = {}
    for choice in [*choices, *(fields(part) for part in _conditional(input_schema))]:
        for name, schema, _ in choice:
            offered.setdefault(name, []).append(schema)
    for name, schemas in offered.items():
        known, required = listed.get(name, (True, False))
        required = required or (bool(always) and all(name in needed for needed in always))
        listed[name] = (_either(known, schemas, len(choices), input_schema), required)
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


def _either(known: Any, schemas: list[Any], choices: int, root: Schema) -> Any:
    """An argument that alternatives describe differently: what the top says of it, else any of theirs.

    The top often says only `string` of what tells the alternatives apart; then their constants say more.
    """
    told = [values_of(resolved(schema, root)) for schema in schemas]
    if (
        len(schemas) >= choices > 1
        and all(told)
        and not values_of(plain(known))
        and "$ref" not in plain(known)
    ):
        values = [value for found in told for value in found]
        return {**plain(known), "enum": [v for i, v in enumerate(values) if v not in values[:i]]}
    if plain(known):
        return known
    distinct = [s for i, s in enumerate(schemas) if plain(s) and s not in schemas[:i]]
    return {"anyOf": distinct} if len(distinct) > 1 else (distinct or [known])[0]


def values_of(schema: Schema) -> list[Any]:
    """The constants that a schema allows; empty when it does not list them."""
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if isinstance(schema.get("enum"), list) else []


def needs(schema: Schema) -> list[str]:
    """What is needed together, in words: `a or b`, `a needs b`."""
    found = []
    for key in ("anyOf", "oneOf"):
        parts = schema.get(key)
        if isinstance(parts, list) and len(parts) > 1 and not branches(schema):
            ways = [" and ".join(_strings(plain(part).get("required"))) for part in parts]
            found += [f"needs {' or '.join(dict.fromkeys(ways))}"] if all(ways) else []
    for key in ("dependentRequired", "dependencies"):
        rules = schema.get(key)
        for name, others in rules.items() if isinstance(rules, Mapping) else ():
            found += [f"{name} needs {' and '.join(_strings(others))}"] if _strings(others) else []
    return found


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
    if top.get("properties") and not isinstance(top["properties"], Mapping):
        return False  # unreadable, which is not the same as none
    return any(key in top for key in ("properties", "required", "anyOf", "oneOf"))


def references(root: Any) -> Iterator[str]:
    """Every `$ref` that stands anywhere in a schema, once for each place."""
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, Mapping):
            pointer = plain(value).get("$ref")
            if isinstance(pointer, str):
                yield pointer
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def compact(raw: Any) -> Any:
    """The same schema without what tells a model nothing: titles, dialects, unused definitions."""
    if not isinstance(raw, Mapping):
        return raw
    noise = set(_NOISE)
    if not all(pointer == "#" or pointer.startswith("#/") for pointer in references(raw)):
        noise.discard("$id")  # other references may name it
    small: dict[str, Any] = _compact(raw, noise)
    groups = {key: small[key] for key in _GROUPS if isinstance(small.get(key), Mapping)}
    used: set[tuple[str, str]] = set()
    new: list[Any] = [{k: v for k, v in small.items() if k not in groups}]
    while new:
        paths = [path_of(pointer, raw) or [] for pointer in references(new)]
        found = {(p[0], p[1]) for p in paths if len(p) > 1 and p[1] in groups.get(p[0], ())} - used
        used |= found
        new = [groups[group][key] for group, key in found]
    for group, parts in groups.items():
        small[group] = {key: part for key, part in parts.items() if (group, key) in used}
        if not small[group]:
            del small[group]
    return small


def _compact(raw: Any, noise: set[str]) -> Any:
    if not isinstance(raw, Mapping):
        return raw
    out: dict[str, Any] = {}
    for key, value in raw.items():
        if key in noise and isinstance(value, str):
            continue
        if key in _NAMED and isinstance(value, Mapping):
            out[key] = {name: _compact(part, noise) for name, part in value.items()}
        elif key in _SINGLE:
            out[key] = (
                [_compact(v, noise) for v in value] if isinstance(value, list) else _compact(value, noise)
            )
        elif key in _MANY and isinstance(value, list):
            out[key] = [_compact(part, noise) for part in value]
        elif key == "description":
            words = " ".join(value.split()) if isinstance(value, str) else ""
            out |= (
                {key: words if len(words) <= _MAX_WORDS else words[: _MAX_WORDS - 1] + "…"} if words else {}
            )
        elif key == "required" and isinstance(value, list):
            out[key] = _strings(value)
        elif key != "default" or len(json.dumps(value, default=str)) <= _MAX_DEFAULT:
            out[key] = value
    return out


def _strings(raw: Any) -> list[str]:
    return [v for v in raw if isinstance(v, str)] if isinstance(raw, list | tuple) else []

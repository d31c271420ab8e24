"""A tool as text for a model: a Python signature or compact JSON; and its arguments, bound.

Owns how names, types, bounds and descriptions are written, and the argument errors that teach. Does
not check types: the server's own words say more. Does not know what has been shown to whom.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from atlas_gym.errors import AtlasError, closest
from atlas_gym.toolspace.docstrings import MAX_DEFAULT, Notes, cut, docstring, prose
from atlas_gym.toolspace.records import Tool
from atlas_gym.toolspace.schema import Parameter, Parameters, compact, fields, resolved
from atlas_gym.toolspace.schema import parameters as read_parameters
from atlas_gym.toolspace.shapes import Types, literal

_MAX_RETURNS: Final = 400
"""A result type whose text is longer is shown by its outermost type alone."""

_MAX_SHAPE: Final = 600

_CACHED: Final = 8_192


class ArgumentError(AtlasError):
    """Arguments that no call of this tool can have; the message shows its signature."""


@lru_cache(maxsize=_CACHED)
def parameters(tool: Tool) -> Parameters:
    """The arguments of a tool: names, needs, defaults."""
    return read_parameters(tool.input_schema)


@lru_cache(maxsize=_CACHED)
def signature(tool: Tool) -> str:
    """A Python `def` with types, defaults and a docstring; shared shapes stand before it.

    The text compiles. A default of `...` means: optional, the server decides.
    """
    types = Types(tool.input_schema)
    head = _head(tool, types)
    notes = Notes(tool.input_schema, types, tool.description).write(parameters(tool))
    if tool.shape and not _returns(tool):
        notes = [*notes, f"Returns: {cut(' '.join(tool.shape.split()), _MAX_SHAPE)}"]
    shapes = [f"{name} = {text}" for name, text in types.named.items()]
    doc = prose(tool.description)
    return "\n".join([*shapes, f"{head}:", *docstring("\n".join([doc] * bool(doc) + notes))])


@lru_cache(maxsize=_CACHED)
def headline(tool: Tool) -> str:
    """The signature alone, on one line: `add(a: float, b: float = 1) -> float`."""
    return _head(tool, Types(tool.input_schema)).removeprefix("def ")


@lru_cache(maxsize=_CACHED)
def schema_text(tool: Tool) -> str:
    """Name, description and parameters as one line of JSON."""
    shown = {
        "name": tool.name,
        "description": prose(tool.description),
        "parameters": compact(tool.input_schema),
    }
    if not shown["description"]:
        del shown["description"]
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"), default=str)


def summary(tool: Tool, limit: int = 100) -> str:
    """The first sentence of the description, for lists."""
    line = " ".join(tool.description.split())
    for end in (". ", "! ", "? ", "。"):
        line = line.partition(end)[0] + end.strip() if end in line[:limit] else line
    return cut(line, limit)


def bind(tool: Tool, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of one call under the server's own names.

    Args:
        tool: The tool that is called.
        args: Positional arguments, in the order of the signature.
        kwargs: Arguments by Python name; the server's own name is understood too. `...`, the default
            that signatures show, means left out.

    Raises:
        ArgumentError: Missing, unexpected, too many or repeated arguments. Types are not checked.
    """
    known = parameters(tool)
    if len(args) > len(known.items):
        raise _wrong(tool, f"takes at most {len(known.items)} positional arguments, {len(args)} were given")
    bound = {p.name: value for p, value in zip(known.items, args, strict=False)}
    names = {p.name: p.name for p in known.items} | {p.python_name: p.name for p in known.items}
    for key, value in kwargs.items():
        name = names.get(key, key if known.open else None)
        if name is None:
            near = closest(key, [p.python_name for p in known.items])
            raise _wrong(tool, f"has no argument {key!r}" + (f"; did you mean {near!r}?" if near else ""))
        if name in bound:
            raise _wrong(tool, f"got the argument {key!r} twice")
        bound[name] = value
    bound = {name: value for name, value in bound.items() if value is not Ellipsis}
    missing = [p.python_name for p in known.items if p.required and p.name not in bound]
    if missing:
        raise _wrong(tool, f"misses {', '.join(map(repr, missing))}")
    return bound


def _wrong(tool: Tool, what: str) -> ArgumentError:
    end = "" if what.endswith("?") else "."
    return ArgumentError(f"{tool.python_name}() {what}{end} Signature: {headline(tool)}")


def _head(tool: Tool, types: Types) -> str:
    known = parameters(tool)
    parts = [_parameter(p, types) for p in known.items]
    if known.open:
        names = {p.python_name for p in known.items}
        parts.append("**" + next(n for n in ("kwargs", "other", "more", "any_") if n not in names))
    returns = _returns(tool)
    arrow = f" -> {returns}" if returns else ""
    return f"def {tool.python_name}({', '.join(parts)}){arrow}"


def _parameter(parameter: Parameter, types: Types) -> str:
    text = types.text(parameter.schema)
    if parameter.required:
        return f"{parameter.python_name}: {text}"
    default = literal(parameter.default) if parameter.has_default else "..."
    if len(default) > MAX_DEFAULT:
        default = "..."
    return f"{parameter.python_name}: {text} = {default}"


def _returns(tool: Tool) -> str:
    """What a call gives: as observed, else as the server declares it; "" where no type can say it."""
    if tool.shape:
        text = " ".join(tool.shape.split())
        return text if len(text) <= _MAX_SHAPE and _compiles(text) else ""
    if tool.output_schema is None:
        return "Any"
    types = Types(tool.output_schema)
    raw: Any = tool.output_schema
    inside = fields(resolved(raw, raw))
    if [name for name, _, _ in inside] == ["result"]:  # how SDKs wrap what is no object; it arrives unwrapped
        raw = inside[0][1]
    text = types.text(raw)
    return text if not types.named and len(text) <= _MAX_RETURNS else types.outline(raw)


def _compiles(text: str) -> bool:
    try:
        compile(f"x: {text}", "<shape>", "exec")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return "\n" not in text and "#" not in text

"""The shape of a value that a tool really returned, in Python's words: `list[{"id": str}]`.

Holds types and field names, never values: keys that are data become `str`. Does not know tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

_DEPTH: Final = 5
_FIELDS: Final = 24
_ITEMS: Final = 50
_CHARS: Final = 600
_FIELD: Final = re.compile(r"[A-Za-z_$@][A-Za-z0-9_$@-]{0,39}")
_DATA: Final = re.compile(r"\d{2,}|^[A-Z]{1,3}\d+$")
"""Keys that are ids, dates or cell addresses rather than field names."""

_SCALARS: Final = {str: "str", bool: "bool", int: "int", float: "float", type(None): "None"}


def shape_of(values: Iterable[Any]) -> str:
    """One shape that fits all of these results of a tool.

    Args:
        values: JSON values; several calls of one tool may return several.

    Returns:
        A short text such as `{"id": str, "due?": str | None}`; `?` marks keys that are not always there.
    """
    found = list(values)
    for depth in range(_DEPTH, 0, -1):
        text = _shape(found, depth)
        if len(text) <= _CHARS:
            return text
    return _shape(found, 0)


def _shape(values: list[Any], depth: int) -> str:
    kinds: dict[str, None] = {}
    dicts = [v for v in values if isinstance(v, Mapping)]
    lists = [v for v in values if isinstance(v, list | tuple)]
    for value in values:
        if isinstance(value, Mapping):
            kinds[_object(dicts, depth)] = None
        elif isinstance(value, list | tuple):
            kinds[_array(lists, depth)] = None
        else:
            kinds[_SCALARS.get(type(value), "Any")] = None
    if "float" in kinds:
        kinds.pop("int", None)
    last = ["None"] if kinds.pop("None", 0) is None else []
    return " | ".join([*kinds, *last]) or "Any"


def _object(values: list[Mapping[str, Any]], depth: int) -> str:
    keys = list(dict.fromkeys(str(key) for value in values for key in value))
    if depth == 0 or not keys:
        return "dict"
    inner = [v for value in values for v in value.values()]
    if any(not _FIELD.fullmatch(key) or _DATA.search(key) for key in keys) or len(keys) > 2 * _FIELDS:
        return f"dict[str, {_shape(inner, depth - 1)}]"
    parts = []
    for key in keys[:_FIELDS]:
        present = [value[key] for value in values if key in value]
        name = key if len(present) == len(values) else f"{key}?"
        parts.append(f'"{name}": {_shape(present, depth - 1)}')
    return "{" + ", ".join(parts + (["..."] if len(keys) > _FIELDS else [])) + "}"


def _array(values: list[Any], depth: int) -> str:
    items = [item for value in values for item in value[:_ITEMS]]
    return f"list[{_shape(items, depth - 1)}]" if depth and items else "list"

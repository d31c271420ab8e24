"""The random floor: legal calls of visible tools with schema-shaped random arguments.

Owns drawing values from JSON schemas, seeded. It reads the toolset directly, so that its floor does not
hang on how well it reads prompts. Does not know the task's checks or gold.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from atlas_gym.env.episode import Episode
from atlas_gym.rollout.gold import call_text, loads
from atlas_gym.rollout.policy import Policy, PolicyFactory, PolicyInput
from atlas_gym.toolspace.records import Tool, Toolset

CALLS: Final = 12
"""Tool calls of one random episode."""

_DEPTH: Final = 6
_WORDS: Final = ("a", "main", "test", "2024-01-01", "/workspace", "notes.txt", "1")


class RandomPolicy:
    """Loads every tool, makes random calls, then answers with what it saw last."""

    name = "random"

    def __init__(
        self, toolset: Toolset, *, exposure: str, execution: str, prompt: str, seed: int, calls: int = CALLS
    ) -> None:
        self._random = random.Random(seed)
        self._tools = sorted(toolset, key=lambda t: (t.server, t.name))
        used: dict[str, list[str]] = {}
        for tool in self._tools:
            used.setdefault(tool.server, []).append(tool.name)
        self._loads = loads(exposure, used) if self._tools else []
        self._code = execution == "code"
        self._calls = calls if self._tools else 0
        self._words = words_of(prompt)

    async def act(self, seen: PolicyInput) -> str:
        """A load, a random call, or at the end the last result as the answer."""
        turn = seen.turn
        if turn < len(self._loads):
            return self._loads[turn]
        if turn < len(self._loads) + self._calls:
            return self._call(self._random.choice(self._tools))
        return call_text("answer", text=seen.result[-2_000:])

    def _call(self, tool: Tool) -> str:
        arguments = draw_arguments(tool.input_schema, self._random, self._words)
        if not self._code:
            return call_text("call_tool", server=tool.server, tool=tool.name, arguments=arguments)
        given = json.dumps(arguments)  # read back in the cell: JSON text is a safe Python string literal
        server, name = tool.server, tool.python_name
        return f"```python\nimport json\nprint(MCPServer({server!r}).{name}(**json.loads({given!r})))\n```"


def random_calls(seed: int, calls: int = CALLS) -> PolicyFactory:
    """Makes the random policy of an episode; the same seed and task give the same calls."""

    def make(episode: Episode) -> Policy:
        return RandomPolicy(
            episode.world.toolset(episode.servers),
            exposure=episode.settings.exposure,
            execution=episode.settings.execution,
            prompt=episode.task.prompt,
            seed=seed,
            calls=calls,
        )

    return make


def words_of(prompt: str) -> tuple[str, ...]:
    """What a random agent fills strings with: quoted parts, paths, numbers and words of the task."""
    quoted = re.findall(r"[\"'`]([^\"'`\n]{1,60})[\"'`]", prompt)
    words = re.findall(r"[\w./@-]{2,40}", prompt)
    return tuple(dict.fromkeys([*quoted, *(w.strip(".") for w in words), *_WORDS]))


def draw_arguments(
    schema: Mapping[str, Any], source: random.Random, words: Sequence[str] = _WORDS
) -> dict[str, Any]:
    """Arguments that have the form a schema asks for: all required ones and some of the others.

    Args:
        schema: A tool's input schema.
        source: Where randomness comes from.
        words: What free strings are filled with.
    """
    value = _Drawer(source, words, schema).draw({**schema, "type": "object"}, 0)
    assert isinstance(value, dict)
    return value


@dataclass(frozen=True)
class _Drawer:
    source: random.Random
    words: Sequence[str]
    root: Mapping[str, Any]
    """What references point into."""

    def draw(self, schema: Any, depth: int) -> Any:
        source = self.source
        if not isinstance(schema, Mapping) or depth > _DEPTH:
            return source.choice(self.words)
        if "$ref" in schema:
            return self.draw(self._resolve(schema["$ref"]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return source.choice(schema["enum"])
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list) and schema[key]:
                return self.draw(source.choice(schema[key]), depth + 1)
        if isinstance(schema.get("allOf"), list) and schema["allOf"]:
            parts = [p for p in schema["allOf"] if isinstance(p, Mapping)]
            return self.draw({key: value for part in parts for key, value in part.items()}, depth + 1)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = source.choice(kind) if kind else None
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer":
                low, high = _bounds(schema, 0, 20)
                return source.randint(math.ceil(low), max(math.ceil(low), math.floor(high)))
            case "number":
                return round(source.uniform(*_bounds(schema, 0, 100)), 2)
            case "boolean":
                return source.random() < 0.5
            case "null":
                return None
        return source.choice(self.words)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        required = schema.get("required") or ()
        made: dict[str, Any] = {}
        for name, part in properties.items() if isinstance(properties, Mapping) else ():
            if name in required or self.source.random() < 0.3:
                made[str(name)] = self.draw(part, depth + 1)
        return made

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        low = int(schema.get("minItems", 0))
        high = min(int(schema.get("maxItems", low + 2)), low + 2)
        count = self.source.randint(min(max(low, 1), max(high, low)), max(high, low))
        return [self.draw(schema.get("items"), depth + 1) for _ in range(count)]

    def _resolve(self, reference: Any) -> Any:
        node: Any = self.root
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        for part in reference.lstrip("#").strip("/").split("/"):
            if part:
                key = part.replace("~1", "/").replace("~0", "~")
                node = node.get(key) if isinstance(node, Mapping) else None
        return node


def _bounds(schema: Mapping[str, Any], low: float, high: float) -> tuple[float, float]:
    """The range to draw from: what the schema says, and about [low, high] where it says nothing."""
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    bottom = float(least) if isinstance(least, int | float) else low
    top = float(most) if isinstance(most, int | float) else max(high, bottom + high)
    return (bottom, top) if bottom <= top else (top, top)

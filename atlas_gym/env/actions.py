"""From what the agent wrote to Actions: Hermes tool calls, bare JSON, fenced Python, answers, prose.

Owns the grammar and the words that teach it. Does not know which tools exist, nor runs anything.
Anything that is not understood becomes an `invalid` Action that says what was expected; nothing raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from atlas_gym.errors import closest
from atlas_gym.types import Action, ActionKind

MAX_ACTION_CHARS: Final = 1_000_000
"""A longer action is cut before it is read; no context budget could hold it anyway."""

MAX_OPERATIONS: Final = 32
"""Operations that one message may hold."""

_TOKEN = re.compile(r"</?tool_call>|</?answer>|^[ \t]*```[^\n`<]*$", re.M)
_PYTHON: Final = ("python", "py", "python3", "tool_code")
_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "call_tool": ("server", "tool", "arguments"),
    "run_code": ("code",),
    "load_server": ("server",),
    "load_tools": ("server", "tools"),
    "search_tools": ("query", "k"),
    "answer": ("text",),
}
_NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "call_tool": ("server", "tool"),
    "run_code": ("code",),
    "load_server": ("server",),
    "load_tools": ("server", "tools"),
    "search_tools": ("query",),
    "answer": ("text",),
}
_ALIASES: Final[dict[str, dict[str, str]]] = {
    "call_tool": {"name": "tool", "args": "arguments", "parameters": "arguments", "params": "arguments"},
    "run_code": {"python": "code", "source": "code", "cell": "code"},
    "load_server": {"name": "server", "server_name": "server"},
    "load_tools": {"names": "tools", "tool": "tools", "tool_names": "tools", "server_name": "server"},
    "search_tools": {"q": "query", "n": "k", "limit": "k"},
    "answer": {"answer": "text", "value": "text", "content": "text"},
}


@dataclass(frozen=True)
class Grammar:
    """What this episode's agent may write.

    Attributes:
        operations: The operations that are offered, as the prompt names them.
        prose_answer: Whether prose without any call is the answer.
    """

    operations: tuple[str, ...]
    prose_answer: bool = True

    @property
    def code(self) -> bool:
        """Whether a fenced Python block is an action."""
        return "run_code" in self.operations

    def expected(self) -> str:
        """One sentence that says what a right message looks like."""
        call = '<tool_call>{"name": "...", "arguments": {...}}</tool_call>'
        ways = [f"{call} with one of: {', '.join(self.operations)}"]
        if self.code:
            ways.append("a ```python block")
        ways.append("<answer>...</answer> to finish")
        return "Expected " + "; or ".join(ways) + "."

    def parse(self, text: str) -> tuple[Action, ...]:
        """Read one message; never raises and never returns an empty tuple.

        Args:
            text: What the agent wrote, at most `MAX_ACTION_CHARS` of which are read.
        """
        text = text[:MAX_ACTION_CHARS]
        if not encodable(text):
            return (self._invalid("The message holds lone surrogates, which are no characters."),)
        if "</think>" in text:
            text = text.rpartition("</think>")[2]
        elif text.lstrip().startswith("<think>"):
            return (self._invalid("The message ended inside <think>; nothing after it was read."),)
        found = self._blocks(text)
        if not found:
            return (self._plain(text.strip()),)
        if len(found) > MAX_OPERATIONS:
            return (self._invalid(f"The message holds more than {MAX_OPERATIONS} operations."),)
        answers = [i for i, action in enumerate(found) if action.kind == "answer"]
        if len(answers) > 1:
            return (self._invalid(f"The message gives {len(answers)} answers; give exactly one."),)
        if answers and answers[0] != len(found) - 1:
            return (self._invalid("The message goes on after its answer; put the answer last."),)
        return tuple(found)

    def _blocks(self, text: str) -> list[Action]:
        """Calls, code and answers in the order they stand; one pass, so that no text makes it slow."""
        found: list[Action] = []
        state, start = "", 0
        for match in _TOKEN.finditer(text):
            token = match[0].strip()
            if len(found) > MAX_OPERATIONS:
                break
            if token == "<tool_call>" and state in ("", "call"):
                found += self._calls(text[start : match.start()]) if state else []
                state, start = "call", match.end()
            elif token == "</tool_call>" and state == "call":
                found += self._calls(text[start : match.start()])
                state = ""
            elif token == "<answer>" and not state:
                state, start = "answer", match.end()
            elif token == "</answer>" and state == "answer":
                found.append(Action("answer", {"text": text[start : match.start()].strip()}))
                state = ""
            elif token.startswith("```") and not state:
                state, start = f"fence {token[3:].strip().lower()}", match.end()
            elif token == "```" and state.startswith("fence"):
                found += self._fence(state[6:], text[start : match.start()])
                state = ""
        rest = text[start:]
        if state == "call":  # a stop string may have eaten the closing tag
            found += self._calls(rest)
        elif state == "answer":
            found.append(self._invalid("The message has an <answer> that is not closed."))
        elif self.code and state[6:] in _PYTHON:
            found.append(self._invalid("The message has a code block that is not closed."))
        return found

    def _fence(self, language: str, body: str) -> list[Action]:
        if self.code and language in _PYTHON:
            return [Action("run_code", {"code": body.removeprefix("\n")})]
        return self._bare(body) if language in ("json", "tool_call") else []

    def _plain(self, text: str) -> Action:
        if not text:
            return self._invalid("The message is empty.")
        bare = self._bare(text)
        if len(bare) == 1:
            return bare[0]
        if bare:
            return self._invalid("Several calls in one message need <tool_call> tags around each.")
        if "tool_call>" in text or "<answer" in text or "</answer" in text:
            return self._invalid("The message has a tag that is opened or closed only once.")
        if not self.code and re.search(r"^[ \t]*```[ \t]*py", text, re.M):
            return self._invalid("Code is not run here.")
        if re.fullmatch(r"\{\s*\"name\".*", text, re.S):
            return self._invalid(f"The message looks like a call but is not JSON: {_json_error(text)}.")
        if self.prose_answer:
            return Action("answer", {"text": text})
        return self._invalid("The message holds no call and no <answer>.")

    def _bare(self, text: str) -> list[Action]:
        try:
            value = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            return []
        calls = value if isinstance(value, list) else [value]
        if not calls or not all(isinstance(c, dict) and isinstance(c.get("name"), str) for c in calls):
            return []
        return [self._call(c) for c in calls]

    def _calls(self, text: str) -> list[Action]:
        body = text.strip()
        if body.startswith("```") and body.endswith("```"):
            body = body[3:-3].removeprefix("json").strip()
        try:
            value = json.loads(body, strict=False)
        except (ValueError, RecursionError):
            return [self._invalid(f"The call is not JSON: {_json_error(body)}.")]
        calls = value if isinstance(value, list) and value else [value]
        return [self._call(c) for c in calls]

    def _call(self, raw: object) -> Action:
        if not isinstance(raw, dict):
            return self._invalid(f"The call is a JSON {_kind(raw)}, not an object.")
        function = raw.get("function")
        if isinstance(function, dict) and "name" not in raw:  # the wire form of chat APIs
            raw = function
        name = raw.get("name")
        if not isinstance(name, str) or not name.strip():
            return self._invalid('The call has no "name".')
        arguments: object = raw.get("arguments", raw.get("parameters", {}))
        if isinstance(arguments, str):
            if name == "run_code":
                arguments = {"code": arguments}
            elif name == "answer":
                arguments = {"text": arguments}
            else:
                text = arguments
                try:
                    arguments = json.loads(text, strict=False) if text.strip() else {}
                except (ValueError, RecursionError):
                    return self._invalid(f'"arguments" is a string that is not JSON: {_json_error(text)}.')
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            return self._invalid(f'"arguments" is a JSON {_kind(arguments)}, not an object.')
        bad = _unsendable(arguments)
        if bad:
            return self._invalid(f'"arguments" holds {bad}.')
        return self._operation(name.strip(), arguments)

    def _operation(self, name: str, arguments: Mapping[str, Any]) -> Action:
        if name not in _KEYS:
            server, tool = split_tool(name)
            if tool and "call_tool" in self.operations:
                return Action("call_tool", {"server": server, "tool": tool, "arguments": dict(arguments)})
        if name not in self.operations:
            hint = self._instead_of(name)
            return self._invalid(f"There is no operation {name!r}.{hint}")
        kind: ActionKind = name  # type: ignore[assignment]  # it is one of `operations`, all ActionKinds
        aliases = _ALIASES[name]
        clean: dict[str, Any] = {}
        for key, value in arguments.items():
            clean.setdefault(key if key in _KEYS[name] else aliases.get(key, key), value)
        extra = [key for key in clean if key not in _KEYS[name]]
        missing = [key for key in _NEEDED[name] if key not in clean]
        if missing or extra:
            takes = ", ".join(k if k in _NEEDED[name] else f"{k} (optional)" for k in _KEYS[name])
            wrong = [f"is missing {', '.join(map(repr, missing))}"] if missing else []
            wrong += [f"does not take {', '.join(map(repr, extra))}"] if extra else []
            return self._invalid(f"{name} {' and '.join(wrong)}; it takes {takes}.")
        return self._typed(kind, clean)

    def _instead_of(self, name: str) -> str:
        """What to do where an operation is not offered."""
        if name == "run_code":
            return " Code is not run here: call tools one by one."
        if name in _KEYS and name != "call_tool":
            return " It is not needed here: the prompt shows every tool, or the other operations find them."
        near = closest(name, self.operations) if name not in _KEYS else None
        hint = f" Did you mean {near!r}?" if near else ""
        if "call_tool" in self.operations:
            hint += ' Tools of servers are called through call_tool with "server" and "tool".'
        return hint + (" Tools of servers are called in code, through MCPServer(...)." if self.code else "")

    def _typed(self, kind: ActionKind, given: dict[str, Any]) -> Action:
        if kind == "answer" and not isinstance(given["text"], str):
            given["text"] = json.dumps(given["text"], ensure_ascii=False)
        if kind == "load_tools" and isinstance(given["tools"], str):
            given["tools"] = [t.strip() for t in given["tools"].split(",") if t.strip()]
        if kind == "call_tool" and isinstance(given.get("arguments"), str):
            try:
                given["arguments"] = json.loads(given["arguments"] or "{}", strict=False)
            except (ValueError, RecursionError):
                return self._invalid('call_tool: "arguments" must be a JSON object.')
        if kind == "call_tool" and given.get("arguments") is None:
            given["arguments"] = {}
        wrong = _mistyped(given)
        if wrong:
            return self._invalid(f"{kind}: {wrong}.")
        return Action(kind, given)

    def _invalid(self, what: str) -> Action:
        return Action("invalid", error=f"{what} {self.expected()}")


def split_tool(name: str) -> tuple[str, str]:
    """Split "server:tool", "server.tool" or "server__tool"; the tool is "" where there is no separator."""
    for separator in (":", "__", "."):
        server, found, tool = name.partition(separator)
        if found and server and tool:
            return server, tool
    return name, ""


def _mistyped(given: Mapping[str, Any]) -> str:
    for key, value in given.items():
        if key in ("server", "tool", "code", "query", "text") and not isinstance(value, str):
            return f"{key!r} must be a string, not a JSON {_kind(value)}"
        if key == "arguments" and not isinstance(value, dict):
            return f"'arguments' must be an object, not a JSON {_kind(value)}"
        if key == "tools" and not _strings(value):
            return "'tools' must be a list of tool names"
        if key == "k" and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 50):
            return "'k' must be a whole number from 1 to 50"
    return ""


def _strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _unsendable(value: object) -> str:
    """What in a JSON value could not be sent to a server, or ""."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and (item != item or item in (float("inf"), float("-inf"))):
            return "NaN or Infinity, which JSON does not have"
        if isinstance(item, str) and not encodable(item):
            return "lone surrogates, which are no characters"
        if isinstance(item, dict):
            stack += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            stack += item
    return ""


def encodable(text: str) -> bool:
    """Whether a text is one: lone surrogates have no UTF-8 form."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _kind(value: object) -> str:
    names = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _json_error(text: str) -> str:
    try:
        json.loads(text, strict=False)
    except json.JSONDecodeError as exc:
        return f"{exc.msg} at line {exc.lineno} column {exc.colno}"
    except (ValueError, RecursionError):
        return "it is nested too deeply or holds a number that is too long"
    return "it has no call in it"

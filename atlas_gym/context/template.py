"""Chat templates: the two built in, and any jinja text, rendered in a sandbox as Hugging Face does.

A template is only ever asked for its markup: messages are rendered with a mark in the place of each
content, so no content can change what the template does. Does not know tokens.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn

from atlas_gym.errors import ContextError, unknown

BUILT_IN: Final[Mapping[str, str]] = {
    "chatml": (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    ),
    "qwen3": (
        "{% for m in messages %}"
        "{% if m.role == 'tool' %}"
        "{% if not loop.previtem or loop.previtem.role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
        "{{ '\n<tool_response>\n' + m.content + '\n</tool_response>' }}"
        "{% if not loop.nextitem or loop.nextitem.role != 'tool' %}{{ '<|im_end|>\n' }}{% endif %}"
        "{% else %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}"
        "{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
        "{% if enable_thinking is defined and not enable_thinking %}"
        "{{ '<think>\n\n</think>\n\n' }}"
        "{% endif %}"
        "{% endif %}"
    ),
}

# No clock may enter a conversation: templates that ask for the date all see this one.
_TODAY: Final = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

# The mark of a content, between blanks that no markup holds: a template that trims takes them off. It
# holds a quotation mark, so that a template that escapes contents does not pass for one that shows them.
_OPEN, _CLOSE, _BLANK = "\uf8f0", "\uf8f1", "\u2003"
_MARK: Final = re.compile(f'({_BLANK}?){_OPEN}([0-9]+)"{_CLOSE}({_BLANK}?)')


class RefusedError(Exception):
    """The template itself raised, or left a message out: it does not know this order of roles."""


class ChatTemplate:
    """One template, asked only for its markup.

    Args:
        source: `"chatml"`, `"qwen3"`, jinja text, or the path of a file of it.
        variables: What the template may name besides the messages (`bos_token`, `enable_thinking`, ...).

    Raises:
        UnknownNameError: Neither a built-in name, nor a path, nor jinja.
        ContextError: Jinja that does not parse.
    """

    def __init__(self, source: str | Path, variables: Mapping[str, Any]) -> None:
        import jinja2

        self.name, text = _find(source)
        self._variables = dict(variables)
        try:
            self._template = _environment().from_string(text)
        except jinja2.TemplateError as exc:
            raise ContextError(
                f"Chat template {self.name!r} does not parse: {exc}. Mend the template."
            ) from exc

    def markup(self, roles: Sequence[str]) -> tuple[tuple[str, ...], tuple[bool, ...]]:
        """The template's text around the contents of messages with these roles, generation prompt last.

        Returns:
            One text more than there are roles (before, between and after the contents), and for each
            role whether the template trims white space off its content.

        Raises:
            RefusedError: The template raised, or did not show every content once and in order.
            ContextError: It failed in another way.
        """
        import jinja2

        messages = [
            {"role": role, "content": f'{_BLANK}{_OPEN}{index}"{_CLOSE}{_BLANK}'}
            for index, role in enumerate(roles)
        ]
        try:
            text = self._template.render(messages=messages, add_generation_prompt=True, **self._variables)
        except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError) as exc:
            raise RefusedError(f"{exc}") from exc
        parts = _MARK.split(text)
        if [int(i) for i in parts[2::4]] != list(range(len(messages))):
            raise RefusedError("it does not show every message's content once and in order")
        trims = tuple(not (before and after) for before, after in zip(parts[1::4], parts[3::4], strict=True))
        return tuple(parts[::4]), trims


def _find(source: str | Path) -> tuple[str, str]:
    text = str(source)
    if text in BUILT_IN:
        return text, BUILT_IN[text]
    if "{" in text:
        return "jinja", text
    path = Path(source).expanduser()
    if path.is_file():
        try:
            return text, path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as exc:
            raise ContextError(f"Chat template {text!r} cannot be read: {exc}. Give a text file.") from exc
    raise unknown("chat template", text, BUILT_IN, "Or give jinja text, or the path of a file of it.")


@lru_cache(maxsize=1)
def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the assistant's text for trainers; here it is only read over."""

        tags = {"generation"}  # noqa: RUF012 - jinja's own type for it

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    def to_json(value: Any, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = _TODAY.strftime
    return environment

"""An episode on the screen: task, messages, observations cut for reading, the ledger as a bar, checks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from atlas_gym.env.episode import Episode
from atlas_gym.types import LABELS, Action, CheckResult, Label, Turn

COLOURS: Final[Mapping[Label, str]] = {
    "system": "grey62",
    "task": "magenta",
    "index": "cyan",
    "schemas": "blue",
    "results": "green",
    "code": "green3",
    "errors": "red",
    "agent": "yellow",
    "template": "grey42",
}
_LINES: Final = 12
_CHARS: Final = 1_100
_BAR: Final = 46


def show_task(console: Console, episode: Episode) -> None:
    """What the agent is asked, and what it sees of the servers."""
    settings = episode.settings
    console.print(
        Panel(
            escape(episode.task.prompt),
            title=f"task {escape(episode.task.id)}",
            title_align="left",
            border_style="magenta",
        )
    )
    console.print(
        f"exposure [bold]{settings.exposure}[/], execution [bold]{settings.execution}[/]; "
        f"visible servers: {escape(', '.join(episode.servers))}"
    )
    show_ledger(console, episode.ledger(), episode.context_used, settings.budget.context_tokens)


def show_turn(console: Console, turn: Turn, budget: int) -> None:
    """One turn: what the agent wrote, what it saw, what that cost."""
    console.rule(f"turn {turn.index}", style="grey42", align="left")
    for action in turn.actions:
        _show_action(console, action)
    if turn.observation:
        console.print(Padding(Text(cut(turn.observation), style="grey70"), (0, 0, 0, 2)))
    show_ledger(console, turn.ledger, turn.context_used, budget)


def show_end(console: Console, episode: Episode) -> None:
    """Why it ended, the answer, each check and the reward."""
    console.rule("end", style="grey42", align="left")
    if episode.answer is not None:
        console.print(f"[bold]answer[/] {escape(cut(episode.answer, lines=6))}")
    for check in episode.checks:
        console.print(f"  {_mark(check)} {escape(check.name)}{_why(check)}")
    if episode.invalid_reason:
        console.print(f"[red]The reward is invalid ({episode.invalid_reason}):[/] {escape(episode.error)}")
    console.print(
        f"[bold]reward {episode.reward:.2f}[/], ended by {episode.stop!r}, {len(episode.turns)} turns, "
        f"{episode.tool_calls} tool calls, {episode.context_used:,} tokens"
    )


def _mark(check: CheckResult) -> str:
    return "[yellow]?[/]" if check.error else "[green]\u2714[/]" if check.passed else "[red]\u2718[/]"


def _why(check: CheckResult) -> str:
    said = check.error or ("" if check.passed else check.detail)
    kind = " (must not change)" if check.gate else ""
    return kind + (f": {escape(cut(said, lines=2))}" if said else "")


def _show_action(console: Console, action: Action) -> None:
    given = action.arguments
    match action.kind:
        case "run_code":
            console.print("[yellow]agent[/] run_code")
            code = cut(str(given["code"]).strip(), lines=40, chars=3_000)
            console.print(
                Padding(Syntax(code, "python", background_color="default", word_wrap=True), (0, 0, 0, 2))
            )
        case "call_tool":
            arguments = json.dumps(given.get("arguments", {}), ensure_ascii=False)
            console.print(
                f"[yellow]agent[/] call_tool [bold]{escape(given['server'])}:{escape(given['tool'])}[/] "
                f"{escape(cut(arguments, lines=6, chars=400))}"
            )
        case "answer":
            console.print(f"[yellow]agent[/] answer {escape(cut(str(given['text']), lines=4, chars=400))}")
        case "invalid":
            console.print(f"[yellow]agent[/] [red]not understood[/] {escape(cut(action.error, lines=3))}")
        case _:
            said = ", ".join(str(v) if isinstance(v, str) else json.dumps(v) for v in given.values())
            console.print(f"[yellow]agent[/] {action.kind} {escape(cut(said, lines=3, chars=400))}")


def cut(text: str, lines: int = _LINES, chars: int = _CHARS) -> str:
    """The beginning of a text, with how much was left out for the screen."""
    kept = "\n".join(text.splitlines()[:lines])[:chars].rstrip()
    left = len(text.rstrip()) - len(kept)
    return kept if left <= 0 else f"{kept} ... ({left:,} more characters)"


def show_ledger(
    console: Console, ledger: Mapping[Label, int] | Mapping[str, int], used: int, budget: int
) -> None:
    """What the conversation is made of: tokens by label as numbers and, in colour, as blocks."""
    line = Text("  ")
    if console.color_system:
        drawn = running = 0
        for label in LABELS:
            running += ledger[label]
            upto = round(_BAR * running / used) if used else 0
            line.append("\u2588" * (upto - drawn), style=COLOURS[label])
            drawn = upto
        line.append(" ")
    line.append(f"{used:,} tokens, {used / budget:.0%} of {budget:,}", style="bold")
    line.append("\n ")
    for label in LABELS:
        if ledger[label]:
            line.append(f" {label} {ledger[label]:,}", style=COLOURS[label])
    console.print(line)

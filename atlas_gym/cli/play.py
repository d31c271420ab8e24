"""`atlas-gym play`: a person in the agent's place. Works with a terminal and with piped input."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from atlas_gym.cli.ready import make_ready
from atlas_gym.cli.screen import out
from atlas_gym.cli.transcript import show_end, show_ledger, show_task
from atlas_gym.env.atlas_env import AtlasEnv
from atlas_gym.errors import ConfigError, closest
from atlas_gym.rollout.gold import call_text
from atlas_gym.rollout.traces import append_trace
from atlas_gym.rollout.variants import variant

HELP: Final = """\
Write a message as an agent would; an empty line sends it. Prose without a call is your answer.
Shortcuts, each on a line of its own:
  :load SERVER [TOOL ...]        load_server, or load_tools with tool names
  :search WORDS                  search_tools
  :call SERVER TOOL [JSON]       call_tool
  :code PYTHON                   run one line; ":code" alone takes lines until ":end"
  :answer TEXT                   finish with this answer
  :prompt                        the whole prompt
  :task                          the task again
  :ledger                        where the tokens went
  :help                          this text
  :quit                          stop here; the trace is saved
"""

SHORTCUTS: Final = (
    ":load",
    ":search",
    ":call",
    ":code",
    ":answer",
    ":prompt",
    ":task",
    ":ledger",
    ":help",
    ":quit",
)


def run(
    *,
    task: str | None,
    suite: str,
    seed: int | None,
    name: str,
    runtime: str,
    sandbox: str,
    out: Path,
) -> None:
    """Play one episode and save its trace."""
    chosen = variant(name)
    env = AtlasEnv(
        suite=suite,
        exposure=chosen.exposure,
        execution=chosen.execution,
        runtime=runtime,
        sandbox=sandbox,
    )
    try:
        _Seat(env, out).play(task, seed)
    finally:
        env.close()


class _Seat:
    """The loop between a person's lines and the environment."""

    def __init__(self, env: AtlasEnv, file: Path) -> None:
        self._env, self._file, self._console = env, file, out()
        self._typed = sys.stdin.isatty()
        if self._typed:
            with contextlib.suppress(ImportError):
                import readline  # noqa: F401 - importing it gives input() line editing

    def play(self, task: str | None, seed: int | None) -> None:
        options = {"task_id": task} if task else None
        episode = self._env.draw(seed, options)
        missing = make_ready(self._env.world, episode.servers)
        if missing:
            raise ConfigError(
                f"Task {episode.task.id!r} needs {', '.join(missing)}, which cannot run here. Choose "
                "another: atlas-gym tasks list"
            )
        self._env.reset(seed=seed, options={"task_id": episode.task.id})
        try:
            show_task(self._console, self._env.episode)
            self._console.print("\n:help lists the shortcuts; :prompt shows what the agent is told.")
            self._rounds()
        finally:
            self._save()
        show_end(self._console, self._env.episode)
        self._console.print(f"\nThe trace was added to {self._file}", soft_wrap=True)

    def _rounds(self) -> None:
        episode = self._env.episode
        while not episode.done:
            message = self._message()
            if message is None:
                return
            observation = self._env.step(message)[0]
            if observation["result"]:
                self._console.print(Text(observation["result"]), soft_wrap=True)
            self._ledger()

    def _ledger(self) -> None:
        episode = self._env.episode
        limit = episode.settings.budget.context_tokens
        show_ledger(self._console, episode.ledger(), episode.context_used, limit)

    def _save(self) -> None:
        trajectory = self._env.episode.trajectory(policy="human")
        append_trace(self._file, trajectory)

    def _line(self, prompt: str) -> str | None:
        try:
            return input(prompt if self._typed else "")
        except EOFError:
            return None

    def _message(self) -> str | None:
        """The next message; None when the person stops."""
        lines: list[str] = []
        while True:
            line = self._line("agent> " if not lines else "   ... ")
            if line is None:
                return "\n".join(lines) if lines else None
            if not lines and line.startswith(":"):
                if line.split()[0] == ":quit":
                    return None
                message = self._shortcut(line)
                if message is not None:
                    return message
                continue
            if not line.strip():
                if lines:
                    return "\n".join(lines)
                continue
            lines.append(line)

    def _shortcut(self, line: str) -> str | None:
        """The message that a shortcut stands for; None when it only showed something."""
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        match word:
            case ":load" if rest:
                server, *tools = rest.split()
                if tools:
                    return call_text("load_tools", server=server, tools=tools)
                return call_text("load_server", server=server)
            case ":search" if rest:
                return call_text("search_tools", query=rest)
            case ":call" if len(rest.split()) >= 2:
                return self._call(rest)
            case ":code":
                return f"```python\n{rest or self._block()}\n```"
            case ":answer":
                return call_text("answer", text=rest)
            case _:
                self._show(self._console, word)
                return None

    def _call(self, rest: str) -> str | None:
        server, tool, *given = rest.split(maxsplit=2)
        try:
            arguments = json.loads(given[0]) if given else {}
        except ValueError as exc:
            self._console.print(f"[red]The arguments are not JSON:[/] {escape(str(exc))}")
            return None
        return call_text("call_tool", server=server, tool=tool, arguments=arguments)

    def _block(self) -> str:
        lines: list[str] = []
        while (line := self._line("   >>> ")) is not None and line.strip() != ":end":
            lines.append(line)
        return "\n".join(lines)

    def _show(self, console: Console, word: str) -> None:
        episode = self._env.episode
        match word:
            case ":help":
                console.print(Text(HELP))
            case ":prompt":
                console.print(Text(episode.prompt), soft_wrap=True)
            case ":task":
                console.print(Text(episode.task.prompt))
            case ":ledger":
                self._ledger()
            case _ if word in SHORTCUTS:
                console.print(f"{word} needs more; see :help")
            case _:
                near = closest(word, SHORTCUTS)
                hint = f" Did you mean {near}?" if near else ""
                console.print(f"There is no shortcut {escape(word)}.{hint} See :help")

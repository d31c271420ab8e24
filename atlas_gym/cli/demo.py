"""`atlas-gym demo`: one episode turn by turn, then the variants side by side, on real servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from atlas_gym.cli.ready import make_ready, playable
from atlas_gym.cli.screen import out, progress
from atlas_gym.cli.transcript import cut, show_end, show_task, show_turn
from atlas_gym.context.budget import Budget
from atlas_gym.env.episode import Episode
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.errors import ConfigError
from atlas_gym.rollout import compare
from atlas_gym.rollout.compare import Row
from atlas_gym.rollout.gold import gold
from atlas_gym.rollout.metrics import growth
from atlas_gym.rollout.play import play
from atlas_gym.rollout.traces import append_trace, write_traces
from atlas_gym.rollout.variants import Variant, chosen, variant
from atlas_gym.sandbox import available, choose
from atlas_gym.settings import storage
from atlas_gym.task.model import Task
from atlas_gym.types import Trajectory
from atlas_gym.viewer import growth as picture
from atlas_gym.wire.loop import portal


@dataclass(frozen=True)
class DemoOptions:
    """What the command line gave."""

    suite: str
    count: int | None
    """Tasks to choose; None plays all."""
    seed: int
    variants: Sequence[str] | None
    show: str
    out: Path
    at_once: int
    sandbox: str
    runtime: str
    replay: bool = False
    """Play the cassette in `out` instead of recording it."""

    @property
    def cassette(self) -> Path:
        """The recording."""
        return self.out / "demo.cassette"


def run(options: DemoOptions) -> None:
    """Play, print, save. Exit code 1 when a gold program did not solve its task."""
    console = out()
    variants, shown = chosen(options.variants), variant(options.show)
    sandbox = choose(options.sandbox)
    if not options.replay:
        with storage(f"Writing the traces to {options.out}"):
            options.out.mkdir(parents=True, exist_ok=True)
            options.cassette.unlink(missing_ok=True)
    world = World.shared(
        WorldConfig(
            suite=options.suite,
            runtime=options.runtime,
            cassette=str(options.cassette),
            cassette_mode="replay" if options.replay else "record",
        )
    )
    servers = "in-process servers" if options.runtime == "memory" else "real MCP servers"
    if options.replay:
        servers = f"a recording of {servers}"
    console.print(
        f"[bold]atlas-gym demo[/]: suite {world.suite.name} {world.suite.version}, {servers}, "
        "no model: the agent is each task's gold program."
    )
    console.print(_sandbox_line(sandbox, options.sandbox))
    tasks, left_out = _prepare(console, world, options)
    traces = options.out / "traces.jsonl"

    console.print("\n[bold]1. One episode, turn by turn[/] (default budget)\n")
    _watch(console, world, _clearest(tasks), shown, sandbox, options.seed)

    console.print(f"\n[bold]2. The same {len(tasks)} tasks in {len(variants)} variants[/]\n")
    budget, fit = Budget().lifted(), Budget()
    write_traces(traces, ())
    rows: list[Row] = []
    with progress("Playing", len(tasks) * len(variants)) as ticker:

        def done(played: Trajectory) -> None:
            append_trace(traces, played)
            ticker.step(f"{played.settings['exposure']}/{played.settings['execution']} {played.task_id}")

        for one in variants:
            rows.append(
                compare.play_variant(
                    world,
                    one,
                    tasks,
                    gold,
                    budget=budget,
                    fit=fit,
                    sandbox=sandbox,
                    seed=options.seed,
                    at_once=options.at_once,
                    done=done,
                )
            )
    console.print(_table(rows))
    _legend(console, fit)
    result = compare.record(
        rows, world=world, budget=budget, fit=fit, seed=options.seed, tasks=tasks, left_out=left_out
    )
    title = f"{world.suite.name}: {len(tasks)} tasks, gold policy, budget lifted"
    compare.write(options.out, rows, result, title)
    drawn = _draw(console, rows, options.out, fit, title)
    _unsolved(console, rows)
    _closing(console, options.out, drawn, tasks)
    if any(row.summary.solved < row.summary.episodes for row in rows):
        raise typer.Exit(1)


def _sandbox_line(sandbox: str, asked: str) -> str:
    if sandbox == "sealed":
        return "Code cells run in the sealed sandbox (CPython behind seccomp, Landlock and limits)."
    if sandbox == "container":
        return "Code cells run sealed, in a container of their own (no network, nothing writable)."
    if sandbox == "monty" and asked == "auto":
        return (
            f"[yellow]This kernel cannot seal an interpreter ({escape(available('sealed'))}); code cells run "
            "in monty instead, never without walls.[/]"
        )
    return f"Code cells run in the sandbox {sandbox!r}."


def _prepare(console: Console, world: World, options: DemoOptions) -> tuple[tuple[Task, ...], dict[str, str]]:
    """Choose tasks and make their servers ready; what is unavailable is said and left out."""
    if world.tape is not None and world.tape.replays_only:
        recorded = set(world.tape.tasks())
        tasks = tuple(sorted((t for t in world.suite.tasks if t.id in recorded), key=lambda t: t.id))
        if not tasks:
            raise ConfigError(
                f"{options.cassette} holds no task of suite {options.suite!r}. Record some: atlas-gym demo."
            )
        return tasks, {}
    missing = {name: why for name in world.catalog.names if (why := world.unavailable(name))}
    for name, why in missing.items():
        console.print(f"[yellow]Server {escape(name)} is unavailable:[/] {escape(why)}", soft_wrap=True)
    while True:
        can, cannot = playable(world.suite.tasks, missing)
        if not can:
            console.print("[red]No task can be played on this machine.[/] See: atlas-gym doctor")
            raise typer.Exit(1)
        count = len(can) if options.count is None else options.count
        tasks = compare.choose(can, count, options.seed)
        failed = make_ready(world, {name for task in tasks for name in task.visible})
        if not failed:
            break
        missing.update(failed)
    if cannot:
        console.print(f"[yellow]{len(cannot)} of {len(world.suite.tasks)} tasks are skipped[/] for that.")
    return tasks, {**missing, **cannot}


def _clearest(tasks: Sequence[Task]) -> Task:
    """The task that is shown: two servers if there is one, not too long."""
    return min(tasks, key=lambda t: (len(t.servers) != 2, len(t.gold), t.id))


def _watch(console: Console, world: World, task: Task, shown: Variant, sandbox: str, seed: int) -> None:
    episode = shown.episode(world, task, sandbox=sandbox, seed=seed)

    def watch(seen: Episode) -> None:
        if seen.turns:
            show_turn(console, seen.turns[-1], seen.settings.budget.context_tokens)
        else:
            show_task(console, seen)

    portal().run(play(episode, gold, watch=watch))
    show_end(console, episode)


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("variant", no_wrap=True)
    table.add_column("in the paper", style="dim")
    for name in ("solved", "turns", "tool calls", "tokens\nat reset", "tokens\nat end", "fit", "wall s"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.variant.name, row.variant.paper, *compare.cells(row))
    return table


def _legend(console: Console, fit: Budget) -> None:
    console.print(
        "\nTurns, tool calls and tokens are means per episode. The budget is lifted here, so that a solution "
        "is never cut off.\n[bold]fit[/]: episodes that stay within the default budget of "
        f"{fit.context_tokens:,} context tokens, {fit.turns} turns and {fit.tool_calls} tool calls.",
        style="dim",
    )


def _draw(console: Console, rows: Sequence[Row], folder: Path, fit: Budget, title: str) -> tuple[Path, ...]:
    if picture.missing():
        console.print(f"[yellow]No picture was drawn:[/] {escape(picture.missing())}")
        return ()
    series = {row.variant.name: [growth(t) for t in row.trajectories] for row in rows}
    return picture.draw(series, folder, budget=fit.context_tokens, title=f"Context per turn. {title}")


def _unsolved(console: Console, rows: Sequence[Row]) -> None:
    for row in rows:
        for t in row.trajectories:
            if t.reward_valid and t.reward >= 1.0:
                continue
            why = t.error or "; ".join(f"{c.name}: {c.detail}" for c in t.checks if not c.passed)
            where = f"{row.variant.name} {escape(t.task_id)} (stop {t.stop!r})"
            console.print(f"[red]not solved[/] {where}: {escape(cut(why, 3, 400))}", soft_wrap=True)


def _closing(console: Console, folder: Path, drawn: Sequence[Path], tasks: Sequence[Task]) -> None:
    console.print("\n[bold]Look at[/]")
    for path in drawn:
        console.print(f"  {path}", soft_wrap=True)
    for name, what in (
        ("table.md", "the table"),
        ("table.json", "the same with budget, versions, seed, commit and machine"),
        ("traces.jsonl", "every episode, token by token"),
        ("demo.cassette", "what the servers answered: atlas-gym demo --replay plays it without any"),
    ):
        console.print(f"  {folder / name}   [dim]{what}[/]", soft_wrap=True)
    console.print("\n[bold]Next[/]")
    console.print(f"  atlas-gym play {escape(tasks[0].id)}   [dim]take the agent's place[/]", soft_wrap=True)
    console.print("  atlas-gym demo --all   [dim]the whole suite[/]")
    console.print("  atlas-gym tasks verify   [dim]prove every task[/]")

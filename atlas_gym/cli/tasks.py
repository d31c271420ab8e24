"""`atlas-gym tasks ...`: suites as tables, and their proofs."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Sequence

from rich.markup import escape
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table

from atlas_gym import settings
from atlas_gym.cli.ready import make_ready, playable
from atlas_gym.cli.screen import err, narrow, out, progress, show_table
from atlas_gym.context.budget import Budget
from atlas_gym.env.world import World, WorldConfig
from atlas_gym.errors import unknown
from atlas_gym.rollout.predict import predict
from atlas_gym.rollout.variants import chosen
from atlas_gym.rollout.verify import FLOOR, Proof, Report, verify
from atlas_gym.sandbox import choose
from atlas_gym.task.lint import lint
from atlas_gym.task.model import Task
from atlas_gym.task.suite import load_suite


def show_list(suite_name: str, split: str | None) -> None:
    """Every task in one line."""
    suite = load_suite(suite_name)
    tasks = suite.tasks if split is None else suite.split(split).tasks
    table = Table(box=None, header_style="bold", pad_edge=False)
    console = out()
    few = narrow(console, 100)
    for column in ("task", "split", "difficulty", "servers", *(() if few else ("distractors", "checks"))):
        table.add_column(column, no_wrap=column != "servers", overflow="fold")
    for task in tasks:
        table.add_row(
            escape(task.id),
            task.split,
            task.difficulty,
            escape(", ".join(task.servers)),
            *(() if few else (str(len(task.distractors)), str(len(task.checks)))),
        )
    show_table(console, table)
    levels = Counter(task.difficulty for task in tasks)
    counts = ", ".join(f"{n} {level}" for level, n in sorted(levels.items()))
    console.print(f"\n{suite.name} {suite.version}: {len(tasks)} tasks ({counts}).")
    console.print(f"Next: atlas-gym tasks show {tasks[0].id}", style="dim")


def show_task(suite_name: str, task_id: str) -> None:
    """One task, whole."""
    task = load_suite(suite_name).get(task_id)
    console = out()
    console.print(Panel(escape(task.prompt), title=escape(task.id), title_align="left"))
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="bold")
    facts.add_column()
    facts.add_row("split, difficulty", f"{task.split}, {task.difficulty}")
    facts.add_row("servers", escape(", ".join(task.servers)))
    facts.add_row("distractors", escape(", ".join(task.distractors) or "none"))
    facts.add_row("template", escape(f"{task.template} {dict(task.params)}"))
    for check in task.checks:
        kind = "gate" if check.gate else f"weight {check.weight:g}"
        facts.add_row("check", escape(f"{check.name} ({kind})"))
    console.print(facts)
    console.print("\n[bold]Gold program[/]")
    console.print(Syntax(task.gold.strip(), "python", background_color="default", word_wrap=True))
    console.print(f"\nNext: atlas-gym play {task.id}", style="dim")


def _selected(tasks: Sequence[Task], only: Sequence[str] | None) -> tuple[Task, ...]:
    if not only:
        return tuple(tasks)
    kept = tuple(t for t in tasks if any(fnmatch.fnmatch(t.id, p) or t.id == p for p in only))
    if not kept:
        raise unknown("task", ", ".join(only), (t.id for t in tasks), "Patterns such as '*git*' work too.")
    return kept


def verify_suite(
    suite_name: str,
    *,
    only: Sequence[str] | None,
    names: Sequence[str] | None,
    fresh: bool,
    at_once: int,
    sandbox: str,
    runtime: str,
) -> int:
    """Prove tasks and print the report. Returns the exit code."""
    variants = chosen(names)
    if any(variant.execution == "code" for variant in variants):
        choose(sandbox)
    world = World.shared(WorldConfig(suite=suite_name, runtime=runtime))
    tasks = _selected(world.suite.tasks, only)
    missing = make_ready(world, {name for task in tasks for name in task.visible})
    can, cannot = playable(tasks, missing)
    file = settings.cache_dir() / "proofs" / f"{world.suite.name}.jsonl"
    if fresh:
        with settings.storage(f"Removing {file}"):
            file.unlink(missing_ok=True)
    console = out()
    with progress(f"Proving {world.suite.name}", 1) as ticker:

        def started(todo: int, reused: int) -> None:
            ticker.total(todo)
            if reused:
                err().print(f"{reused} proofs are known from {file}; --fresh plays them again.", style="dim")

        def done(proof: Proof) -> None:
            ticker.step(f"{proof.task_id} {proof.policy}")
            if not proof.passed:
                err().print(f"[red]failed[/] {_line(proof)}", soft_wrap=True)

        report = verify(
            world,
            can,
            variants=variants,
            progress=file,
            at_once=at_once,
            sandbox=sandbox,
            started=started,
            done=done,
        )
    _print_report(report, can)
    for task_id, reason in cannot.items():
        console.print(f"[yellow]not proved[/] {escape(task_id)}: {escape(reason)}", soft_wrap=True)
    if not can:
        console.print("Nothing could be proved. See: atlas-gym doctor")
    return 1 if report.failures or not can else 0


def _line(proof: Proof) -> str:
    return escape(f"{proof.task_id} {proof.policy} {proof.variant}: {proof.detail}")


def _print_report(report: Report, tasks: Sequence[Task]) -> None:
    console = out()
    gold = Counter(p.variant for p in report.proofs if p.policy == "gold" and p.passed)
    table = Table(title="Gold programs, budget lifted", title_justify="left", box=None, header_style="bold")
    for column in ("variant", "solved", "fit the default budget"):
        table.add_column(column, justify="left" if column == "variant" else "right")
    for name, (fit, total) in report.fitting().items():
        table.add_row(name, f"{gold[name]}/{total}", f"{fit}/{total}")
    console.print(table)
    for name, highest in report.floors().items():
        console.print(f"floor {name}: highest reward {highest:.2f} (allowed {FLOOR})")
    for proof in report.failures:
        console.print(f"[red]failed[/] {_line(proof)}", soft_wrap=True)
    if report.proofs and not report.failures:
        console.print(f"[green]All {len(report.proofs)} proofs of {len(tasks)} tasks hold.[/]")


def _tool_names(world: World, tasks: Sequence[Task]) -> dict[str, set[str]]:
    """Server -> the names that its tools can be called by."""
    toolset = world.toolset(sorted({name for task in tasks for name in task.visible}))
    return {
        name: {known for tool in server.tools for known in (tool.name, tool.python_name)}
        for name, server in toolset.servers.items()
    }


def lint_suite(suite_name: str, runtime: str) -> int:
    """Print mistakes and what cannot fit. Returns the exit code."""
    world = World.shared(WorldConfig(suite=suite_name, runtime=runtime))
    console = out()
    tasks = world.suite.tasks
    missing = make_ready(world, {name for task in tasks for name in task.visible})
    can, cannot = playable(tasks, missing)
    problems = [*lint(can, tools=_tool_names(world, can)), *lint(t for t in tasks if t.id in cannot)]
    for problem in problems:
        console.print(f"[red]mistake[/] {escape(str(problem))}", soft_wrap=True)
    budget = Budget()
    misses: dict[str, list[str]] = {}
    with progress("Predicting context", len(can)) as ticker:
        for task in can:
            for prediction in predict(world, task):
                reason = prediction.misses(budget)
                if reason:
                    misses.setdefault(prediction.variant.name, []).append(f"{task.id}: {reason}")
            ticker.step()
    for name, lines in misses.items():
        console.print(
            f"[yellow]{name}[/]: {len(lines)} of {len(can)} tasks cannot fit {budget.context_tokens:,}"
        )
        for line in lines:
            console.print(f"  {escape(line)}", soft_wrap=True)
    for task_id, reason in cannot.items():
        console.print(f"[yellow]not predicted[/] {escape(task_id)}: {escape(reason)}", soft_wrap=True)
    if not problems:
        fit = "every variant may fit" if not misses else "see above for what cannot fit"
        console.print(f"{world.suite.name}: {len(tasks)} tasks, no mistakes; {fit} the default budget.")
    return 1 if problems else 0

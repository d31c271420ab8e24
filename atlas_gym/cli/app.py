"""The commands and their options. Each imports its work when it runs, so that `--help` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from atlas_gym.cli import cassette, servers
from atlas_gym.errors import AtlasError

MISUSE = 2
"""Exit code of every error that atlas-gym explains."""

INTERRUPTED = 130


class _Commands(TyperGroup):
    """Turns errors into one clean message and an exit code; `--debug` shows the traceback too."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except AtlasError as exc:
            from atlas_gym.cli.screen import err, show_error

            if ctx.params.get("debug"):
                err().print_exception(show_locals=False)
            show_error(str(exc))
            raise typer.Exit(MISUSE) from None
        except KeyboardInterrupt:
            from atlas_gym.cli.screen import err

            err().print("\nInterrupted. Everything that was started is closed.")
            raise typer.Exit(INTERRUPTED) from None


app = typer.Typer(
    name="atlas-gym",
    cls=_Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Real MCP servers as a Gymnasium environment for language-model agents.

    [bold]Start here[/]

      atlas-gym demo               watch an episode, then compare the variants
      atlas-gym play               take the agent's place yourself
      atlas-gym doctor             what this machine can do
    """,
)
app.add_typer(servers.app, name="servers")
app.add_typer(cassette.app, name="cassette")
tasks_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="List, show, prove and lint tasks."
)
app.add_typer(tasks_app, name="tasks")


def _version(shown: bool) -> None:
    if shown:
        from importlib.metadata import version

        typer.echo(f"atlas-gym {version('atlas-gym')}")
        raise typer.Exit


@app.callback()
def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del debug, version  # read by `_Commands` and `_version`


Suite = Annotated[str, typer.Option(help="A shipped suite, or the path of a suite's folder.")]
Runtime = Annotated[str, typer.Option(help="Where servers live: process, container or memory.")]
Sandbox = Annotated[
    str, typer.Option(help="Where code runs: auto, sealed, container, monty or local (trusted code only).")
]
AtOnce = Annotated[int, typer.Option("--jobs", "-j", min=1, max=64, help="Episodes at the same time.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--variant", help="Only this variant, such as tools/code. Repeat for several."),
]


@app.command()
def demo(
    *,
    suite: Suite = "core",
    all_tasks: Annotated[bool, typer.Option("--all", help="The whole suite instead of a choice.")] = False,
    count: Annotated[int, typer.Option("--tasks", min=1, help="How many tasks to choose.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Decides which tasks are chosen.")] = 0,
    names: Names = None,
    show: Annotated[str, typer.Option(help="The variant of the episode that is shown.")] = "tools/json",
    out: Annotated[Path, typer.Option(help="Folder for traces, table and picture.")] = Path("out/demo"),
    at_once: AtOnce = 2,
    sandbox: Sandbox = "auto",
    runtime: Runtime = "process",
    replay: Annotated[
        bool,
        typer.Option("--replay", help="Play what an earlier demo recorded in --out: no server is needed."),
    ] = False,
) -> None:
    """Show one episode turn by turn, then what each of the eight variants costs.

    A scripted agent that knows a solution (the gold program) plays real MCP servers in every exposure and
    execution. No key, Docker or GPU is needed; servers are installed at first use.

    [bold]Examples[/]

      atlas-gym demo
      atlas-gym demo --all --out out/all
      atlas-gym demo --replay
      atlas-gym demo --tasks 3 --variant tools/json --variant tools/code
    """
    from atlas_gym.cli.demo import DemoOptions, run

    run(
        DemoOptions(
            suite=suite,
            count=None if all_tasks else count,
            seed=seed,
            variants=names,
            show=show,
            out=out,
            at_once=at_once,
            sandbox=sandbox,
            runtime=runtime,
            replay=replay,
        )
    )


@app.command()
def play(
    task: Annotated[str | None, typer.Argument(help="A task id; without it the seed chooses.")] = None,
    *,
    suite: Suite = "core",
    seed: Annotated[int | None, typer.Option(min=0, help="Chooses the task.")] = None,
    name: Annotated[str, typer.Option("--variant", help="Exposure/execution.")] = "tools/json",
    runtime: Runtime = "process",
    sandbox: Sandbox = "auto",
    out: Annotated[Path, typer.Option(help="The trace file; the episode is added to it.")] = Path(
        "out/play.jsonl"
    ),
) -> None:
    r"""Take the agent's place in a terminal. `:help` inside lists the shortcuts.

    [bold]Examples[/]

      atlas-gym play
      atlas-gym play --variant tools/code --seed 3
      printf ':load mcp-server-git\n:quit\n' | atlas-gym play
    """
    from atlas_gym.cli.play import run

    run(task=task, suite=suite, seed=seed, name=name, runtime=runtime, sandbox=sandbox, out=out)


@app.command()
def doctor() -> None:
    """Say what this machine can do, what is missing, and what to do about it.

    Exit code 1 when something essential is missing.
    """
    from atlas_gym.cli.doctor import run

    raise typer.Exit(run())


@app.command()
def gc() -> None:
    """Remove the processes and directories that killed runs left behind."""
    from atlas_gym.cli.doctor import collect

    collect()


@tasks_app.command("list")
def tasks_list(
    suite: Annotated[str, typer.Argument(help="A shipped suite, or the path of a suite's folder.")] = "core",
    split: Annotated[str | None, typer.Option(help="Only train, test or unseen.")] = None,
) -> None:
    """List a suite's tasks.

    [bold]Example[/]

      atlas-gym tasks list core --split test
    """
    from atlas_gym.cli.tasks import show_list

    show_list(suite, split)


@tasks_app.command("show")
def tasks_show(
    task: Annotated[str, typer.Argument(help="A task id, as `tasks list` shows it.")],
    suite: Suite = "core",
) -> None:
    """Show one task: prompt, servers, checks and gold program."""
    from atlas_gym.cli.tasks import show_task

    show_task(suite, task)


@tasks_app.command("verify")
def tasks_verify(
    suite: Annotated[str, typer.Argument(help="A shipped suite, or the path of a suite's folder.")] = "core",
    *,
    only: Annotated[
        list[str] | None, typer.Option("--task", help="Only ids that match, such as '*git*'. Repeatable.")
    ] = None,
    names: Names = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Prove again what was proved.")] = False,
    at_once: AtOnce = 2,
    sandbox: Sandbox = "auto",
    runtime: Runtime = "process",
) -> None:
    """Prove every task on the real servers: gold earns 1.0 in every variant, floors at most 0.2.

    A stopped proof goes on where it was. Exit code 1 when a proof fails.

    [bold]Examples[/]

      atlas-gym tasks verify core
      atlas-gym tasks verify core --task '*git*' --variant tools/code --fresh
    """
    from atlas_gym.cli.tasks import verify_suite

    raise typer.Exit(
        verify_suite(
            suite, only=only, names=names, fresh=fresh, at_once=at_once, sandbox=sandbox, runtime=runtime
        )
    )


@tasks_app.command("lint")
def tasks_lint(
    suite: Annotated[str, typer.Argument(help="A shipped suite, or the path of a suite's folder.")] = "core",
    runtime: Runtime = "process",
) -> None:
    """Find mistakes in a suite, and predict what cannot fit the default budget. Exit code 1 on mistakes."""
    from atlas_gym.cli.tasks import lint_suite

    raise typer.Exit(lint_suite(suite, runtime))

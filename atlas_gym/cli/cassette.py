"""`atlas-gym cassette ...`: look into a recording. Prints; reading is done in `wire.cassette`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Look at cassettes: recorded episodes that play without any server.

    [bold]Examples[/]

      atlas-gym cassette show out/demo/demo.cassette
    """,
)


@app.command()
def show(
    file: Annotated[Path, typer.Argument(help="The cassette.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
) -> None:
    """Show what a cassette holds: servers, tasks, recorded episodes and calls, and its size.

    [bold]Examples[/]

      atlas-gym cassette show out/demo/demo.cassette
      atlas-gym cassette show out/demo/demo.cassette --json | jq .tasks
    """
    from dataclasses import asdict

    from atlas_gym.cli.screen import out, show_table
    from atlas_gym.wire.cassette import Cassette

    cassette = Cassette.open(file)
    servers, tasks = cassette.servers(), cassette.contents()
    about = {
        "file": str(cassette.path),
        "digest": cassette.digest(),
        "bytes": cassette.path.stat().st_size,
        "servers": [{"name": s.name, "package": s.version, "tools": len(s.tools)} for s in servers],
        "tasks": [asdict(row) for row in tasks],
    }
    if as_json:
        typer.echo(json.dumps(about, indent=2))
        return
    console = out()
    console.print(f"[bold]{escape(str(cassette.path))}[/]", soft_wrap=True)
    console.print(
        f"{cassette.path.stat().st_size / 1e6:.1f} MB, digest {cassette.digest()}, {len(servers)} servers, "
        f"{len(tasks)} tasks, {sum(row.takes for row in tasks)} episodes, "
        f"{sum(row.calls for row in tasks)} calls\n"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("server", no_wrap=True)
    table.add_column("package")
    table.add_column("tools", justify="right")
    for server in servers:
        table.add_row(server.name, server.version, str(len(server.tools)))
    show_table(console, table)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task", no_wrap=True)
    for name in ("episodes", "to their end", "calls"):
        table.add_column(name, justify="right")
    for row in tasks:
        table.add_row(row.task, str(row.takes), str(row.whole), str(row.calls))
    console.print()
    show_table(console, table)
    console.print(f"\nPlay it: gym.make('Atlas-MCP-v0', cassette={str(cassette.path)!r})", soft_wrap=True)

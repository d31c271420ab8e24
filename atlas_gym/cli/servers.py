"""`atlas-gym servers ...`: what there is, install it, compare it with its lock, write the lock.

Prints; the work is done in `env.fleet` and `env.locking`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from atlas_gym.cli.stats import stats

if TYPE_CHECKING:
    from atlas_gym.errors import AtlasError
    from atlas_gym.runtime.catalog import Server

FAILED = 1
"""Exit code when some of the servers failed and the others are done."""

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""List, install, check and lock MCP servers; build images of them.

    [bold]Examples[/]

      atlas-gym servers list
      atlas-gym servers install --all
      atlas-gym servers check mcp-server-git
      atlas-gym servers build --all
      atlas-gym servers stats
    """,
)

McpJson = Annotated[
    Path | None, typer.Option("--mcp-json", help="Your own mcp.json: its servers count as well.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Names = Annotated[list[str] | None, typer.Argument(help="Names of servers, as in 'servers list'.")]
All = Annotated[bool, typer.Option("--all", help="Every server that can run on this machine.")]


@app.command("list")
def list_servers(mcp_json: McpJson = None, as_json: AsJson = False) -> None:
    """Show every server: package, tools, whether it is installed, and why one cannot run here.

    [bold]Examples[/]

      atlas-gym servers list
      atlas-gym servers list --json | jq '.[].name'
      atlas-gym servers list --mcp-json ~/mcp.json
    """
    from atlas_gym.cli.screen import narrow, out, show_table
    from atlas_gym.runtime.catalog import Catalog

    rows = [described(server) for server in Catalog.load(mcp_json=mcp_json)]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    console = out()
    few = narrow(console, 90)
    table = Table(box=None, pad_edge=False)
    widest = max((len(row["name"]) for row in rows), default=0)
    for column, width in (
        ("server", widest),
        ("tools", 5),
        ("status", 13),
        *(() if few else (("state", 9),)),
    ):
        table.add_column(
            column, min_width=width, no_wrap=True, justify="right" if column == "tools" else "left"
        )
    if not few:
        table.add_column("what it does", no_wrap=True, overflow="ellipsis")
    for row in rows:
        colour = {"installed": "green", "unavailable": "red"}.get(row["status"], "yellow")
        table.add_row(
            escape(row["name"]),
            "?" if row["tools"] is None else str(row["tools"]),
            f"[{colour}]{row['status']}[/]",
            *(() if few else (row["state"], escape(row["description"]))),
        )
    show_table(console, table)
    for row in rows:
        if row["reason"]:
            out().print(f"\n[red]{escape(row['name'])}[/]: {escape(row['reason'])}", soft_wrap=True)
    if any(row["status"] == "not installed" for row in rows):
        out().print("\nInstall what is missing: [bold]atlas-gym servers install --all[/]")


@app.command()
def install(
    names: Names = None, every: All = False, mcp_json: McpJson = None, as_json: AsJson = False
) -> None:
    """Install servers, each in its own environment in the cache, and read their tools.

    What is installed already is left alone, and needs no network. Python servers are installed by uv, Node
    ones by npm, both from locks with hashes; no install script runs. Set ATLAS_CACHE to choose another place.

    [bold]Examples[/]

      atlas-gym servers install --all
      atlas-gym servers install mcp-server-git server-filesystem
    """
    from atlas_gym.cli.screen import progress
    from atlas_gym.env import fleet

    chosen, out_of_reach = _chosen(names, every, mcp_json)
    with progress("Installing servers", len(chosen)) as ticker:
        results = fleet.each(
            chosen,
            lambda server: len(fleet.prepare(server, ticker.say).raw_tools),
            finished=lambda server, _result: ticker.step(f"{server.name} is done"),
        )
    _report("installed", results, out_of_reach, as_json)


@app.command()
def check(names: Names = None, every: All = False, mcp_json: McpJson = None, as_json: AsJson = False) -> None:
    """Start servers afresh and compare their tools with their locks.

    Exit code 1 if any differs or does not start; the difference is named.

    [bold]Examples[/]

      atlas-gym servers check --all
      atlas-gym servers check excel-mcp-server
    """
    from atlas_gym.cli.screen import progress
    from atlas_gym.env import fleet

    chosen, out_of_reach = _chosen(names, every, mcp_json)
    with progress("Checking servers", len(chosen)) as ticker:
        results = fleet.each(
            chosen,
            lambda server: fleet.check(server, ticker.say),
            finished=lambda server, _result: ticker.step(f"{server.name} is done"),
        )
    _report("as locked", results, out_of_reach, as_json)


@app.command()
def lock(
    name: Annotated[str, typer.Argument(help="A shipped server, or the path of a server's folder.")],
    upgrade: Annotated[
        bool, typer.Option("--upgrade", help="Let its dependencies move to newer versions.")
    ] = False,
    tools_only: Annotated[
        bool, typer.Option("--tools-only", help="Leave the dependency lock as it is.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a server's locks: its dependencies with hashes, and a digest of each of its tools.

    Runs the calls of its examples.toml on two fresh servers: what comes back gives the shapes of results,
    and a tool that answers differently is shown, so that its manifest can say so.

    [bold]Examples[/]

      atlas-gym servers lock mcp-server-git
      atlas-gym servers lock mcp-server-git --upgrade
      atlas-gym servers lock servers/my-server --tools-only
    """
    from dataclasses import asdict

    from atlas_gym.cli.screen import out, progress
    from atlas_gym.env.locking import write_lock
    from atlas_gym.runtime.catalog import Catalog, Server
    from atlas_gym.runtime.manifest import load_manifest

    folder = Path(name)
    if (folder / "server.toml").is_file():
        server = Server(load_manifest(folder / "server.toml"), folder.resolve())
    else:
        server = Catalog.load().get(name)
    with progress(f"Locking {server.name}", 1) as ticker:
        written = write_lock(server, ticker.say, upgrade=upgrade, dependencies=not tools_only)
        ticker.step()
    if as_json:
        typer.echo(json.dumps(asdict(written), indent=2))
        return
    moved = "changed" if written.dependencies_changed else "unchanged"
    out().print(
        f"[green]{server.name}[/]: {written.tools} tools locked, results of {written.shapes} observed; "
        f"dependencies {moved}."
    )
    for tool, said in written.failed:
        out().print(f"[yellow]Example call {escape(tool)} failed:[/] {escape(said[:300])}", soft_wrap=True)
    if written.restless:
        out().print(
            f"[yellow]Answered differently on two fresh servers:[/] {', '.join(written.restless)}. "
            "If that is their nature, add them to 'nondeterministic' in server.toml.",
            soft_wrap=True,
        )


@app.command()
def build(
    names: Names = None,
    every: All = False,
    base: Annotated[
        str | None, typer.Option("--base", metavar="IMAGE", help="The image that all of them start from.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Then remove our images that no lock needs any more.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Build the images that runtime 'container' starts; what is built already is left alone.

    Dependencies are put together outside, from the locks, so that a build needs no network of its own. Each
    starts from --base, else ATLAS_BASE_PYTHON or ATLAS_BASE_NODE, else what 'servers base' made, else
    python:3.11-slim or node:20-slim. A Dockerfile in a server's folder takes the place of the usual recipe.

    [bold]Examples[/]

      atlas-gym servers build --all
      atlas-gym servers build mcp-server-git --base python:3.12-slim
      atlas-gym servers build --all --prune
    """
    from atlas_gym.cli import images

    images.build(names, every=every, base=base, prune=prune, as_json=as_json)


@app.command()
def base(
    source: Annotated[
        str,
        typer.Option(
            "--from", help="interpreter: copy this machine's Python. debootstrap: a minimal Debian, as root."
        ),
    ] = "interpreter",
    programs: Annotated[
        list[str] | None,
        typer.Option(
            "--program", help="What is in it beside Python and a shell. Repeat. Default: node, git."
        ),
    ] = None,
    python: Annotated[
        str, typer.Option("--python", metavar="PATH", help="The interpreter to copy; default: this one.")
    ] = "",
    tag: Annotated[str, typer.Option("--tag", help="One more name for the image.")] = "",
    suite: Annotated[str, typer.Option("--suite", help="debootstrap: name of the Debian release.")] = "",
    mirror: Annotated[str, typer.Option("--mirror", help="debootstrap: address of a Debian mirror.")] = "",
) -> None:
    """Make a base image without any registry, for closed networks. 'servers build' uses it from then on.

    From the interpreter: this machine's Python, the programs, a shell and the libraries that they need, about
    200 MB in a few seconds. From debootstrap: Debian's packages, in minutes; needs a mirror, debootstrap or
    mmdebstrap, and root.

    [bold]Examples[/]

      atlas-gym servers base
      atlas-gym servers base --program git --tag my-python
      atlas-gym servers base --from debootstrap --suite bookworm
    """
    from atlas_gym.cli import images

    images.base(source, programs, python=python, tag=tag, suite=suite, mirror=mirror)


def _chosen(
    names: Sequence[str] | None, every: bool, mcp_json: Path | None
) -> tuple[list[Server], dict[str, str]]:
    """The servers that are meant, and with --all those that cannot run here with the reason."""
    from atlas_gym.errors import ConfigError
    from atlas_gym.runtime.catalog import Catalog
    from atlas_gym.runtime.install import unavailable

    catalog = Catalog.load(mcp_json=mcp_json)
    if every:
        reasons = {server.name: unavailable(server) for server in catalog}
        return [s for s in catalog if not reasons[s.name]], {n: why for n, why in reasons.items() if why}
    if not names:
        raise ConfigError("No server is named. Name one or more, or pass --all. See: atlas-gym servers list.")
    return [catalog.get(name) for name in dict.fromkeys(names)], {}


app.command()(stats)


def described(server: Server) -> dict[str, Any]:
    """One row of `servers list`, as JSON values."""
    from atlas_gym.env.fleet import read_lock
    from atlas_gym.errors import AtlasError
    from atlas_gym.runtime.install import installed, unavailable
    from atlas_gym.toolspace.texts import load_texts

    manifest = server.manifest
    reason, tools, status = unavailable(server), None, "not installed"
    try:
        found = None if manifest.url else installed(server)
        locked = read_lock(server)
        texts = load_texts(found) if found else None
        counted = locked.tools if locked else texts.tools if texts else None
        tools = None if counted is None else len(counted)
        if reason:
            status = "unavailable"
        elif manifest.url:
            status = "runs elsewhere"
        elif found is not None and texts is not None:
            status = "installed"
        elif found is not None and locked is None:
            status = "not asked yet"
    except AtlasError as exc:
        # One server's corrupt lock must not hide the others.
        reason, status = str(exc), "unavailable"
    return {
        "name": server.name,
        "description": manifest.description,
        "package": manifest.requirement if manifest.package else "(yours)",
        "language": manifest.language,
        "licence": manifest.licence,
        "tools": tools,
        "state": "?" if manifest.registry == "user" else manifest.state,
        "nondeterministic": list(manifest.nondeterministic),
        "status": status,
        "reason": reason,
    }


def _report(
    done: str, results: dict[str, int | AtlasError], out_of_reach: dict[str, str], as_json: bool
) -> None:
    from atlas_gym.cli.screen import out

    good = {name: result for name, result in results.items() if isinstance(result, int)}
    bad = {name: str(result) for name, result in results.items() if not isinstance(result, int)}
    if as_json:
        typer.echo(json.dumps({"done": good, "failed": bad, "unavailable": out_of_reach}, indent=2))
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for name, tools in good.items():
            table.add_row(name, f"[green]{done}[/], {tools} tools")
        for name, why in out_of_reach.items():
            table.add_row(name, f"[yellow]unavailable:[/] {escape(why)}")
        out().print(table)
        for name, why in bad.items():  # not in the table, whose cells would break the command to try
            out().print(f"[red]{escape(name)} failed:[/] {escape(why)}", soft_wrap=True)
    if bad:
        raise typer.Exit(FAILED)

"""`atlas-gym servers stats`: what the servers of running processes, or of the last one, have cost.

Prints; the numbers are collected by `runtime.pool` and kept by `runtime.stats`.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from atlas_gym.runtime.stats import Report

_MIB: Final = 1 << 20
_NARROW: Final = 100
_BREAKERS: Final = {
    "closed": "[green]works[/]",
    "half-open": "[yellow]on trial[/]",
    "open": "[red]refused[/]",
}


def stats(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every second, until Ctrl-C.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Every run that is still known, not only the last one.")
    ] = False,
) -> None:
    """Show what servers cost: starts, waiting, failures, memory; of running processes, else of the last run.

    A [bold]start[/] is counted when the server has answered its first question; how long that took does not
    include waiting for a turn. [bold]fail[/] counts starts that came to nothing (of these, [bold]late[/] did
    not answer in time), [bold]crash[/] servers that ended by themselves later, [bold]refused[/] starts that
    were not tried: after repeated failures a server is left alone for a while, and a start that finds no
    memory waits, then gives up. [bold]spare[/] counts servers that an episode found ready.

    [bold]Examples[/]

      atlas-gym servers stats
      atlas-gym servers stats --watch
      atlas-gym servers stats --json | jq '.[0].pools[].servers | keys'
    """
    from rich.console import Group
    from rich.live import Live

    from atlas_gym.cli.screen import narrow, out, show_table

    if as_json:
        typer.echo(json.dumps([report.to_json() for report in chosen(every)], indent=2))
        return
    console = out()
    few = narrow(console, _NARROW)
    if not watch or not console.is_terminal:
        for part in described(chosen(every), few=few):
            if isinstance(part, Table):
                show_table(console, part)
            else:
                console.print(part, soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(Group(*described(chosen(every), few=few)), refresh=True)
            time.sleep(1.0)  # --watch: until Ctrl-C, as its help says


def chosen(every: bool = False) -> list[Report]:
    """Processes that live; where none does, the last one that did; with `every` all that are known."""
    from atlas_gym.runtime.stats import reports

    known = reports()
    living = [report for report in known if report.verdict != "dead"]
    return known if every else living or known[:1]


def described(reports: Sequence[Report], *, few: bool = False) -> Iterator[RenderableType]:
    """Everything to print, in order.

    Args:
        reports: Processes.
        few: Whether to leave out what is not essential.
    """
    if not reports:
        yield Text.from_markup(
            "No run has left statistics here. They are written while an environment plays: "
            "[bold]atlas-gym demo[/]"
        )
    for report in reports:
        state = {"alive": "running", "dead": "ended", "unknown": f"on {escape(report.owner.node)}"}
        ago = max(0.0, time.time() - report.written)
        yield Text.from_markup(
            f"[bold]Process {report.owner.pid}[/] ({state[report.verdict]}, last written {_span(ago)} ago)"
        )
        for pool in report.pools:
            yield from _pool(pool, few)


def _pool(pool: Mapping[str, Any], few: bool) -> Iterator[RenderableType]:
    memory, ceiling, spares = _number(pool, "memory"), _number(pool, "ceiling"), pool.get("spares") or {}
    facts = [f"{_number(pool, 'leases'):.0f} servers in episodes"]
    if ceiling:
        facts.append(f"{_mib(memory)} of {_mib(ceiling)} MiB")
    warmed = pool.get("warmed") or {}
    if warmed:
        facts.append(f"{sum(warmed.values())} warmed parents")
    if spares.get("hit_rate") is not None:
        facts.append(f"spares found {spares['hits']} of {spares['hits'] + spares['misses']} times")
    yield Text.from_markup(f"runtime {escape(str(pool.get('runtime')))}: {', '.join(facts)}")
    for what, count in (spares.get("ready") or {}).items():
        yield Text.from_markup(f"  {count} spare ready for {escape(str(what))}", style="dim")
    servers: Mapping[str, Mapping[str, Any]] = pool.get("servers") or {}
    if not servers:
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("server", no_wrap=True)
    for column in ("state", "live", "starts", "p50 s", "p95 s", "fail", "late", "crash", "refused", "MiB"):
        table.add_column(column, justify="left" if column == "state" else "right", no_wrap=True)
    if not few:
        for column in ("peak", "wait p95 s", "largest MiB", "how"):
            table.add_column(column, justify="left" if column == "how" else "right", no_wrap=True)
    for name, one in servers.items():
        table.add_row(escape(name), *_row(one, few))
    yield table
    for name, one in servers.items():
        if one.get("breaker") != "closed" and one.get("reason"):
            yield Text.from_markup(f"[red]{escape(name)}[/]: {escape(str(one['reason']))}")


def _row(one: Mapping[str, Any], few: bool) -> Iterator[str]:
    starts: Mapping[str, int] = one.get("starts") or {}
    took = one.get("start_seconds") or {}
    yield _BREAKERS.get(str(one.get("breaker")), "?")
    yield f"{_number(one, 'live'):.0f}"
    yield str(sum(count for how, count in starts.items() if how != "spare"))
    yield _seconds(took.get("p50"))
    yield _seconds(took.get("p95"))
    for name in ("failures", "timeouts", "crashes", "refused"):
        count = _number(one, name)
        yield f"[yellow]{count:.0f}[/]" if count else "0"
    yield _mib(_number(one, "resident"))
    if not few:
        yield f"{_number(one, 'peak'):.0f}"
        yield _seconds((one.get("wait_seconds") or {}).get("p95"))
        yield _mib(_number(one, "largest"))
        yield escape(", ".join(f"{count} {how}" for how, count in starts.items()))


def _number(values: Mapping[str, Any], name: str) -> float:
    value = values.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _mib(size: float) -> str:
    return f"{size / _MIB:.0f}"


def _seconds(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "-"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"

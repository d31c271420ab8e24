"""What `atlas-gym servers build` and `atlas-gym servers base` print and do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import typer
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from atlas_gym.runtime.catalog import Server

FAILED = 1
"""Exit code when some of the images failed and the others are there."""


def build(names: Sequence[str] | None, *, every: bool, base: str | None, prune: bool, as_json: bool) -> None:
    """Build images and show their names, sizes and seconds.

    Raises:
        ConfigError: Nothing is named.
        StartError: No engine answers.
    """
    from atlas_gym.cli.screen import out, progress, show_table
    from atlas_gym.env import fleet
    from atlas_gym.errors import AtlasError, ConfigError
    from atlas_gym.runtime import engine, image
    from atlas_gym.runtime.catalog import Catalog

    catalog = Catalog.load()
    if not (names or every or prune):
        raise ConfigError("No server is named. Name one or more, or pass --all. See: atlas-gym servers list.")
    chosen = list(catalog) if every else [catalog.get(name) for name in dict.fromkeys(names or ())]
    engine.client()
    results: dict[str, Any] = {}
    if chosen:
        with progress("Building images", len(chosen)) as ticker:
            results = fleet.each(
                chosen,
                lambda server: _built(server, base, ticker.say),
                finished=lambda server, _result: ticker.step(f"{server.name} is done"),
            )
    good = {name: row for name, row in results.items() if not isinstance(row, AtlasError)}
    bad = {name: str(row) for name, row in results.items() if isinstance(row, AtlasError)}
    pruned = image.prune(catalog, base=base) if prune else image.Pruned()
    if as_json:
        typer.echo(
            json.dumps(
                {"done": good, "failed": bad, "removed": pruned.images, "kept": dict(pruned.kept)}, indent=2
            )
        )
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for name, row in good.items():
            made = f"{row['seconds']:.1f} s" if row["built"] else "was there"
            table.add_row(
                escape(name), escape(row["image"]), f"{row['megabytes']:.0f} MB", f"[green]{made}[/]"
            )
        show_table(out(), table)
        for name, why in bad.items():
            out().print(f"[red]{escape(name)} failed:[/] {escape(why)}", soft_wrap=True)
        if prune:
            out().print(f"Removed {len(pruned.images)} images.")
        for name, why in pruned.kept:
            out().print(f"[yellow]Kept {escape(name)}:[/] {escape(why)}", soft_wrap=True)
    if bad:
        raise typer.Exit(FAILED)


def _built(server: Server, base: str | None, say: Any) -> dict[str, Any]:
    import time

    from atlas_gym.runtime import base_image, image

    told: list[float] = []

    def tell(message: str) -> None:
        told.append(time.perf_counter())
        say(message)

    tag = image.ensure(server, base=base, say=tell)
    about = base_image.find(tag) or {}
    return {
        "image": tag,
        "megabytes": round(about.get("Size", 0) / 1e6, 1),
        "built": bool(told),
        "seconds": round(time.perf_counter() - told[0], 2) if told else 0.0,
    }


def base(
    source: str, programs: Sequence[str] | None, *, python: str, tag: str, suite: str, mirror: str
) -> None:
    """Make a base image, use it from now on, and say how to use another.

    Raises:
        ConfigError: `source` is neither way of making one.
        InstallError: It cannot be made here.
        StartError: No engine answers.
    """
    from atlas_gym.cli.screen import out, progress
    from atlas_gym.errors import unknown
    from atlas_gym.runtime import base_image

    ways = get_args(base_image.Source)
    if source not in ways:
        raise unknown("way of making a base", source, ways)
    with progress("Making a base image", 1) as ticker:
        made = base_image.make(
            "debootstrap" if source == "debootstrap" else "interpreter",
            programs=base_image.PROGRAMS if programs is None else tuple(dict.fromkeys(programs)),
            python=python,
            tag=tag,
            as_default=True,
            suite=suite,
            mirror=mirror,
            say=ticker.say,
        )
        ticker.step()
    about = base_image.find(made) or {}
    out().print(f"[green]{escape(made)}[/], {about.get('Size', 0) / 1e6:.0f} MB.")
    out().print(
        f"'atlas-gym servers build' starts from it now (it is {base_image.DEFAULT}). For another, set "
        "ATLAS_BASE_PYTHON or ATLAS_BASE_NODE, or pass --base.",
        soft_wrap=True,
    )

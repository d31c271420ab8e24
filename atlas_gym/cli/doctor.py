"""`atlas-gym doctor` and `atlas-gym gc`: what this machine can do, and cleaning up after killed runs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from rich.markup import escape

from atlas_gym import settings
from atlas_gym.cli.screen import out
from atlas_gym.errors import AtlasError
from atlas_gym.rollout.provenance import machine, versions

State = Literal["ok", "note", "bad"]
_MARKS = {"ok": "[green]ok  [/]", "note": "[yellow]note[/]", "bad": "[red]bad [/]"}
_FREE_GB = 2.0


@dataclass(frozen=True)
class Finding:
    """One line of the report; `bad` is essential."""

    state: State
    name: str
    said: str
    next_step: str = ""


def run() -> int:
    """Print the report; 1 when something essential is missing."""
    console = out()
    found: list[Finding] = []
    for examine in (_python, _kernel, _sandboxes, _programs, _engine, _directories, _tokenizer, _servers):
        for finding in _examined(examine):
            found.append(finding)
            console.print(
                f"{_MARKS[finding.state]} [bold]{escape(finding.name)}[/]  {escape(finding.said)}",
                soft_wrap=True,
            )
    facts = machine()
    said = ", ".join(f"{k} {v}" for k, v in versions().items())
    console.print(f"\n{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB. {said}", style="dim")
    steps = [f.next_step for f in found if f.next_step]
    if steps:
        console.print("\n[bold]Next steps[/]")
        for step in dict.fromkeys(steps):
            console.print(f"  {escape(step)}", soft_wrap=True)
    bad = [f for f in found if f.state == "bad"]
    if not bad:
        console.print("\n[green]Everything that is essential is there.[/] Try: atlas-gym demo")
    return 1 if bad else 0


def _examined(examine: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """A broken installation must not stop the report that is to find it."""
    try:
        return list(examine())
    except (AtlasError, OSError, ImportError) as exc:
        name = examine.__name__.strip("_")
        return [Finding("bad", name, f"{type(exc).__name__}: {exc}", f"Mend {name}, then run doctor again.")]


def _python() -> Iterable[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("ok", "python", f"{version} at {sys.executable}")


def _kernel() -> Iterable[Finding]:
    from atlas_gym.runtime import kernel

    walls = kernel.probe()
    name = f"{os.uname().sysname} {os.uname().release} {os.uname().machine}"
    held = f"Landlock ABI {walls.landlock_abi or 'none'}, seccomp {'yes' if walls.seccomp else 'no'}"
    if walls.reason:
        step = "Servers run without some walls here; use a Linux kernel of 5.13 or newer for all of them."
        yield Finding("note", "kernel", f"{name}: {held}; {walls.reason}", step)
    else:
        yield Finding("ok", "kernel", f"{name}: {held}")


def _sandboxes() -> Iterable[Finding]:
    from atlas_gym.sandbox import available

    walled = 0
    for kind in ("sealed", "container", "monty"):
        reason = available(kind)
        walled += not reason
        yield Finding("note" if reason else "ok", f"sandbox {kind}", reason or "available")
    if not walled:
        yield Finding(
            "bad",
            "sandbox",
            "no sandbox with walls can run, so that execution 'code' is unavailable",
            'pip install "atlas-gym[monty]", or use a Linux kernel with seccomp.',
        )


def _programs() -> Iterable[Finding]:
    from atlas_gym.runtime import node, uv

    yield Finding("ok", "uv", str(uv.program()))
    reason = node.unavailable()
    found = shutil.which("node")
    said = reason or (f"node at {found}" if found else "not on PATH; it comes from PyPI at first use")
    yield Finding("note" if reason else "ok", "node", said, reason)
    git = shutil.which("git")
    step = "" if git else "apt-get install git   (for servers that work on repositories)"
    yield Finding("ok" if git else "note", "git", git or "not found; servers that need it are skipped", step)


def _engine() -> Iterable[Finding]:
    from atlas_gym.runtime import engine

    reason = engine.unavailable()
    if reason:
        yield Finding("note", "containers", f"unavailable: {reason}")
        return
    facts = engine.facts()
    said = f"an engine answers at {engine.address()}"
    lacks = facts.missing
    said += f"; no limits of {lacks}" if lacks else ""
    yield Finding("note" if lacks else "ok", "containers", said)


def _directories() -> Iterable[Finding]:
    for name, path, variable in (
        ("cache", settings.cache_dir(), "ATLAS_CACHE"),
        ("run", settings.run_dir(), "ATLAS_RUN"),
    ):
        try:
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path) as probe:
                probe.write(b"x")
            free = shutil.disk_usage(path).free / 2**30
        except OSError as exc:
            step = f"Set {variable} to a directory that you can write."
            yield Finding("bad", f"{name} directory", f"{path}: {exc.strerror or exc}", step)
            continue
        said = f"{path}, {free:.1f} GiB free"
        if free < _FREE_GB:
            step = f"Free some space, or set {variable}: servers need about {_FREE_GB:g} GiB."
            yield Finding("note", f"{name} directory", said, step)
        else:
            yield Finding("ok", f"{name} directory", said)


def _tokenizer() -> Iterable[Finding]:
    from atlas_gym.context.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(None)
    yield Finding("ok", "tokenizer", f"{tokenizer.name}, offline")


def _servers() -> Iterable[Finding]:
    from atlas_gym.runtime.catalog import Catalog
    from atlas_gym.runtime.install import installed, unavailable

    ready, later = [], []
    for server in Catalog.load():
        reason = unavailable(server)
        if reason:
            yield Finding(
                "note", f"server {server.name}", f"unavailable: {reason}", f"{server.name}: {reason}"
            )
        elif installed(server) is None:
            later.append(server.name)
        else:
            ready.append(server.name)
    if ready:
        yield Finding("ok", "servers installed", ", ".join(ready))
    if later:
        yield Finding("note", "servers not installed yet", ", ".join(later), "atlas-gym servers install")
    if not ready and not later:
        yield Finding("bad", "servers", "none can run on this machine", "See the reasons above.")


def collect() -> None:
    """Remove what killed runs left, and say what."""
    from atlas_gym.runtime import engine, gc

    out().print(str(gc.collect()), highlight=False)
    if not engine.unavailable():
        out().print(str(engine.collect()), highlight=False)

"""What every command prints with: consoles, progress, and how an error looks.

Results go to standard output, progress and errors to standard error, so that piping works.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_WIDEST = 1_000


def out() -> Console:
    """Standard output as it is now."""
    return Console(highlight=False)


def err() -> Console:
    """Standard error as it is now."""
    return Console(stderr=True, highlight=False)


def narrow(console: Console, columns: int) -> bool:
    """Whether a list must leave out what is not essential: on a terminal of less than so many columns."""
    return console.is_terminal and console.width < columns


def show_table(console: Console, table: Table) -> None:
    """A list, cut to a terminal's width; whole where it goes into a file or another program."""
    if not console.is_terminal:
        console = Console(file=console.file, width=_WIDEST, highlight=False)
        console.width = Measurement.get(console, console.options, table).maximum
    console.print(table)


def show_error(message: str) -> None:
    """One red message, without a traceback."""
    err().print(f"[bold red]Error:[/] {escape(message)}", soft_wrap=True)


class Ticker:
    """A progress bar on a terminal; plain lines where there is none, so that logs show progress too."""

    def __init__(self, title: str, total: int, bar: Progress | None) -> None:
        self._title, self._total, self._bar, self._done = title, total, bar, 0
        self._console = err()
        self._task = bar.add_task(escape(title), total=total) if bar else None

    def say(self, what: str) -> None:
        """Show what is being done now."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=escape(f"{self._title}: {what}"))
        else:
            self._console.print(f"  {escape(what)}", style="dim", soft_wrap=True)

    def step(self, what: str = "") -> None:
        """One more is done."""
        self._done += 1
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1)
            if what:
                self.say(what)
        elif self._done == self._total or self._done % max(1, self._total // 4) == 0:
            self._console.print(f"  {escape(self._title)} {self._done}/{self._total}", style="dim")

    def total(self, total: int) -> None:
        """Say how many there are, once it is known."""
        self._total = total
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=total)


@contextmanager
def progress(title: str, total: int) -> Iterator[Ticker]:
    """Progress of something that takes long; it leaves no line behind on a terminal."""
    console = err()
    if not console.is_terminal:
        console.print(f"{escape(title)} ...", style="dim")
        yield Ticker(title, total, None)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield Ticker(title, total, bar)

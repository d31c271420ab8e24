"""Context growth: tokens in the conversation after each turn, by variant (the paper's figure 1).

Owns the picture. Takes plain numbers, so that it does not know where they come from. Needs matplotlib
(extra `viewer`).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from atlas_gym.errors import ConfigError
from atlas_gym.settings import storage

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Series = Sequence[Sequence[int]]
"""Episodes of one variant: tokens at reset, then after each turn."""

_COLOURS: Final = {
    "eager": "#B5382A",
    "servers": "#C98A1B",
    "tools": "#1F6FA8",
    "search": "#3C7D4E",
}
_DASHES: Final = (0, (4, 1.5))
"""For `search`, whose line often lies on that of `tools`."""
_INK: Final = "#33373D"
_FAINT: Final = "#D9DCE1"


def missing() -> str:
    """What must be installed before a picture can be drawn; "" when it can."""
    if importlib.util.find_spec("matplotlib") is None:
        return 'matplotlib is not installed: pip install "atlas-gym[viewer]"'
    return ""


def mean_growth(episodes: Series) -> list[float]:
    """Mean tokens after each turn.

    An episode that is over keeps its last value, so that every mean is over the same episodes.
    """
    longest = max((len(e) for e in episodes), default=0)
    held = [[*e, *[e[-1]] * (longest - len(e))] for e in episodes if e]
    return [sum(column) / len(column) for column in zip(*held, strict=True)]


def draw(variants: Mapping[str, Series], folder: Path, *, budget: int, title: str) -> tuple[Path, ...]:
    """Write `context_growth.png` and `.svg`: one panel per execution, one colour per exposure.

    Args:
        variants: "exposure/execution" -> its episodes.
        folder: Where the files go; made if it is not there.
        budget: Tokens of the default context budget, drawn as a line.
        title: What was played.

    Returns:
        The files written.

    Raises:
        ConfigError: matplotlib is not installed, or there is nothing to draw.
        StorageError: The folder cannot be written.
    """
    if missing():
        raise ConfigError(f"No picture can be drawn: {missing()}.")
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [x for x in ("json", "code") if any(name.endswith(f"/{x}") for name in variants)]
    if not panels:
        raise ConfigError("There is nothing to draw: no variant was played.")
    # A fixed salt, so that the same numbers give the same SVG.
    with rc_context({"font.family": "DejaVu Sans", "font.size": 9, "svg.hashsalt": "atlas-gym"}):
        figure = Figure(figsize=(4.9 * len(panels), 4.1), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        longest = max((len(e) - 1 for series in variants.values() for e in series), default=1)
        for axis, execution in zip(axes, panels, strict=True):
            chosen = {k.partition("/")[0]: v for k, v in variants.items() if k.endswith(f"/{execution}")}
            _panel(axis, chosen, budget, max(1, longest))
            axis.set_title(f"execution: {execution}", loc="left", color=_INK, fontsize=10)
        axes[0].set_ylabel("context tokens (log scale)", color=_INK)
        figure.suptitle(title, x=0.01, ha="left", color=_INK, fontsize=11, fontweight="bold")
        files = (folder / "context_growth.png", folder / "context_growth.svg")
        with storage(f"Writing the picture to {folder}"):
            folder.mkdir(parents=True, exist_ok=True)
            figure.savefig(files[0], dpi=160, facecolor="white")
            figure.savefig(files[1], facecolor="white", metadata={"Date": None})
    return files


def _panel(axis: Axes, exposures: Mapping[str, Series], budget: int, longest: int) -> None:
    axis.set_yscale("log")
    ends: list[tuple[float, float, str]] = []
    for exposure, episodes in exposures.items():
        colour = _COLOURS.get(exposure, _INK)
        for episode in episodes:
            axis.plot(range(len(episode)), episode, color=colour, alpha=0.18, linewidth=0.8)
        mean = mean_growth(episodes)
        if not mean:
            continue
        dashes = _DASHES if exposure == "search" else "-"
        axis.plot(
            range(len(mean)), mean, color=colour, linewidth=2.0, linestyle=dashes, marker="o", markersize=3
        )
        ends.append((len(mean) - 1, mean[-1], exposure))
    axis.axhline(budget, color=_INK, linewidth=1.0, linestyle=(0, (4, 3)))
    axis.annotate(
        f"default budget, {budget:,}",
        (0, budget),
        xytext=(2, 3),
        textcoords="offset points",
        color=_INK,
        fontsize=8,
    )
    _label(axis, ends, longest * 0.03)
    axis.set_xlim(-longest * 0.02, longest * 1.24)
    axis.set_xlabel("turn", color=_INK)
    _plain(axis)


def _label(axis: Axes, ends: list[tuple[float, float, str]], gap: float) -> None:
    """Names at the ends of the lines, moved apart where two would lie on each other."""
    lowest, at_x = 0.0, max((x for x, _, _ in ends), default=0.0) + gap
    for x, y, exposure in sorted(ends, key=lambda end: end[1]):
        at = max(y, lowest * 1.16)
        lowest = at
        axis.annotate(
            exposure,
            (x, y),
            xytext=(at_x, at),
            textcoords="data",
            color=_COLOURS.get(exposure, _INK),
            va="center",
            fontweight="bold",
        )


def _plain(axis: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

    def thousands(value: float, _: Any) -> str:
        return f"{value:,.0f}"

    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axis.yaxis.set_major_formatter(FuncFormatter(thousands))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.grid(axis="y", color=_FAINT, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axis.spines[side].set_color(_FAINT)
    axis.tick_params(which="both", colors=_INK, length=0)

"""The one look that all figures share, and how they are written to disk.

Nothing here touches matplotlib's global state (no pyplot, no rcParams), so figures can be drawn in any thread or server.
"""

import contextlib
import dataclasses
import io
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
"""The palette of Okabe and Ito: told apart with any common colour blindness."""
GREY, INK, GRID = "#7F7F7F", "#333333", "#E4E4E4"
DANGER = VERMILION
"""Kept for limits, budgets and what breaks them; no algorithm has it."""

WIDTH_INCHES, DPI = 8.0, 200
SMALL, NORMAL, LARGE = 9.0, 10.0, 11.0
"""Font sizes in points: 1 pt is 1.4 px when a figure of 1600 px is shown 800 px wide."""
FORMATS = ("png", "svg", "pdf")


@dataclasses.dataclass(frozen=True)
class Look:
    """How one algorithm is drawn."""

    label: str
    colour: str = GREY
    marker: str = "o"


LOOKS = {
    "actsafe": Look("ActSafe", BLUE, "o"),
    "no_pessimism": Look("No pessimism", GREEN, "s"),
    "opax": Look("OPAX", PURPLE, "^"),
    "greedy_safe": Look("Greedy, constrained", SKY, "D"),
    "greedy": Look("Greedy", ORANGE, "v"),
}


def look(algorithm: str) -> Look:
    """How to draw `algorithm`; grey, under its own name, when it is not one of ours."""
    return LOOKS.get(algorithm, Look(algorithm.replace("_", " ")))


def in_order(algorithms: Iterable[str]) -> list[str]:
    """The distinct names, ours first and always in the same order, then the others as they came."""
    names = dict.fromkeys(algorithms)
    return [name for name in LOOKS if name in names] + [name for name in names if name not in LOOKS]


def blank(height: float, *, layout: str | None = "constrained") -> Figure:
    """An empty figure, 1600 px wide and `height` inches high."""
    return Figure(figsize=(WIDTH_INCHES, height), dpi=DPI, layout=layout, facecolor="white")


def clean(axes: Axes, *, title: str = "", xlabel: str = "", ylabel: str = "") -> None:
    """Give `axes` the house look: two spines, a light grid under the data, readable text."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=SMALL, labelcolor=INK, color=GREY, length=3)
    axes.grid(visible=True, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(title, fontsize=LARGE, color=INK, loc="left", pad=8)
    axes.set_xlabel(xlabel, fontsize=NORMAL, color=INK)
    axes.set_ylabel(ylabel, fontsize=NORMAL, color=INK)


def forbid(axes: Axes, *, above: float | None = None, below: float | None = None, along: str = "y") -> None:
    """Hatch what lies beyond a limit and dash its edge, so that it can be told without colour. Call it with the axes' limits set."""
    low, high = axes.get_ylim() if along == "y" else axes.get_xlim()
    span, line = (axes.axhspan, axes.axhline) if along == "y" else (axes.axvspan, axes.axvline)
    for edge, end in ((above, high), (below, low)):
        if edge is not None:
            span(edge, end, facecolor=DANGER + "12", edgecolor=DANGER + "40", hatch="////", linewidth=0.0, zorder=0.5)
            line(edge, color=DANGER, linestyle=(0, (5, 2.5)), linewidth=1.4, zorder=2.5)


def scale_cost(axes: Axes, largest: float) -> None:
    """Scale the y axis for costs up to `largest`, zero visible above the edge: symlog beyond 10, else linear."""
    if largest <= 10.0:
        top = largest if largest > 0.0 else 1.0
        axes.set_ylim(-0.06 * top, 1.15 * top)
        return
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_ylim(-0.04, 2.0 * largest)
    axes.yaxis.set_major_locator(FixedLocator([0.0, *(10.0**power for power in range(-1, 9) if 10.0**power <= 2.0 * largest)]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def mark_unbounded(axes: Axes, x: Iterable[float], colour: str) -> None:
    """Mark at the top edge what has no finite value."""
    x = list(x)
    if x:
        at_top = axes.get_xaxis_transform()
        axes.plot(x, [0.96] * len(x), "^", color=colour, markersize=7, transform=at_top, zorder=4, label="unbounded")


def as_cost(value: float) -> str:
    """A cost as a reader wants it: an exact zero as 0, never as 0.00."""
    if value == 0.0:
        return "0"
    if not value < float("inf"):
        return "unbounded"
    return f"{value:.2g}" if value < 10.0 else f"{value:.0f}"


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """The path written: PNG where the name has no suffix, else the format of its suffix.

    The file appears whole or not at all; when writing fails, neither a part of it nor a new folder stays behind.
    """
    path = Path(path)
    path = path if path.suffix else path.with_name(path.name + ".png")
    kind = path.suffix[1:].lower()
    if kind not in FORMATS:
        raise ValueError(f"cannot write a figure as {path.name!r}: expected a name that ends in .{', .'.join(FORMATS)}; rename it")
    rendered = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    figure.savefig(rendered, format=kind, dpi=DPI, metadata=undated)

    new_folders = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(part, "xb") as file:
            file.write(rendered.getvalue())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        for folder in new_folders:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    return path

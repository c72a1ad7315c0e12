"""The one look that all figures share, and how they are written to disk.

Nothing here touches matplotlib's global state (no pyplot, no rcParams), so figures can be drawn in any thread.
"""

import dataclasses
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from actsafe.agents.algorithms import label, order
from actsafe.training.storage import replacing

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
"""The palette of Okabe and Ito: told apart with any common colour blindness."""
GREY, INK, GRID = "#7F7F7F", "#333333", "#E4E4E4"
DANGER = VERMILION
"""Kept for limits, budgets and what breaks them; no algorithm has it."""
DANGER_SHADE, HATCH, DASHES, DOTS = DANGER + "12", "////", (0, (5, 2.5)), (0, (1, 1.5))
LIMIT: Mapping[str, Any] = {"color": DANGER, "linestyle": DASHES, "linewidth": 1.4}
"""The line of a budget or a limit."""

WIDTH_INCHES, DPI = 8.0, 200
SMALL, NORMAL, LARGE = 9.0, 10.0, 11.0
"""Font sizes in points: 1 pt is 1.4 px when a figure of 1600 px is shown 800 px wide."""
LEGEND: Mapping[str, Any] = {"fontsize": SMALL, "labelcolor": INK, "frameon": False, "handletextpad": 0.6}
NAME_INCHES = 0.88
"""What the name of a phase needs."""
UNBOUNDED = "unbounded"
MOST_IN_ROW = 5
"""Explanations that fit below a figure side by side."""
FORMATS = ("png", "svg", "pdf")


@dataclasses.dataclass(frozen=True)
class Look:
    """How one algorithm is drawn."""

    label: str
    colour: str = GREY
    marker: str = "o"


SERIES = ((BLUE, "o"), (GREEN, "s"), (PURPLE, "^"), (ORANGE, "D"), (SKY, "v"))
"""Colours and markers of lines that are no algorithms."""
LOOKS = {
    "actsafe": (BLUE, "o"),
    "actsafe_strict": ("#332288", "P"),
    "actsafe_lagrangian": (BLACK, "X"),
    "no_pessimism": (GREEN, "s"),
    "opax": (PURPLE, "^"),
    "greedy": (SKY, "D"),
    "greedy_unconstrained": (ORANGE, "v"),
    "uniform": ("#999933", "<"),
    "optimistic": ("#882255", ">"),
}
"""Colour and marker of the rows of our table."""


def look(algorithm: str) -> Look:
    """How to draw `algorithm`; grey, under its own name, when it is not one of ours."""
    return Look(label(algorithm).replace("_", " "), *LOOKS.get(algorithm, ()))


def in_order(algorithms: Iterable[str]) -> list[str]:
    """The distinct names, ours first and always in the same order."""
    return order(set(algorithms))


class Picture(Figure):
    """A figure that notebooks show, although it knows nothing of pyplot."""

    def _repr_png_(self) -> bytes:
        rendered = io.BytesIO()
        self.savefig(rendered, format="png", dpi=0.5 * DPI)
        return rendered.getvalue()


def blank(
    height: float, *, width: float = WIDTH_INCHES, layout: Literal["constrained"] | None = "constrained"
) -> Figure:
    """An empty figure, `height` inches high and by default 1600 px wide."""
    return Picture(figsize=(width, height), dpi=DPI, layout=layout, facecolor="white")


def clean(axes: Axes, *, title: str = "", xlabel: str = "", ylabel: str = "", pad: float | int = 8) -> None:
    """Give `axes` the house look: two spines, a light grid under the data, readable text; `pad` points to the title."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.tick_params(labelsize=SMALL, labelcolor=INK, color=GREY, length=3)
    axes.grid(visible=True, color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(title, fontsize=LARGE, color=INK, loc="left", pad=pad)
    axes.set_xlabel(xlabel, fontsize=NORMAL, color=INK)
    axes.set_ylabel(ylabel, fontsize=NORMAL, color=INK)


def legend(
    figure: Any, handles: Sequence[Artist], *, labels: Sequence[str] | None = None, num_columns: int | None = None
) -> None:
    """Explanations under the whole figure: one row, or two where they are many."""
    in_row = len(handles) if len(handles) <= MOST_IN_ROW else -(-len(handles) // 2)
    figure.legend(
        handles=handles,
        labels=[handle.get_label() for handle in handles] if labels is None else labels,
        loc="outside lower center",
        ncols=in_row if num_columns is None else num_columns,
        columnspacing=1.3,
        **LEGEND,
    )


def forbid(
    axes: Axes, *, above: float | None = None, below: float | None = None, along: str = "y", is_hatched: bool = True
) -> None:
    """Shade what lies beyond a limit and dash its edge, so that it can be told without colour.

    Call it with the axes' limits set. Leave the hatching away where the shade covers most of the axes.
    """
    low, high = axes.get_ylim() if along == "y" else axes.get_xlim()
    span, line = (axes.axhspan, axes.axhline) if along == "y" else (axes.axvspan, axes.axvline)
    for edge, end in ((above, high), (below, low)):
        if edge is not None:
            hatch = HATCH if is_hatched else None
            span(edge, end, facecolor=DANGER_SHADE, edgecolor=DANGER + "40", hatch=hatch, linewidth=0.0, zorder=0.5)
            line(edge, **LIMIT, zorder=2.5)


def scale_cost(axes: Axes, largest: float, *, along: str = "y") -> None:
    """Scale an axis for costs up to `largest`, zero visible off the edge: symlog beyond 10, else linear."""
    axis = axes.yaxis if along == "y" else axes.xaxis
    set_limits = axes.set_ylim if along == "y" else axes.set_xlim
    if largest <= 10.0:
        top = largest if largest > 0.0 else 1.0
        set_limits(-0.06 * top, 1.15 * top)
        return
    set_scale = axes.set_yscale if along == "y" else axes.set_xscale
    set_scale("symlog", linthresh=0.1, linscale=0.5)
    set_limits(-0.04, 2.5 * largest)
    powers = [10.0**power for power in range(-1, 12)]
    axis.set_major_locator(FixedLocator([0.0, *(power for power in powers if power <= 2.5 * largest)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def finite(values: Any) -> np.ndarray:
    """As an array, NaN for what is not finite or not known: it is not drawn."""
    array = np.asarray(values, dtype=float)
    return np.where(np.isfinite(array), array, np.nan)


def most(*values: Any) -> float:
    """The largest finite number of several arrays; 0 where none is larger."""
    return max(float(np.max(each, where=np.isfinite(each), initial=0.0)) for each in map(finite, values))


def mark_unbounded(axes: Axes, x: np.ndarray, colour: str) -> None:
    """Mark at the top edge, and name once, what has no finite value. Call it with the axes' x limits set."""
    if not len(x):
        return
    at_top = axes.get_xaxis_transform()
    axes.plot(x, [0.95] * len(x), "^", color=colour, markersize=6.5, transform=at_top, zorder=4, label=UNBOUNDED)
    for text in [text for text in axes.texts if text.get_text() == UNBOUNDED]:
        text.remove()
    marks = np.concatenate([line.get_xdata() for line in axes.get_lines() if line.get_label() == UNBOUNDED])
    first, last = (np.array([marks.min(), marks.max()]) - axes.get_xlim()[0]) / np.ptp(axes.get_xlim())
    if last < 0.7:
        place, aligned, shift = marks.max(), "left", (7, 0)
    elif first > 0.3:
        place, aligned, shift = marks.min(), "right", (-7, 0)
    else:
        place, aligned, shift = marks.min(), "left", (-4, -12)
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
    name(axes, UNBOUNDED, (place, 0.95), shift, ha=aligned, va="center", xycoords=at_top, bbox=box, zorder=4)


def name(
    axes: Axes, text: str, place: tuple[Any, Any], shift: tuple[int, int], *, color: str = INK, **look: Any
) -> None:
    """Write a text beside a place; `shift` is in points."""
    axes.annotate(text, place, xytext=shift, textcoords="offset points", fontsize=SMALL, color=color, **look)


def as_cost(value: float) -> str:
    """A cost as a reader wants it: an exact zero as 0, never as 0.00."""
    if value == 0.0:
        return "0"
    if not value < float("inf"):
        return UNBOUNDED
    return f"{value:.2g}" if value < 10.0 else f"{value:.0f}"


def save(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """The path written: PNG where the name has no suffix, else the format of its suffix.

    The file appears whole or not at all; when writing fails, neither a part of it nor a new folder stays behind.
    """
    path = Path(path)
    path = path if path.suffix else path.with_name(path.name + ".png")
    kind = path.suffix[1:].lower()
    if kind not in FORMATS:
        raise ValueError(
            f"cannot write a figure as {path.name!r}; expected the ending .{', .'.join(FORMATS)}: rename it"
        )
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=DPI, metadata=undated)
    return path

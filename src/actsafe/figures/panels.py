"""Small figures with one pair of axes, for a page that puts them side by side, or below each other on a phone."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from actsafe.figures import style

WIDTH, HEIGHT = 4.4, 3.1
"""Inches."""
SHADES = {"seed": style.GRID, "warm_up": style.GRID, "expansion": style.SKY + "55", "exploitation": style.GREEN + "40"}
"""Of phases."""
ROOM_FOR_NAME = style.NAME_INCHES / WIDTH
"""The share of the width that the name of a phase needs."""
RIBBON_PAD = 24
"""Points between the axes and a title above the ribbon of phases."""
EDGE = 0.025
"""How far axes go on beyond the first phase and the last, so that no mark is cut off."""
MOST_POINTS = 400
"""A line with more is thinned: a page has no more pixels for it."""
MOST_MARKED = 60
"""A line with more has no marks."""


class Span(NamedTuple):
    """A phase, and where it begins and ends on the x axis."""

    phase: str
    begins: float | int
    ends: float | int


class Curve(NamedTuple):
    """A line and the band around it, or a point and a bar. What is NaN is not drawn, what is infinite marked so."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    colour: str = style.BLUE
    marker: str | None = None
    is_dotted: bool = False
    has_line: bool = True


def blank(*, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """An empty panel."""
    figure = style.blank(height, width=WIDTH)
    return figure, figure.subplots()


def curves(
    title: str,
    lines: Sequence[Curve],
    *,
    xlabel: str,
    spans: Sequence[Span] = (),
    budget: float | None = None,
    is_cost: bool = False,
) -> Figure:
    """Lines over episodes or steps, under a ribbon of phases; a budget is a dashed line, what lies beyond shaded."""
    figure, axes = blank()
    if is_cost:
        style.scale_cost(axes, style.most(budget, *(values for line in lines for values in (line.y, line.high))))
    for line in lines:
        draw(axes, line)
    axes.margins(x=0.02)
    if spans:
        begins, ends = min(span.begins for span in spans), max(span.ends for span in spans)
        axes.set_xlim(begins - EDGE * (ends - begins), ends + EDGE * (ends - begins))
    frame(axes, spans, title=title, xlabel=xlabel)
    for line in lines:
        style.mark_unbounded(axes, line.x[np.isposinf(line.y)], line.colour)
    if budget is not None:
        style.forbid(axes, above=budget, is_hatched=False)
        axes.axhline(budget, label=f"budget {budget:g}", **style.LIMIT)
    legend(axes)
    return figure


def frame(axes: Axes, spans: Sequence[Span], **labels: str) -> None:
    """Make x an axis of episodes or steps, under a ribbon of phases. Call it with the axes' x limits set."""
    style.clean(axes, pad=RIBBON_PAD if spans else 8, **labels)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    name_phases(axes, spans)


def legend(axes: Axes, *, num_columns: int = 2) -> None:
    """Explanations below the axes, where they hide nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        style.legend(axes.get_figure(), handles, labels=labels, num_columns=min(num_columns, len(handles)))


def name_phases(axes: Axes, spans: Sequence[Span]) -> None:
    """A ribbon above the axes, with the name of each phase where there is room for it, else in the legend."""
    low, high = axes.get_xlim()
    for number, (phase, begins, ends) in enumerate(spans):
        left, right = max(begins, low), min(ends, high)
        if right <= left:
            continue
        above = axes.get_xaxis_transform()
        place, name = ((left, 1.015), right - left, 0.075), phase.replace("_", "-")
        is_named = (right - left) / (high - low) > ROOM_FOR_NAME
        look = {"facecolor": SHADES.get(phase, style.GRID), "lw": 0, "label": "_" if is_named else name}
        axes.add_patch(Rectangle(*place, transform=above, clip_on=False, **look))
        if is_named:
            named = {"transform": above, "ha": "center", "va": "center", "fontsize": 0.9 * style.SMALL}
            axes.text(0.5 * (left + right), 1.05, name, color=style.INK, **named)
        if number:
            axes.axvline(left, color=style.GREY, linewidth=0.7, linestyle=style.DOTS, zorder=1)
    axes.set_xlim(low, high)


def phase_spans(rows: Sequence[Mapping[str, Any]], entry: str) -> list[Span]:
    """Where each phase of a run begins and ends on an axis of this entry of its epochs."""
    found: dict[str, Span] = {}
    begins = 0
    for row in rows:
        before = found.get(row["phase"], Span(row["phase"], begins, 0))
        found[row["phase"]] = before._replace(ends=max(row[entry], before.ends))
        begins = max(row[entry], begins)
    return list(found.values())


def short(value: float | int) -> str:
    """1500000 as 1.5M."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def thinned(length: int, most: int = MOST_POINTS) -> np.ndarray:
    """At most `most` places of a line of this length, spread evenly, with both ends."""
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int))


def draw(axes: Axes, line: Curve, *, layer: float = 3.0) -> None:
    """Draw a line with its band, or a point with its bar."""
    keep = thinned(len(line.x)) if len(line.x) else np.zeros(0, int)
    x = line.x[keep]
    if line.low is not None and line.high is not None and len(x) == 1:
        axes.vlines(x, line.low[keep], line.high[keep], color=line.colour, linewidth=4, alpha=0.3, zorder=2)
    elif line.low is not None and line.high is not None:
        low, high = style.finite(line.low[keep]), style.finite(line.high[keep])
        axes.fill_between(x, low, high, color=line.colour, alpha=0.18, linewidth=0, zorder=2)
    axes.plot(
        x,
        style.finite(line.y[keep]),
        color=line.colour,
        linewidth=1.7,
        linestyle=(style.DOTS if line.is_dotted else "-") if line.has_line else "",
        marker=_marker(line, int(np.sum(np.isfinite(line.y[keep])))),
        markersize=4,
        zorder=layer,
        label=line.label,
    )


def _marker(line: Curve, num_points: int) -> str | None:
    """The marker of a line; None where marks would hide the line. A point by itself is always marked."""
    if num_points == 1:
        return line.marker or "o"
    return line.marker if num_points < MOST_MARKED else None

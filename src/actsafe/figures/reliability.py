"""Whether a model's intervals hold what they claim: the reliability diagram, and coverage by steps ahead."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.stats import binom

from actsafe.figures import panels, style

BAND = 0.95
"""A calibrated model's share lies in the band so often, at each level by itself."""


def reliability_diagram(step: Mapping[str, Any], grid: Sequence[float], coordinates: Sequence[str]) -> Figure:
    """Claimed against held: of intervals at each level of `grid`, the share that held the truth, a line per coordinate.

    `step` is an entry of a claim's steps in calibration.json. The band is where shares of a calibrated model lie, by
    the binomial distribution of its number of predictions. Below it a model is overconfident.
    """
    figure, axes = panels.blank(height=3.5)
    ahead, predictions = int(step["step"]), int(step["num_predictions"])
    style.clean(
        axes,
        title=f"{ahead} step{'s' * (ahead > 1)} ahead, {predictions} predictions",
        xlabel="level claimed",
        ylabel="share of truths inside",
    )
    levels = np.array([0.0, *grid, 1.0])
    if predictions:
        low, high = binom.interval(BAND, predictions, levels)
        name = f"calibrated, {100 * BAND:.0f} % band"
        axes.fill_between(levels, low / predictions, high / predictions, color=style.GREY, alpha=0.25, lw=0, label=name)
    axes.plot([0, 1], [0, 1], color=style.GREY, linewidth=1.0)
    for number, (coordinate, shares) in enumerate(zip(coordinates, step["reliability"], strict=True)):
        colour, marker = style.SERIES[number % len(style.SERIES)]
        held = np.array([np.nan if share is None else share for share in shares], float)
        axes.plot(grid, held, color=colour, marker=marker, markersize=3, linewidth=1.5, label=coordinate)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    panels.legend(axes)
    return figure


def coverage_by_step(steps: Sequence[Mapping[str, Any]], levels: Sequence[float]) -> Figure:
    """How coverage of each level changes with the steps ahead: that of the coordinate which is held least.

    `steps` are those of a claim in calibration.json. Dashed lines are what is claimed.
    """
    figure, axes = panels.blank(height=3.5)
    style.clean(axes, title="By steps ahead, worst coordinate", xlabel="steps ahead", ylabel="share of truths inside")
    ahead = [int(step["step"]) for step in steps]
    for number, level in enumerate(levels):
        colour, marker = style.SERIES[number % len(style.SERIES)]
        shares = [[row[number] for row in step["coverage"] if row[number] is not None] for step in steps]
        worst = np.array([min(row, default=np.nan) for row in shares])
        axes.axhline(level, color=colour, linestyle=style.DASHES, linewidth=0.9, alpha=0.8)
        axes.plot(
            ahead, worst, color=colour, marker=marker, markersize=3.5, linewidth=1.5, label=f"{100 * level:.0f} %"
        )
    axes.set_ylim(0, 1.04)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    panels.legend(axes, num_columns=len(levels))
    return figure

"""The safety ledger: what was promised of the costs, what they were, and when no promise was possible."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from actsafe.evidence.ledger import LedgerRow
from actsafe.figures import panels, style
from actsafe.figures.summary import axis_of
from actsafe.training import results

PESSIMISTIC, PREDICTED = "predicted,\npessimistic", "predicted, mean"
REALISED, WORST, BEYOND = "realised, mean", "realised, worst", "beyond budget"
TAKEN_OVER = "taken over"
ACTING = {
    "num_by_certified": ("certified policy", style.SKY),
    "num_by_candidate": ("candidate", style.ORANGE),
    "num_by_seed_policy": ("seed policy $S_0$", style.GREY),
}
"""Who begins episodes, by the ledger's entry, from the bottom up."""
MOST_MARKED = 30
"""Epochs: more are drawn as lines."""


def ledger_figure(runs: Sequence[Mapping[str, Any]], *, coordinate_names: Sequence[str] | None = None) -> Figure:
    """Predicted and realised costs by epoch and constraint; where decisions are checked before they are taken, the
    shares of them that fell back or had no certificate; where policies are deployed from a safe set, the shares of
    episodes that each of them began; and confidence multipliers, where there are some.

    `runs` are those of one algorithm in a results file. Seeds are drawn side by side, their decisions counted together,
    and of their multipliers the median. What is null because it was not finite is marked "unbounded" at the top edge.
    `coordinate_names` are the state's.
    """
    epochs = [epoch for run in runs for epoch in run["epochs"]]
    if not epochs:
        raise ValueError("got no epochs to draw; expected at least one: train a run first")
    rows = [row for run in runs for row in results.ledger(run)]
    constraints = list(runs[0]["budgets"])
    is_guarded = any(row.num_by_candidate is not None for row in rows)
    is_checked = not is_guarded and any(row.num_uncertified is not None for row in rows)
    has_multipliers = any(epoch["multiplier"] for epoch in epochs)
    heights = [2.2] * len(constraints) + [1.0] * (is_checked or is_guarded) + [1.1] * has_multipliers
    figure = style.blank(0.9 + 1.1 * sum(heights))
    grid = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    numbers = [epoch["epoch"] for epoch in epochs]
    grid[0].set_xlim(min(numbers) - 0.6, max(numbers) + 0.6)
    grid[0].xaxis.set_major_locator(MaxNLocator(nbins=13, integer=True))
    for axes, name in zip(grid, constraints, strict=False):
        _costs(axes, [row for row in rows if row.constraint == name], is_checked=is_checked)
    if is_guarded:
        _who_acted(grid[len(constraints)], [row for row in rows if row.constraint == constraints[0]])
    if is_checked:
        _shares(grid[len(constraints)], [row for row in rows if row.constraint == constraints[0]])
    if has_multipliers:
        _multipliers(grid[-1], epochs, coordinate_names)
    _name_epochs(grid[-1], runs)
    return figure


def _name_epochs(axes: Axes, runs: Sequence[Mapping[str, Any]]) -> None:
    """Epochs of one episode are called that; others are named by the simulator steps until their end."""
    xlabel, entry = axis_of(runs)
    axes.set_xlabel(xlabel, fontsize=style.NORMAL, color=style.INK)
    if entry == "steps":
        steps = {epoch["epoch"]: epoch["steps"] for epoch in runs[0]["epochs"]}
        named = FuncFormatter(lambda value, _: panels.short(steps[round(value)]) if round(value) in steps else "")
        axes.xaxis.set_major_formatter(named)


def _costs(axes: Axes, rows: Sequence[LedgerRow], *, is_checked: bool) -> None:
    """Draw promise and reality of each epoch: a safe one has what was realised at or below what was promised.

    With `is_checked` a prediction that is not known was one that is not finite.
    """
    budgets, name = sorted({row.budget for row in rows}), rows[0].constraint
    style.clean(axes, title=f"{name} of an episode (budget {', '.join(f'{each:g}' for each in budgets)})", ylabel=name)
    seeds = sorted({row.seed for row in rows})
    num_epochs = len({row.epoch for row in rows})
    offsets = np.linspace(-0.27, 0.27, len(seeds)) if len(seeds) > 1 else np.zeros(1)
    x = np.array([row.epoch + offsets[seeds.index(row.seed)] for row in rows])
    pessimistic = style.finite([row.predicted_pessimistic_cost for row in rows])
    predicted = style.finite([row.predicted_cost for row in rows])
    realised = style.finite([row.mean_cost for row in rows])
    worst = style.finite([row.max_cost for row in rows])
    style.scale_cost(axes, style.most(pessimistic, predicted, realised, worst, budgets))
    for budget in budgets:
        style.forbid(axes, above=budget, is_hatched=False)
    is_long = num_epochs > MOST_MARKED
    size = 3.5 if is_long else 7.0 if len(seeds) == 1 else 5.5
    line = "-" if is_long and len(seeds) == 1 else ""
    axes.vlines(x, realised, pessimistic, color=style.GREY, linewidth=0.5 if is_long else 0.8, zorder=2.6)
    hollow = {"markerfacecolor": "white", "linestyle": line, "linewidth": 1.2}
    axes.plot(x, pessimistic, "D", color=style.BLUE, markersize=size, zorder=3, label=PESSIMISTIC, **hollow)
    if np.any(np.isfinite(predicted)):
        axes.plot(x, predicted, "s", color=style.SKY, markersize=0.6 * size, zorder=3, label=PREDICTED, **hollow)
    if not np.array_equal(worst, realised, equal_nan=True):
        axes.plot(x, worst, "_", color=style.BLACK, markersize=size, zorder=3.05, label=WORST)
    look = {"markersize": 0.5 * size, "linestyle": line, "linewidth": 1.2}
    axes.plot(x, realised, "o", color=style.BLACK, zorder=3.1, label=REALISED, **look)
    # What nothing was predicted of, or no episode ended in, is not known either, but it is not unbounded.
    was_checked = np.array([is_checked and row.num_uncertified is not None for row in rows])
    has_ended = np.array([row.num_episodes > 0 for row in rows])
    style.mark_unbounded(axes, x[np.isnan(pessimistic) & was_checked], style.BLUE)
    style.mark_unbounded(axes, x[np.isnan(worst) & has_ended], style.BLACK)
    beyond = Patch(facecolor=style.DANGER_SHADE, edgecolor=style.DANGER, linestyle=style.DASHES, label=BEYOND)
    named = (PESSIMISTIC, PREDICTED, WORST, REALISED)
    _legend(axes, [each for each in axes.get_lines() if each.get_label() in named] + [beyond])


def _shares(axes: Axes, rows: Sequence[LedgerRow]) -> None:
    """Draw in which share of decisions the first choice failed its check, and in which every choice did."""
    num_seeds = len({row.seed for row in rows})
    style.clean(axes, title="Share of decisions" + (f", {num_seeds} seeds together" if num_seeds > 1 else ""))
    epochs = sorted({row.epoch for row in rows})
    own = [[row for row in rows if row.epoch == epoch] for epoch in epochs]
    made = np.maximum(1, [sum(row.num_decisions for row in each) for each in own])
    fallbacks = np.array([sum(row.num_fallbacks for row in each) for each in own]) / made
    uncertified = np.array([sum(row.num_uncertified or 0 for row in each) for each in own]) / made
    look = {"width": 0.36, "linewidth": 0.9, "zorder": 2}
    axes.bar(np.add(epochs, -0.19), fallbacks, color=style.SKY, edgecolor=style.BLUE, label="fallback plan", **look)
    look |= {"color": "white", "edgecolor": style.DANGER, "hatch": style.HATCH}
    axes.bar(np.add(epochs, 0.19), uncertified, label="not certified", **look)
    axes.set_ylim(0, 1.15 * style.most(fallbacks, uncertified) or 1.0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    _legend(axes, axes.get_legend_handles_labels()[0])


def _who_acted(axes: Axes, rows: Sequence[LedgerRow]) -> None:
    """Draw which share of episodes everyone began, one upon the other, and which share a fallback took over."""
    rows = [row for row in rows if row.num_by_candidate is not None]
    num_seeds = len({row.seed for row in rows})
    style.clean(axes, title="Who began episodes" + (f", {num_seeds} seeds together" if num_seeds > 1 else ""))
    epochs = sorted({row.epoch for row in rows})
    own = [[row for row in rows if row.epoch == epoch] for epoch in epochs]
    begun = np.maximum(1, [sum(row.num_episodes for row in each) for each in own])
    bottom, look = np.zeros(len(epochs)), {"width": 1.0, "linewidth": 0.0, "zorder": 2}
    for entry, (name, colour) in ACTING.items():
        share = np.array([sum(getattr(row, entry) for row in each) for each in own]) / begun
        axes.bar(epochs, share, bottom=bottom, color=colour, label=name, **look)
        bottom = bottom + share
    taken = np.array([sum(row.num_taken_over or 0 for row in each) for each in own]) / begun
    is_any = taken > 0
    marks = {"color": style.DANGER, "linestyle": "", "markersize": 4, "clip_on": False, "zorder": 3}
    if np.any(is_any):
        axes.plot(np.asarray(epochs)[is_any], taken[is_any], "v", label=TAKEN_OVER, **marks)
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    _legend(axes, axes.get_legend_handles_labels()[0])


def _multipliers(axes: Axes, epochs: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> None:
    style.clean(axes, title="Confidence multiplier")
    known = [epoch for epoch in epochs if epoch["multiplier"]]
    sizes = sorted({len(epoch["multiplier"]) for epoch in known})
    names = [f"coordinate {index + 1}" for index in range(sizes[0])] if names is None else list(names)
    if sizes != [len(names)]:
        raise ValueError(
            f"got {len(names)} coordinate names and confidence multipliers of {sizes} coordinates; expected one name "
            "for each: pass the state_names of the problem that the ledger is of"
        )
    numbers = sorted({epoch["epoch"] for epoch in known})
    lines = []
    for index, name in enumerate(names):
        colour, marker = style.SERIES[index % len(style.SERIES)]
        values = [[epoch["multiplier"][index] for epoch in known if epoch["epoch"] == n] for n in numbers]
        median = np.array([np.median(style.finite(seeds)) for seeds in values])
        lines += axes.plot(numbers, median, color=colour, marker=marker, markersize=4, linewidth=1.6, label=name)
        beside = 0.15 * (index - 0.5 * (len(names) - 1))
        style.mark_unbounded(axes, np.asarray(numbers)[np.isnan(median)] + beside, colour)
    axes.set_ylim(0.0, 1.25 * axes.get_ylim()[1])
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
    _legend(axes, lines)


def _legend(axes: Axes, handles: Sequence[Artist | Container]) -> None:
    """Explanations to the right of a panel, where they hide nothing."""
    axes.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), **style.LEGEND)

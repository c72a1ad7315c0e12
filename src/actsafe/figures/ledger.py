"""The safety ledger: what was promised of each episode, what it really cost, and when no promise was possible."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from actsafe.figures import style
from actsafe.figures.coordinates import Series

PREDICTED, REALISED, BEYOND = "predicted,\npessimistic", "realised", "beyond budget"
_COORDINATE_LOOKS = (
    (style.BLUE, "o"),
    (style.GREEN, "s"),
    (style.PURPLE, "^"),
    (style.ORANGE, "D"),
    (style.SKY, "v"),
)


def ledger_figure(rows: Sequence[Mapping[str, Any]], *, coordinate_names: Sequence[str] | None = None) -> Figure:
    """Predicted and realised cost per episode, the decisions without a certificate, and the confidence multiplier.

    `rows` are those of a ledger, one per episode and seed. Seeds are drawn side by side, their counts summed, and of
    their multipliers the median. A value that is null was not finite and is marked "unbounded" at the top edge.
    `coordinate_names` are the state's.
    """
    if not rows:
        raise ValueError("got no ledger rows; expected one per episode: run an experiment that keeps a ledger first")
    figure = style.blank(5.6)
    costs, counts, multipliers = figure.subplots(3, 1, sharex=True, height_ratios=[2.2, 1.0, 1.1])
    episodes = [row["episode"] for row in rows]
    costs.set_xlim(min(episodes) - 0.6, max(episodes) + 0.6)
    costs.xaxis.set_major_locator(MaxNLocator(nbins=13, integer=True))
    _costs(costs, rows)
    _counts(counts, rows)
    _multipliers(multipliers, rows, coordinate_names)
    multipliers.set_xlabel("episode", fontsize=style.NORMAL, color=style.INK)
    return figure


def _numbers(values: Series) -> np.ndarray:
    """As an array, NaN for whatever is not finite."""
    array = np.array(values, dtype=float)
    return np.where(np.isfinite(array), array, np.nan)


def _side_by_side(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Where each row is drawn: at its episode, seeds beside each other."""
    seeds = sorted({row["seed"] for row in rows})
    offsets = np.linspace(-0.27, 0.27, len(seeds)) if len(seeds) > 1 else np.zeros(1)
    return np.array([row["episode"] + offsets[seeds.index(row["seed"])] for row in rows])


def _costs(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw promise and reality of each episode as a pair: a safe one has the dot at or below the diamond."""
    budgets = sorted({float(row["budget"]) for row in rows})
    style.clean(axes, title=f"Cost of an episode (budget {', '.join(f'{budget:g}' for budget in budgets)})")
    x = _side_by_side(rows)
    predicted = _numbers([row["predicted_pessimistic_cost"] for row in rows])
    realised = _numbers([row["realised_cost"] for row in rows])
    finite = np.concatenate([predicted, realised, budgets])
    style.scale_cost(axes, float(np.nanmax(finite)))
    for budget in budgets:
        style.forbid(axes, above=budget, is_hatched=False)
    axes.vlines(x, realised, predicted, color=style.GREY, linewidth=0.8, zorder=2.6)
    size = 7.0 if len({row["seed"] for row in rows}) == 1 else 5.5
    axes.plot(x, predicted, "D", color=style.BLUE, markerfacecolor="white", markersize=size, zorder=3, label=PREDICTED)
    axes.plot(x, realised, "o", color=style.BLACK, markersize=0.5 * size, zorder=3.1, label=REALISED)
    style.mark_unbounded(axes, x[np.isnan(predicted)], style.BLUE)
    style.mark_unbounded(axes, x[np.isnan(realised)], style.BLACK)
    beyond = Patch(facecolor=style.DANGER_SHADE, edgecolor=style.DANGER, linestyle=style.DASHES, label=BEYOND)
    _legend(axes, [line for line in axes.get_lines() if line.get_label() in (PREDICTED, REALISED)] + [beyond])


def _counts(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw in how many decisions of an episode the first choice failed its check, and in how many every choice did."""
    num_seeds = len({row["seed"] for row in rows})
    style.clean(axes, title="Number of decisions" + (f", {num_seeds} seeds together" if num_seeds > 1 else ""))
    episodes = sorted({row["episode"] for row in rows})
    looks: dict[str, dict[str, Any]] = {
        "fallbacks": {"color": style.SKY, "edgecolor": style.BLUE, "label": "fallback plan"},
        "uncertified": {"color": "white", "edgecolor": style.DANGER, "hatch": style.HATCH, "label": "not certified"},
    }
    largest = 0
    for shift, (key, look) in zip((-0.19, 0.19), looks.items(), strict=True):
        counts = [sum(row[key] or 0 for row in rows if row["episode"] == episode) for episode in episodes]
        axes.bar(np.add(episodes, shift), counts, 0.36, linewidth=0.9, zorder=2, **look)
        largest = max(largest, *counts)
    axes.set_ylim(0, 1.15 * max(largest, 1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3, integer=True))
    _legend(axes, axes.get_legend_handles_labels()[0])


def _multipliers(axes: Axes, rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> None:
    style.clean(axes, title="Confidence multiplier")
    sizes = sorted({len(row["confidence_multiplier"]) for row in rows})
    names = [f"coordinate {index + 1}" for index in range(sizes[0])] if names is None else list(names)
    if sizes != [len(names)]:
        raise ValueError(
            f"got {len(names)} coordinate names and confidence multipliers of {sizes} coordinates; expected one name "
            "for each: pass the state_names of the problem that the ledger is of"
        )
    episodes = sorted({row["episode"] for row in rows})
    lines = []
    for index, name in enumerate(names):
        colour, marker = _COORDINATE_LOOKS[index % len(_COORDINATE_LOOKS)]
        values = [[row["confidence_multiplier"][index] for row in rows if row["episode"] == n] for n in episodes]
        median = np.array([np.median(_numbers(seeds)) for seeds in values])
        lines += axes.plot(episodes, median, color=colour, marker=marker, markersize=4, linewidth=1.6, label=name)
        beside = 0.15 * (index - 0.5 * (len(names) - 1))
        style.mark_unbounded(axes, np.asarray(episodes)[np.isnan(median)] + beside, colour)
    axes.set_ylim(0.0, 1.25 * axes.get_ylim()[1])
    axes.yaxis.set_major_locator(MaxNLocator(nbins=3))
    _legend(axes, lines)


def _legend(axes: Axes, handles: Sequence[Artist | Container]) -> None:
    """Explanations to the right of a panel, where they hide nothing."""
    axes.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
        fontsize=style.SMALL,
        labelcolor=style.INK,
        frameon=False,
        handletextpad=0.6,
    )

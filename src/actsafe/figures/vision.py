"""Runs with a world model: return and cost as they learn, and what was promised of the cost."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from actsafe.figures import style
from actsafe.figures.panels import short

STEPS = "simulator steps"
PHASE_SHADES = {"warm_up": "#E8E8E8", "expansion": style.SKY + "33"}
"""Phases that are set off from the rest, which is exploitation."""
ROOM_FOR_NAME = style.NAME_INCHES / style.WIDTH_INCHES
"""The share of the width that the name of a phase needs."""


class VisionRun(NamedTuple):
    """One run."""

    algorithm: str
    seed: int
    metrics: Sequence[Mapping[str, Any]]
    """A row per epoch."""
    ledger: Sequence[Mapping[str, Any]]
    """A row per epoch and constraint."""


def learning_curves(runs: Sequence[VisionRun]) -> Figure:
    """Return and costs of an epoch's episodes over the steps, a line per algorithm: the mean over its runs and their
    range. Evaluations, where there are any, are marks of their own. The phases behind are those of the first run.
    """
    _require_rows([row for run in runs for row in run.metrics])
    names = list(runs[0].metrics[0]["costs"])
    figure = style.blank(3.2 + 2.4 * len(names))
    panels = figure.subplots(1 + len(names), 1, sharex=True, squeeze=False)[:, 0]
    style.clean(panels[0], title="Return of an episode")
    _curves(panels[0], runs, lambda row: row["return"], lambda row: row.get("evaluation_return"))
    for axes, name in zip(panels[1:], names, strict=True):
        budget = next(row["budget"] for row in runs[0].ledger if row["constraint"] == name)
        style.clean(axes, title=f"{name.capitalize()} of an episode (budget {budget:g})")
        _curves(
            axes,
            runs,
            lambda row, name=name: row["costs"][name],
            lambda row, name=name: row.get("evaluation_costs", {}).get(name),
        )
        axes.axhline(budget, color=style.DANGER, linestyle=style.DASHES, linewidth=1.4)
        axes.set_ylim(bottom=0.0)
    for axes in panels:
        _shade_phases(axes, runs[0].metrics)
    _steps_axis(panels[-1])
    left_over = _name_phases(panels[0], runs[0].metrics)
    lines = [line for line in panels[0].get_lines() if not str(line.get_label()).startswith("_")]
    style.legend(figure, [*lines, *left_over])
    return figure


def promises(run: VisionRun) -> Figure:
    """What the world model predicted of each epoch's cost and what it was, by constraint.

    An epoch is safe where its worst episode stays below the budget, and was foreseen where the mean stays below the
    pessimistic prediction.
    """
    _require_rows(run.ledger)
    names = list(dict.fromkeys(row["constraint"] for row in run.ledger))
    figure = style.blank(3.4 * len(names))
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    steps = {row["epoch"]: row["steps"] for row in run.metrics}
    for axes, name in zip(panels, names, strict=True):
        rows = [row for row in run.ledger if row["constraint"] == name]
        x = np.array([steps[row["epoch"]] for row in rows])
        style.clean(axes, title=f"{name.capitalize()} of an episode, predicted and realised")
        for key, label, look in (
            ("realised_max_cost", "realised, worst", {"color": style.BLACK, "linestyle": style.DOTS}),
            ("realised_mean_cost", "realised, mean", {"color": style.BLACK, "marker": "o"}),
            ("predicted_pessimistic_cost", "predicted, pessimistic", {"color": style.BLUE, "marker": "D"}),
            ("predicted_cost", "predicted, mean", {"color": style.SKY, "marker": "s"}),
        ):
            axes.plot(x, _numbers([row[key] for row in rows]), label=label, markersize=3.5, linewidth=1.4, **look)
        budget = rows[-1]["budget"]
        axes.axhline(budget, color=style.DANGER, linestyle=style.DASHES, linewidth=1.4, label=f"budget {budget:g}")
        axes.set_ylim(bottom=0.0)
        _shade_phases(axes, run.metrics)
    _steps_axis(panels[-1])
    left_over = _name_phases(panels[0], run.metrics)
    style.legend(figure, [*panels[0].get_lines(), *left_over])
    return figure


def _require_rows(rows: Sequence[Any]) -> None:
    if not rows:
        raise ValueError("got no epochs to draw; expected at least one: train a run first")


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """As an array, NaN for what is not known."""
    return np.array([np.nan if value is None else value for value in values], float)


def _curves(axes: Axes, runs: Sequence[VisionRun], trained: Any, evaluated: Any) -> None:
    for algorithm in style.in_order(run.algorithm for run in runs):
        look = style.look(algorithm)
        chosen = [run for run in runs if run.algorithm == algorithm]
        length = min(len(run.metrics) for run in chosen)
        steps = np.mean([[row["steps"] for row in run.metrics[:length]] for run in chosen], axis=0)
        values = np.stack([_numbers([trained(row) for row in run.metrics[:length]]) for run in chosen])
        axes.fill_between(steps, values.min(axis=0), values.max(axis=0), color=look.colour, alpha=0.18, linewidth=0)
        axes.plot(steps, values.mean(axis=0), color=look.colour, linewidth=1.6, label=look.label)
        rows = [row for run in chosen for row in run.metrics if evaluated(row) is not None]
        if rows:
            label, mark = f"{look.label}, evaluated", {"color": look.colour, "markersize": 4.5, "mec": "white"}
            axes.plot([row["steps"] for row in rows], list(map(evaluated, rows)), look.marker, label=label, **mark)


def _shade_phases(axes: Axes, metrics: Sequence[Mapping[str, Any]]) -> None:
    for phase, (begun, ended) in _phases(metrics).items():
        if phase in PHASE_SHADES:
            axes.axvspan(begun, ended, color=PHASE_SHADES[phase], linewidth=0, zorder=0)


def _name_phases(axes: Axes, metrics: Sequence[Mapping[str, Any]]) -> list[Patch]:
    """Names where there is room for them; what the others are to be told apart by, for a legend."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.12 * (high - low))
    left, right = axes.get_xlim()
    left_over = []
    for phase, (begun, ended) in _phases(metrics).items():
        name = phase.replace("_", "-")
        if ended - begun < ROOM_FOR_NAME * (right - left):
            left_over.append(Patch(color=PHASE_SHADES.get(phase, "white"), label=name))
            continue
        place = {"transform": axes.get_xaxis_transform(), "ha": "center", "va": "top", "clip_on": True}
        axes.text(0.5 * (begun + ended), 0.98, name, fontsize=style.SMALL, color=style.INK, **place)
    return left_over


def _phases(metrics: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """The steps at which each phase begins and ends."""
    found: dict[str, tuple[int, int]] = {}
    begun = 0
    for row in metrics:
        found[row["phase"]] = found.get(row["phase"], (begun, 0))[0], row["steps"]
        begun = row["steps"]
    return found


def _steps_axis(axes: Axes) -> None:
    axes.set_xlim(left=0)
    axes.set_xlabel(STEPS, fontsize=style.NORMAL, color=style.INK)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))

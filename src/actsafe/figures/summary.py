"""The paper's summary figure: how well a task is solved zero-shot, and what exploring had cost until then."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from actsafe.figures import style
from actsafe.figures.coordinates import view

EPISODES, REFERENCE = "episodes of exploration", "planner with the true model"
Runs = Mapping[str, Sequence[Mapping[str, Any]]]
"""The runs of one problem by algorithm."""


def summary(
    problem_name: str,
    runs: Sequence[Mapping[str, Any]],
    *,
    reference_return: float | None = None,
    with_scatter: bool = False,
) -> Figure:
    """Swing-up return per episode beside cumulative exploration cost, for all `runs` of a problem in a results file.

    Returns: median and interquartile range over seeds. Costs: median and full range over seeds, because the safety of
    most must not hide the one that was unsafe. `reference_return` is that of a planner that knows the true model.
    `with_scatter` adds the final objective against total cost, a mark per seed. A return that is null in all seeds was
    not evaluated and is skipped; one that is null in some leaves a gap.

    *Deviation:* the paper does not define its normalised objective. Ours is (J - J_0) / (J_ref - J_0), with J_0 the
    median over all runs of the first return evaluated.
    """
    grouped = _by_algorithm(problem_name, runs)
    usual = view(problem_name).budget
    budget = min(float(run.get("budget", usual)) for group in grouped.values() for run in group)
    if with_scatter and reference_return is None:
        raise ValueError("with_scatter got reference_return=None; expected the return that counts as 1: pass it too")

    figure = style.blank(3.7 if with_scatter else 4.0)
    panels = figure.subplots(1, 3 if with_scatter else 2, squeeze=False)[0]
    _returns(panels[0], grouped, reference_return)
    _costs(panels[1], grouped, budget)
    if with_scatter and reference_return is not None:
        _scatter(panels[2], grouped, reference_return)
    style.legend(figure, [_handle(algorithm, grouped[algorithm]) for algorithm in grouped])
    return figure


def _by_algorithm(problem_name: str, runs: Sequence[Mapping[str, Any]]) -> Runs:
    chosen = [run for run in runs if run["problem"] == problem_name]
    if not chosen:
        got = f"runs of {', '.join(sorted({run['problem'] for run in runs}))} only" if runs else "no runs"
        raise ValueError(f"got {got}; expected at least one of {problem_name}: run that first, or name another problem")
    names = style.in_order(run["algorithm"] for run in chosen)
    return {name: [run for run in chosen if run["algorithm"] == name] for name in names}


def _table(runs: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    """One value per [seed, episode]; NaN for null."""
    lengths = {run["seed"]: len(run[key]) for run in runs}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise ValueError(
            f"the runs of {runs[0]['algorithm']} have {key} for these numbers of episodes, by seed: {lengths}; "
            "expected the same number, at least 1, in each: finish the runs that are short, or leave them out"
        )
    return np.array([run[key] for run in runs], dtype=float)


def _cumulative_costs(runs: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Cost so far per [seed, episode]; infinite from the first cost that is not finite."""
    costs = _table(runs, "exploration_cost")
    return np.cumsum(np.where(np.isfinite(costs), costs, np.inf), axis=1)


def _first_known(values: Sequence[float | int | None]) -> float:
    """The first value that is not null, NaN where all are: tasks are not always evaluated after every episode."""
    return next((float(value) for value in values if value is not None), float("nan"))


def _line(
    axes: Axes, algorithm: str, episodes: np.ndarray, values: np.ndarray, low: np.ndarray, high: np.ndarray
) -> None:
    """Draw a median and its band, each line thinner than those under it, so that equal ones show."""
    drawn = style.look(algorithm)
    thickness = max(1.0, 1.5 - 0.15 * len(axes.get_lines()))
    axes.fill_between(episodes, low, high, color=drawn.colour, alpha=0.18, linewidth=0.0, zorder=2)
    axes.plot(
        episodes,
        np.where(np.isfinite(values), values, np.nan),
        color=drawn.colour,
        marker=drawn.marker,
        markersize=3.6 * thickness,
        linewidth=1.5 * thickness,
        clip_on=False,
        zorder=3,
        label=drawn.label,
    )


def _returns(axes: Axes, grouped: Runs, reference_return: float | None) -> None:
    style.clean(axes, title="Zero-shot swing-up return", xlabel=EPISODES, ylabel="median, quartiles over seeds")
    for algorithm, runs in grouped.items():
        table = _table(runs, "swing_up_return")
        evaluated = np.flatnonzero(np.any(np.isfinite(table), axis=0))
        low, median, high = np.quantile(table[:, evaluated], [0.25, 0.5, 0.75], axis=0)
        _line(axes, algorithm, evaluated + 1, median, low, high)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if reference_return is not None:
        axes.axhline(reference_return, color=style.INK, linestyle=style.DOTS, linewidth=1.5, label=REFERENCE)
        axes.margins(y=0.1)
        at = {"transform": axes.get_yaxis_transform(), "va": "bottom"}
        axes.text(0.02, reference_return, REFERENCE, fontsize=style.SMALL, color=style.INK, **at)


def _costs(axes: Axes, grouped: Runs, budget: float) -> None:
    style.clean(axes, title="Cumulative exploration cost", xlabel=EPISODES, ylabel="median, full range over seeds")
    largest, spotless = 0.0, []
    longest = max(len(run["exploration_cost"]) for runs in grouped.values() for run in runs)
    axes.set_xlim(1 - 0.05 * longest, longest + 0.05 * longest)
    for algorithm, runs in grouped.items():
        paid = _cumulative_costs(runs)
        worst = paid.max(axis=0)
        finite = np.where(np.isfinite(worst), worst, np.nan)
        _line(axes, algorithm, np.arange(1, len(worst) + 1), np.median(paid, axis=0), paid.min(axis=0), finite)
        style.mark_unbounded(axes, np.flatnonzero(np.isinf(worst)) + 1, style.look(algorithm).colour)
        largest = max(largest, float(np.max(worst, where=np.isfinite(worst), initial=0.0)))
        if worst[-1] == 0.0:
            spotless.append(style.look(algorithm))
    if budget > 0.0:
        allowed = np.arange(1, longest + 1) * budget
        look = {"color": style.DANGER, "linestyle": style.DASHES, "linewidth": 1.4}
        budget_line = axes.plot(allowed / budget, allowed, **look, label=f"budget, {budget:g} per episode")
        largest = max(largest, float(allowed[-1]))
        axes.legend(handles=budget_line, fontsize=style.SMALL, labelcolor=style.DANGER, frameon=False)
    style.scale_cost(axes, largest)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if spotless:
        text, colour = "exactly 0", style.INK
        if len(spotless) == 1:
            text, colour = f"{spotless[0].label}: exactly 0", spotless[0].colour
        place = {"xytext": (0, 7), "textcoords": "offset points", "ha": "right", "va": "bottom"}
        axes.annotate(text, (longest, 0.0), **place, fontsize=style.SMALL, color=colour, zorder=5)


def _scatter(axes: Axes, grouped: Runs, reference_return: float) -> None:
    style.clean(axes, title="Objective against cost", xlabel="total exploration cost", ylabel="normalised final return")
    start = float(np.median([_first_known(run["swing_up_return"]) for runs in grouped.values() for run in runs]))
    if not reference_return > start:
        raise ValueError(
            f"got reference_return={reference_return} and a median return of {start} at first; expected the "
            "reference to be better, or nothing can be normalised: check it, or leave the scatter out"
        )
    largest = 0.0
    for algorithm, runs in grouped.items():
        drawn = style.look(algorithm)
        paid = _cumulative_costs(runs)[:, -1]
        final = np.array([_first_known(run["swing_up_return"][::-1]) for run in runs])
        achieved = (final - start) / (reference_return - start)
        axes.plot(
            paid, achieved, drawn.marker, color=drawn.colour, alpha=0.8, markeredgecolor="white", label=drawn.label
        )
        largest = max(largest, float(np.max(paid, where=np.isfinite(paid), initial=0.0)))
        unbounded = np.isinf(paid)
        at_right = axes.get_yaxis_transform()
        axes.plot(np.full(unbounded.sum(), 0.97), achieved[unbounded], ">", color=drawn.colour, transform=at_right)
    style.scale_cost(axes, largest, along="x")
    axes.axhline(1.0, color=style.INK, linestyle=style.DOTS, linewidth=1.5, zorder=1)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -0.05), max(high, 1.1))


def _handle(algorithm: str, runs: Sequence[Mapping[str, Any]]) -> Line2D:
    """A legend entry that also says in how many runs the last evaluation ended upright."""
    drawn = style.look(algorithm)
    num_upright = sum(_first_known(run["upright"][::-1]) == 1.0 for run in runs)
    label = f"{drawn.label}\nupright {num_upright} of {len(runs)}"
    return Line2D([], [], color=drawn.colour, marker=drawn.marker, markersize=5, linewidth=1.8, label=label)

"""How well tasks are solved, and what that had cost: of all runs of an environment, as a results file has them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from actsafe.evidence.ledger import LedgerRow
from actsafe.figures import panels, style
from actsafe.training import results

REFERENCE, TRAINED, EVALUATED = "planner with the true model", "in training", "evaluated"
SO_FAR = "budget, "
"""How the label begins of a budget that grows with the episodes."""
Run = Mapping[str, Any]
"""An entry of `runs` in a results file."""
Grouped = Mapping[str, Sequence[Run]]
"""Runs by algorithm, in the order in which they are drawn."""


def summary(
    runs: Sequence[Run], *, reference: Mapping[str, Any] | None = None, with_scatter: bool | None = None
) -> Figure:
    """Returns of every task, and for every constraint the cost of an episode and the cost so far.

    Returns: of evaluations, median and quartiles over seeds, and thinner, where the task's policy acts in training,
    the mean return of an epoch. Costs: median and full range over seeds, because the safety of most must not hide the
    one that was unsafe; so far, of the episodes that the algorithm answers for. `reference` is that of a results file:
    what a planner reaches that knows the true model. `with_scatter` adds the final objective of the runs' task against
    total cost, a mark per seed; by default where the reference is better than where the runs began. A return that is
    null in all seeds was not evaluated and is skipped; one that is null in some leaves a gap.

    *Deviation:* the paper does not define its normalised objective. Ours is (J - J_0) / (J_ref - J_0), with J_0 the
    median over all runs of the first return evaluated.
    """
    if not runs:
        raise ValueError("got no runs; expected at least one: train a run first")
    subjects = sorted({f"{run['env']} ({run['task']})" for run in runs})
    if len(subjects) > 1:
        raise ValueError(f"got runs of {' and '.join(subjects)}; expected one environment and task: draw them apart")
    names = style.in_order(run["algorithm"] for run in runs)
    grouped = {name: [run for run in runs if run["algorithm"] == name] for name in names}
    best = {task: found["constrained"]["median_return"] for task, found in (reference or {}).get("tasks", {}).items()}
    evaluated = dict.fromkeys(task for run in runs for epoch in run["epochs"] for task in epoch["evaluation"])
    tasks = evaluated or [runs[0]["task"]]
    drawn: list[Callable[[Axes], None]] = []
    drawn += [lambda axes, task=task: _returns(axes, grouped, task, best.get(task)) for task in tasks]
    drawn += [lambda axes, name=name: _costs(axes, grouped, name) for name in runs[0]["budgets"]]
    drawn += [lambda axes, name=name: _costs_so_far(axes, grouped, name) for name in runs[0]["budgets"]]
    mark = best.get(runs[0]["task"])
    if with_scatter or (with_scatter is None and mark is not None and mark > _start(grouped)):
        drawn.append(lambda axes: _scatter(axes, grouped, mark))
    figure = style.blank(0.7 + 2.9 * -(-len(drawn) // 2))
    grid = figure.subplots(-(-len(drawn) // 2), 2, squeeze=False).ravel()
    for axes, draw in zip(grid, drawn, strict=False):
        draw(axes)
    for axes in grid[len(drawn) :]:
        axes.set_axis_off()
    style.legend(figure, [*(_handle(name, own) for name, own in grouped.items()), *_others(list(grid), grouped)])
    return figure


def axis_of(runs: Sequence[Run]) -> tuple[str, str]:
    """What epochs are drawn against, and the entry that has it: episodes where an epoch is one, else steps."""
    counts_episodes = all(epoch["episodes"] <= 1 for run in runs for epoch in run["epochs"])
    return ("episode", "epoch") if counts_episodes else ("simulator steps", "steps")


def _table(runs: Sequence[Run], what: str, read: Callable[[Mapping[str, Any]], Any]) -> np.ndarray:
    """One value per [seed, epoch]; NaN for null."""
    lengths = {run["seed"]: len(run["epochs"]) for run in runs}
    if len(set(lengths.values())) != 1 or 0 in lengths.values():
        raise ValueError(
            f"the runs of {runs[0]['algorithm']} have {what} for these numbers of epochs, by seed: {lengths}; "
            "expected the same number, at least 1, in each: finish the runs that are short, or leave them out"
        )
    return np.array([[read(epoch) for epoch in run["epochs"]] for run in runs], dtype=float)


def _x(runs: Sequence[Run]) -> np.ndarray:
    _, entry = axis_of(runs)
    return np.mean(_table(runs, entry, lambda epoch: epoch[entry]), axis=0)


def _evaluated(task: str, entry: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda epoch: epoch["evaluation"].get(task, {}).get(entry)


def _frame(axes: Axes, grouped: Grouped, title: str, quantity: str) -> None:
    """An empty panel over episodes or steps, as wide as the longest run, under the phases of the first."""
    runs = [run for own in grouped.values() for run in own]
    xlabel, entry = axis_of(runs)
    longest = max(_x(own)[-1] for own in grouped.values())
    first, edge = (1, max(0.3, panels.EDGE * longest)) if entry == "epoch" else (0, panels.EDGE * longest)
    axes.set_xlim(first - edge, longest + edge)
    phases = panels.phase_spans(runs[0]["epochs"], entry)
    panels.frame(axes, phases if len(phases) > 1 else (), title=title, xlabel=xlabel, ylabel=quantity)


def _line(axes: Axes, grouped: Grouped, algorithm: str, x: np.ndarray, rows: np.ndarray, **look: Any) -> None:
    """Draw low, middle and high values; the first algorithm lies on top, thinner lines over thicker ones."""
    drawn, place = style.look(algorithm), list(grouped).index(algorithm)
    low, middle, high = rows
    bounds = (low, high) if len(grouped[algorithm]) > 1 else (None, None)
    curve = panels.Curve(drawn.label, x, middle, *bounds, drawn.colour, drawn.marker)._replace(**look)
    panels.draw(axes, curve, layer=3.0 + 0.01 * (len(grouped) - place))


def _returns(axes: Axes, grouped: Grouped, task: str, best: float | None) -> None:
    _frame(axes, grouped, f"Return of {task}" + _spread(grouped, "quartiles"), "return")
    for algorithm, runs in grouped.items():
        table = _table(runs, f"returns of {task}", _evaluated(task, "return"))
        known = np.flatnonzero(np.any(np.isfinite(table), axis=0))
        if task == runs[0]["task"] and any(epoch["role"] == "task" for run in runs for epoch in run["epochs"]):
            trained = np.median(_table(runs, "returns", lambda epoch: epoch["mean_return"]), axis=0)
            look = {"label": f"{style.look(algorithm).label}, {TRAINED}", "marker": None, "is_dotted": True}
            _line(axes, grouped, algorithm, _x(runs), np.stack([trained] * 3), **look)
        if len(known):
            quartiles = np.quantile(table[:, known], [0.25, 0.5, 0.75], axis=0)
            _line(axes, grouped, algorithm, _x(runs)[known], quartiles)
    low, high = axes.get_ylim()
    if high - low < 1e-6:
        axes.set_ylim(low - 1.0, high + 1.0)
    if best is not None:
        axes.axhline(best, color=style.INK, linestyle=style.DOTS, linewidth=1.5, label=REFERENCE)
        axes.margins(y=0.1)


def _spread(grouped: Grouped, what: str) -> str:
    return f": median, {what}" if any(len(runs) > 1 for runs in grouped.values()) else ""


def _costs(axes: Axes, grouped: Grouped, name: str) -> None:
    """Draw the cost of an episode, in training and of evaluations."""
    _frame(axes, grouped, f"{name} of an episode" + _spread(grouped, "range"), name)
    budget = _budget(grouped, name)
    largest = budget
    for algorithm, runs in grouped.items():
        costs = np.array([[results.mean_cost(row) for row in own] for own in _ledgers(runs, name)], dtype=float)
        finite = style.finite(costs)
        rows = np.stack([finite.min(axis=0), np.median(costs, axis=0), finite.max(axis=0)])
        _line(axes, grouped, algorithm, _x(runs), rows)
        style.mark_unbounded(axes, _x(runs)[np.any(np.isinf(costs), axis=0)], style.look(algorithm).colour)
        task = runs[0]["task"]
        paid = _table(runs, name, lambda epoch, task=task: epoch["evaluation"].get(task, {}).get("costs", {}).get(name))
        where = np.isfinite(paid)
        if np.any(where):
            x = np.broadcast_to(_x(runs), paid.shape)
            drawn = style.look(algorithm)
            look = {"color": drawn.colour, "markersize": 5.5, "markeredgecolor": "white", "zorder": 4}
            axes.plot(x[where], paid[where], drawn.marker, label=f"{drawn.label}, {EVALUATED}", **look)
        largest = style.most(largest, costs, paid)
    style.scale_cost(axes, largest)
    axes.axhline(budget, **style.LIMIT, label=f"budget of {name}: {budget:g}", zorder=2.5)


def _ledgers(runs: Sequence[Run], name: str) -> list[list[LedgerRow]]:
    """The rows of a constraint by seed, which are as many in each."""
    _table(runs, name, lambda epoch: epoch["epoch"])
    return [[row for row in results.ledger(run) if row.constraint == name] for run in runs]


def _budget(grouped: Grouped, name: str) -> float:
    return min(float(run["budgets"][name]) for runs in grouped.values() for run in runs)


def _paid(runs: Sequence[Run], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Cost so far and episodes so far per [seed, epoch], of those that the algorithm answers for.

    The cost is infinite from the first that is not known.
    """
    ledgers = _ledgers(runs, name)
    costs = [[results.total_cost(row) if row.is_judged else 0.0 for row in own] for own in ledgers]
    episodes = [[row.num_episodes if row.is_judged else 0 for row in own] for own in ledgers]
    return np.cumsum(costs, axis=1), np.cumsum(episodes, axis=1)


def _costs_so_far(axes: Axes, grouped: Grouped, name: str) -> None:
    _frame(axes, grouped, f"{name} so far" + _spread(grouped, "range"), f"sum of {name}")
    budget, largest, spotless = _budget(grouped, name), 0.0, []
    allowed, where = np.zeros(1), np.zeros(1)
    for algorithm, runs in grouped.items():
        paid, episodes = _paid(runs, name)
        worst = paid.max(axis=0)
        _line(axes, grouped, algorithm, _x(runs), np.stack([paid.min(axis=0), np.median(paid, axis=0), worst]))
        style.mark_unbounded(axes, _x(runs)[np.isinf(worst)], style.look(algorithm).colour)
        largest = style.most(largest, worst)
        if len(worst) >= len(allowed):
            allowed, where = budget * episodes.max(axis=0), _x(runs)
        if worst[-1] == 0.0:
            spotless.append(style.look(algorithm))
    if budget > 0.0:
        axes.plot(where, allowed, **style.LIMIT, label=f"{SO_FAR}{budget:g} per episode")
        largest = max(largest, float(allowed[-1]))
    style.scale_cost(axes, largest)
    if spotless:
        text, colour = "exactly 0", style.INK
        if len(spotless) == 1:
            text, colour = f"{spotless[0].label}: exactly 0", spotless[0].colour
        place = (axes.get_xlim()[1], 0.0)
        style.name(axes, text, place, (0, 7), color=colour, ha="right", va="bottom", zorder=5)


def _known(run: Run, entry: str) -> list[float]:
    """What the evaluations of a run's task say: they are not made after every epoch."""
    values = map(_evaluated(run["task"], entry), run["epochs"])
    return [float(value) for value in values if value is not None] or [np.nan]


def _start(grouped: Grouped) -> float:
    """The median of the first returns that were evaluated."""
    return float(np.median([_known(run, "return")[0] for runs in grouped.values() for run in runs]))


def _scatter(axes: Axes, grouped: Grouped, best: float | None) -> None:
    first = next(iter(grouped.values()))[0]
    task, name = first["task"], next(iter(first["budgets"]))
    style.clean(axes, title="Objective against cost", xlabel=f"total {name}", ylabel="normalised final return")
    start = _start(grouped)
    if best is None or not best > start:
        raise ValueError(
            f"got a reference return of {best} for {task} and a median return of {start} at first; expected the "
            "reference to be better, or nothing can be normalised: check it, or leave the scatter out"
        )
    largest = 0.0
    for algorithm, runs in grouped.items():
        drawn = style.look(algorithm)
        paid = _paid(runs, name)[0][:, -1]
        achieved = np.array([(_known(run, "return")[-1] - start) / (best - start) for run in runs])
        look = {"color": drawn.colour, "alpha": 0.8, "markeredgecolor": "white", "label": drawn.label}
        axes.plot(paid, achieved, drawn.marker, **look)
        largest = style.most(largest, paid)
        beyond = np.isinf(paid)
        at_right = axes.get_yaxis_transform()
        axes.plot(np.full(beyond.sum(), 0.97), achieved[beyond], ">", color=drawn.colour, transform=at_right)
    style.scale_cost(axes, largest, along="x")
    axes.axhline(1.0, color=style.INK, linestyle=style.DOTS, linewidth=1.5, zorder=1)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -0.05), max(high, 1.1))


def _handle(algorithm: str, runs: Sequence[Run]) -> Line2D:
    """A legend entry that also says how many episodes of the last evaluations ended at the goal."""
    drawn = style.look(algorithm)
    last = [results.last_known([epoch["evaluation"].get(run["task"]) for epoch in run["epochs"]]) for run in runs]
    known = [found for found in last if found is not None and found["goals"] is not None]
    label = drawn.label
    if known:
        goals, episodes = sum(each["goals"] for each in known), sum(each["episodes"] for each in known)
        label += f"\ngoal in {goals} of {episodes}"
    return Line2D([], [], color=drawn.colour, marker=drawn.marker, markersize=5, linewidth=1.8, label=label)


def _others(grid: Sequence[Axes], grouped: Grouped) -> list[Any]:
    """One legend entry for everything but the algorithms: budgets, the reference, phases."""
    found: dict[str, Any] = {}
    for axes in grid:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    drawn = tuple(style.look(name).label for name in grouped)
    named = {TRAINED: {"linestyle": style.DOTS}, EVALUATED: {"marker": "o", "linestyle": ""}}
    proxies = [
        Line2D([], [], color=style.GREY, label=name, **look)
        for name, look in named.items()
        if any(label.endswith(f", {name}") for label in found)
    ]
    # A budget has one entry, whether it is that of an episode or of all so far.
    return [*proxies, *(handle for label, handle in found.items() if not label.startswith((*drawn, SO_FAR)))]

"""The paper's figure of safe exploration: all trajectories so far in the state plane, and its boundary."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from actsafe.figures import style
from actsafe.figures.coordinates import OUTSIDE, Episodes, Series, View, require_view
from actsafe.problems.base import Problem

START, AT_REST = "start", "stays at rest"


def phase_plane(
    problem: Problem,
    trajectories: Mapping[str, Episodes],
    costs: Mapping[str, Series],
    *,
    after: Sequence[int] | None = None,
) -> Figure:
    """A row of state planes per algorithm, each with all episodes up to one of `after` (counted from 1).

    `trajectories[algorithm][episode]` are the states [T+1, state] of an episode, `costs[algorithm][episode]` its cost.
    By default `after` is four episodes evenly spread over those that every algorithm has.
    """
    view = require_view(problem)
    checked = _checked(view, trajectories, costs)
    num_episodes = min(len(episodes) for episodes in checked.values())
    spread = np.unique(np.linspace(1, num_episodes, 4).round().astype(int))
    after = [int(last) for last in (spread if after is None else after)]
    if not after or min(after) < 1 or max(after) > num_episodes:
        raise ValueError(
            f"after={after} asks for episodes that are not there; expected numbers from 1 to {num_episodes}, "
            "which every algorithm has: choose among those"
        )

    figure = style.blank(1.15 + 1.9 * len(checked))
    grid = figure.subplots(len(checked), len(after), sharex=True, sharey=True, squeeze=False)
    reaches = view.reaches(states for episodes in checked.values() for states in episodes)
    for row, (algorithm, episodes) in zip(grid, checked.items(), strict=True):
        for axes, last in zip(row, after, strict=True):
            _frame(axes, view, reaches)
            _draw(axes, view, episodes[:last], style.look(algorithm).colour)
            _cost_corner(axes, costs[algorithm][:last], view.budget)
        drawn = style.look(algorithm)
        row[0].set_ylabel(drawn.label, fontsize=style.LARGE, color=drawn.colour, fontweight="bold")
    for axes, last in zip(grid[0], after, strict=True):
        axes.set_title(f"after episode {last}", fontsize=style.LARGE, color=style.INK, pad=20)
    for axes in grid[-1]:
        axes.set_xlabel(view.plane.x.label, fontsize=style.NORMAL, color=style.INK)
    figure.supylabel(view.plane.y.label, fontsize=style.NORMAL, color=style.INK)
    _legend(figure)
    return figure


def _checked(
    view: View, trajectories: Mapping[str, Episodes], costs: Mapping[str, Series]
) -> dict[str, list[np.ndarray]]:
    """The trajectories as arrays, in the order in which algorithms are drawn."""
    if not trajectories:
        raise ValueError("got no trajectories; expected at least one algorithm: record an experiment first")
    checked = {}
    for algorithm in style.in_order(trajectories):
        episodes, paid = trajectories[algorithm], costs.get(algorithm, ())
        if not len(episodes) or len(episodes) != len(paid):
            raise ValueError(
                f"{algorithm} has {len(episodes)} trajectories and {len(paid)} costs; expected one of each "
                "per episode, and an episode at least: pass both from the same results file"
            )
        checked[algorithm] = [
            view.check(states, f"{algorithm}, episode {n}") for n, states in enumerate(episodes, start=1)
        ]
    return checked


def _frame(axes: Axes, view: View, reaches: tuple[float, float]) -> None:
    """An empty state plane: axes, and what lies beyond the limits hatched."""
    style.clean(axes)
    axes.spines[["top", "right"]].set_visible(True)
    axes.spines[:].set(color=style.GREY, linewidth=0.6)
    view.frame(axes, reaches)


def _draw(axes: Axes, view: View, episodes: Sequence[np.ndarray], colour: str) -> None:
    """Draw trajectories, the older ones fainter, and mark states beyond the limits, far ones at the edge."""
    fading = np.linspace(0.22, 0.5, max(len(episodes) - 1, 1))
    ends = [0.97 * axes.get_xlim()[1], 0.97 * axes.get_ylim()[1]]
    for episode, states in enumerate(episodes):
        is_latest = episode == len(episodes) - 1
        alpha, layer = (1.0, 3.0) if is_latest else (fading[episode], 2.8)
        width, name = 1.7 if is_latest else 1.1, f"episode {episode + 1}"
        axes.plot(*view.path(states), color=colour, alpha=alpha, linewidth=width, zorder=layer, label=name)
        broken = view.places(states[view.is_outside(states)])
        crosses = [np.clip(values, -end, end) for values, end in zip(broken, ends, strict=True)]
        axes.plot(*crosses, "x", color=style.DANGER, alpha=alpha, markersize=4, zorder=layer, label=OUTSIDE)
    start = view.places(episodes[0][:1])
    axes.plot(*start, "o", color="white", markeredgecolor=style.INK, markersize=4.5, zorder=5, label=START)
    if all(_is_still(view, states, ends) for states in episodes):
        style.name(axes, AT_REST, (start[0][0], start[1][0]), (0, 8), ha="center", va="bottom", zorder=5)


def _is_still(view: View, states: np.ndarray, ends: Sequence[float]) -> bool:
    """Whether an episode is a dot that the mark of its start hides."""
    places = zip(view.places(states), ends, strict=True)
    return all(bool(np.all(np.abs(values - values[0]) < 0.02 * end)) for values, end in places)


def _cost_corner(axes: Axes, costs: Series, budget: float) -> None:
    """Write what the latest and all episodes cost, in the colour of danger when one was beyond the budget."""
    paid = np.nan_to_num(style.finite(costs), nan=np.inf)
    text = f"cost {style.as_cost(paid[-1])}"
    if len(paid) > 1:
        text += f", all episodes {style.as_cost(paid.sum())}"
    colour = style.DANGER if np.any(paid > budget) else style.INK
    axes.text(0.0, 1.03, text, transform=axes.transAxes, va="bottom", fontsize=style.SMALL, color=colour)


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], linewidth=1.7, color=style.GREY, label="this episode"),
        Line2D([], [], linewidth=1.1, alpha=0.45, color=style.GREY, label="earlier ones"),
        Patch(facecolor=style.DANGER_SHADE, edgecolor=style.DANGER, hatch=style.HATCH, label="beyond the safety limit"),
        Line2D([], [], marker="x", color=style.DANGER, linestyle="", markersize=5, label="state outside"),
        Line2D([], [], marker="o", color="white", markeredgecolor=style.INK, linestyle="", markersize=5, label=START),
    ]
    style.legend(figure, handles)

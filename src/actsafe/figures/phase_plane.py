"""The paper's figure of safe exploration: all trajectories so far in the state plane, and its boundary."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from actsafe.figures import style
from actsafe.figures.coordinates import Episodes, Series, View, break_at_seam, view

OUTSIDE, START = "outside the limit", "start"


def phase_plane(
    problem_name: str,
    trajectories: Mapping[str, Episodes],
    costs: Mapping[str, Series],
    *,
    after: Sequence[int] | None = None,
) -> Figure:
    """A row of state planes per algorithm, each with all episodes up to one of `after` (counted from 1).

    `trajectories[algorithm][episode]` are the states [T+1, state] of an episode, `costs[algorithm][episode]` its cost.
    By default `after` is four episodes evenly spread over those that every algorithm has.
    """
    plane = view(problem_name)
    checked = _checked(plane, trajectories, costs)
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
    reach = _reach(plane, checked)
    for row, (algorithm, episodes) in zip(grid, checked.items(), strict=True):
        for axes, last in zip(row, after, strict=True):
            _frame(axes, plane, reach)
            _draw(axes, plane, episodes[:last], style.look(algorithm).colour, reach)
            _cost_corner(axes, costs[algorithm][:last], plane.budget)
        drawn = style.look(algorithm)
        row[0].set_ylabel(drawn.label, fontsize=style.LARGE, color=drawn.colour, fontweight="bold")
    for axes, last in zip(grid[0], after, strict=True):
        axes.set_title(f"after episode {last}", fontsize=style.LARGE, color=style.INK, pad=20)
    x_label, y_label = ("pole angle", plane.label) if plane.is_constrained_upwards else (plane.label, "pole angle")
    for axes in grid[-1]:
        axes.set_xlabel(x_label, fontsize=style.NORMAL, color=style.INK)
    figure.supylabel(y_label, fontsize=style.NORMAL, color=style.INK)
    _legend(figure)
    return figure


def _checked(
    plane: View, trajectories: Mapping[str, Episodes], costs: Mapping[str, Series]
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
            plane.check(states, f"{algorithm}, episode {n}") for n, states in enumerate(episodes, start=1)
        ]
    return checked


def _reach(plane: View, checked: Mapping[str, list[np.ndarray]]) -> float:
    """How far the axis of the constrained quantity extends: as far as was visited, up to thrice the limit."""
    visited = np.concatenate([plane.constrained(states) for episodes in checked.values() for states in episodes])
    farthest = float(np.max(np.abs(visited), where=np.isfinite(visited), initial=0.0))
    return max(plane.reach, min(1.06 * farthest, 3.0 * plane.limit))


def _frame(axes: Axes, plane: View, reach: float) -> None:
    """An empty state plane: axes, and what lies beyond the boundary hatched."""
    style.clean(axes)
    axes.spines[["top", "right"]].set_visible(True)
    axes.spines[:].set(color=style.GREY, linewidth=0.6)
    ticks, names = [-180, -90, 0, 90, 180], ["up", "", "hanging", "", "up"]
    if plane.is_constrained_upwards:
        axes.set(xlim=(-180, 180), ylim=(-reach, reach))
        axes.set_xticks(ticks, names)
        axes.set_yticks([-plane.limit, 0, plane.limit])
    else:
        axes.set(xlim=(-reach, reach), ylim=(-180, 180))
        axes.set_xticks([-plane.limit, 0, plane.limit] if reach < 2.0 * plane.limit else [-plane.limit, plane.limit])
        axes.set_yticks(ticks, names)
    along = "y" if plane.is_constrained_upwards else "x"
    style.forbid(axes, above=plane.limit, below=-plane.limit, along=along)


def _draw(axes: Axes, plane: View, episodes: Sequence[np.ndarray], colour: str, reach: float) -> None:
    """Draw trajectories, the older ones fainter, and mark states beyond the boundary, far ones at the edge."""
    fading = np.linspace(0.22, 0.5, max(len(episodes) - 1, 1))
    for episode, states in enumerate(episodes):
        is_latest = episode == len(episodes) - 1
        alpha, layer = (1.0, 3.0) if is_latest else (fading[episode], 2.8)
        angles, values = break_at_seam(plane.angle(states), plane.constrained(states))
        path = _ordered(plane, angles, values)
        width, name = 1.7 if is_latest else 1.1, f"episode {episode + 1}"
        axes.plot(*path, color=colour, alpha=alpha, linewidth=width, zorder=layer, label=name)
        broken = states[plane.is_outside(states)]
        crosses = _ordered(plane, plane.angle(broken), np.clip(plane.constrained(broken), -0.97 * reach, 0.97 * reach))
        axes.plot(*crosses, "x", color=style.DANGER, alpha=alpha, markersize=4, zorder=layer, label=OUTSIDE)
    first = episodes[0][:1]
    start = _ordered(plane, plane.angle(first), plane.constrained(first))
    axes.plot(*start, "o", color="white", markeredgecolor=style.INK, markersize=4.5, zorder=5, label=START)


def _ordered(plane: View, angles: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What goes on the x axis and what on the y axis, angles in degrees."""
    degrees = np.degrees(angles)
    return (degrees, values) if plane.is_constrained_upwards else (values, degrees)


def _cost_corner(axes: Axes, costs: Series, budget: float) -> None:
    """Write what the latest and all episodes cost, in the colour of danger when one was beyond the budget."""
    paid = np.where(np.isfinite(np.asarray(costs, dtype=float)), np.asarray(costs, dtype=float), np.inf)
    text = f"cost {style.as_cost(paid[-1])}"
    if len(paid) > 1:
        text += f", total {style.as_cost(paid.sum())}"
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

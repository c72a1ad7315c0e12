"""Where a model of the dynamics is unsure in the state plane, and how far exploration went there."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from actsafe.figures import panels, style
from actsafe.figures.coordinates import View, break_at_seam, view

RESOLUTION = 61
"""Points of the slice along either axis."""
LEVELS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.01)
"""Of doubt, as a share of what there is without data; below the first nothing is drawn."""
CELLS = 24
"""The plane is cut into so many cells along either axis, to count those that were visited."""

PLACES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "pendulum": lambda angle, speed: np.stack([-np.cos(angle), -np.sin(angle), speed], axis=-1),
    "cartpole": lambda angle, position: np.stack(
        [position, np.cos(angle), np.sin(angle), np.zeros_like(angle), np.zeros_like(angle)], axis=-1
    ),
}
"""The state at an angle from hanging and a value of the constrained quantity; what else it has is at rest."""


def plane_states(problem_name: str, reach: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Angles (radians) and values along the axes of the state plane, and the states [value, angle, state] there."""
    angles = np.linspace(-np.pi, np.pi, RESOLUTION)
    values = np.linspace(-reach, reach, RESOLUTION)
    return angles, values, PLACES[problem_name](*np.meshgrid(angles, values))


def reach_of(plane: View, episodes: Sequence[np.ndarray]) -> float:
    """How far the plane extends: as far as was visited, at least as the view says, at most thrice the limit."""
    visited = np.concatenate([np.abs(plane.constrained(states)) for states in episodes]) if episodes else np.zeros(1)
    farthest = float(np.max(visited, where=np.isfinite(visited), initial=0.0))
    return max(plane.reach, min(1.06 * farthest, 3.0 * plane.limit))


def doubt_slice(
    problem_name: str, doubt: np.ndarray, episodes: Sequence[np.ndarray], *, title: str, reach: float
) -> Figure:
    """A slice of the model's doubt [value, angle], darker where it knows less, under the states that were visited.

    `doubt` is a share of the doubt without data, at the states of `plane_states`.
    """
    plane = view(problem_name)
    angles, values, _ = plane_states(problem_name, reach)
    figure, axes = panels.blank(height=3.7)
    frame(axes, plane, reach, title=title)
    fills = [to_rgba(style.BLUE, strength) for strength in np.linspace(0.1, 0.85, len(LEVELS) - 1)]
    degrees = np.degrees(angles)
    grid = (degrees, values, doubt) if plane.is_constrained_upwards else (values, degrees, doubt.T)
    axes.contourf(*grid, LEVELS, colors=fills, zorder=1)
    for states in episodes:
        broken = break_at_seam(plane.angle(states), plane.constrained(states))
        path = ordered(plane, *broken)
        axes.plot(*path, color=style.ORANGE, linewidth=0.9, alpha=0.85, zorder=3)
    handles = [
        Patch(facecolor=fills[0], label="2 % of the doubt\nwithout data"),
        Patch(facecolor=fills[-1], label="70 % and more"),
        Line2D([], [], color=style.ORANGE, linewidth=1.2, label="visited"),
    ]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=3,
        fontsize=style.SMALL,
        frameon=False,
        labelcolor=style.INK,
        columnspacing=1.0,
        handletextpad=0.5,
    )
    return figure


def frame(axes: Axes, plane: View, reach: float, *, title: str) -> None:
    """An empty state plane with its safety limits."""
    style.clean(axes, title=title)
    axes.grid(visible=False)
    names = [-180, -90, 0, 90, 180], ["up", "", "hanging", "", "up"]
    if plane.is_constrained_upwards:
        axes.set(xlim=(-180, 180), ylim=(-reach, reach), xlabel="pole angle", ylabel=plane.label)
        axes.set_xticks(*names)
    else:
        axes.set(xlim=(-reach, reach), ylim=(-180, 180), ylabel="pole angle", xlabel=plane.label)
        axes.set_yticks(*names)
    line = axes.axhline if plane.is_constrained_upwards else axes.axvline
    for limit in (-plane.limit, plane.limit):
        line(limit, color=style.DANGER, linestyle=style.DASHES, linewidth=1.4, zorder=2.5)


def ordered(plane: View, angles: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What goes on the x axis and what on the y axis, angles in degrees."""
    degrees = np.degrees(angles)
    return (degrees, values) if plane.is_constrained_upwards else (values, degrees)


def visited_share(plane: View, episodes: Sequence[np.ndarray]) -> np.ndarray:
    """After each episode, the share of the plane's cells within the safety limit that were visited so far."""
    seen = np.zeros((CELLS, CELLS), bool)
    shares = []
    for states in episodes:
        inside = states[~plane.is_outside(states)]
        rows = np.clip((plane.angle(inside) + np.pi) / (2 * np.pi) * CELLS, 0, CELLS - 1).astype(int)
        columns = np.clip((plane.constrained(inside) / plane.limit + 1) / 2 * CELLS, 0, CELLS - 1).astype(int)
        seen[rows, columns] = True
        shares.append(seen.mean())
    return np.array(shares)


def visited_over_time(
    problem_name: str, by_seed: Sequence[Sequence[np.ndarray]], spans: Sequence[panels.Span]
) -> Figure:
    """How the visited share of the plane within the limit grows, a line per seed."""
    plane = view(problem_name)
    figure, axes = panels.blank(height=3.7)
    style.clean(axes, xlabel="episode", ylabel="share of cells visited")
    for number, episodes in enumerate(by_seed):
        shares = visited_share(plane, episodes)
        name = "a seed" if number == 0 else None
        axes.plot(np.arange(1, len(shares) + 1), shares, color=style.BLUE, alpha=0.75, marker="o", ms=3, label=name)
    axes.set_title("How far exploration went", fontsize=style.LARGE, color=style.INK, loc="left", pad=panels.RIBBON_PAD)
    axes.set_ylim(bottom=0.0)
    axes.margins(x=0.04)
    panels.name_phases(axes, spans)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure

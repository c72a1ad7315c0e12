"""Where a model of the dynamics is unsure in the state plane, and how far exploration went there."""

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from actsafe.figures import panels, style
from actsafe.figures.coordinates import View, drawn, limit_of
from actsafe.problems.base import Coordinate

RESOLUTION = 61
"""Points of the slice along either axis."""
LEVELS = (0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.01)
"""Of uncertainty, as a share of what there is without data; below the first nothing is drawn."""
CELLS = 24
"""Cells along either axis of the plane, of which those that were visited are counted."""


def plane_states(view: View, reaches: tuple[float, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values along x and y, angles in radians, and the states [y, x, state] of the plane there."""
    x, y = (np.linspace(-reach, reach, RESOLUTION) for reach in reaches)
    return x, y, view.plane.at(*np.meshgrid(x, y))


def uncertainty_slice(
    view: View, uncertainty: np.ndarray, episodes: Sequence[np.ndarray], *, title: str, reaches: tuple[float, float]
) -> Figure:
    """A slice of the model's uncertainty [y, x], darker where it knows less, under the states that were visited.

    `uncertainty` is a share of what there is without data, at the states of `plane_states`.
    """
    x, y, _ = plane_states(view, reaches)
    figure, axes = panels.blank(height=3.7)
    style.clean(axes, title=title, xlabel=view.plane.x.label, ylabel=view.plane.y.label)
    axes.grid(visible=False)
    fills = [to_rgba(style.BLUE, strength) for strength in np.linspace(0.1, 0.85, len(LEVELS) - 1)]
    axes.contourf(drawn(view.plane.x, x), drawn(view.plane.y, y), uncertainty, LEVELS, colors=fills, zorder=1)
    view.frame(axes, reaches)
    for states in episodes:
        axes.plot(*view.path(states), color=style.ORANGE, linewidth=0.9, alpha=0.85, zorder=3)
    handles = [
        Patch(facecolor=fills[0], label="2 % of what there is\nwithout data"),
        Patch(facecolor=fills[-1], label="70 % and more"),
        Line2D([], [], color=style.ORANGE, linewidth=1.2, label="visited"),
    ]
    style.legend(figure, handles)
    return figure


def visited_share(view: View, episodes: Sequence[np.ndarray]) -> np.ndarray:
    """After each episode, the share of the plane's cells within the safety limit that were visited so far."""
    seen = np.zeros((CELLS, CELLS), bool)
    shares = []
    for states in episodes:
        inside = states[~view.is_outside(states)]
        seen[_cells(view.plane.y, inside), _cells(view.plane.x, inside)] = True
        shares.append(seen.mean())
    return np.array(shares)


def _cells(coordinate: Coordinate, states: np.ndarray) -> np.ndarray:
    """Of each state, its place on a coordinate that is cut into cells, from limit to limit."""
    return np.clip((coordinate.read(states) / limit_of(coordinate) + 1) / 2 * CELLS, 0, CELLS - 1).astype(int)


def visited_over_time(view: View, by_seed: Sequence[Sequence[np.ndarray]], spans: Sequence[panels.Span]) -> Figure:
    """How the visited share of the plane within the limit grows, a line per seed."""
    figure, axes = panels.blank(height=3.7)
    for number, episodes in enumerate(by_seed):
        shares = visited_share(view, episodes)
        name = "a seed" if number == 0 else None
        axes.plot(np.arange(1, len(shares) + 1), shares, color=style.BLUE, alpha=0.75, marker="o", ms=3, label=name)
    axes.set_ylim(bottom=0.0)
    axes.margins(x=0.04)
    panels.frame(axes, spans, title="How far exploration went", xlabel="episode", ylabel="share of cells visited")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    return figure

"""One evaluation episode: poses as on a film strip, the angle, and the quantity that the safety constraint limits."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from actsafe.figures import style
from actsafe.figures.coordinates import OUTSIDE, Series, View, require_view
from actsafe.problems.base import Problem

TASK = "swing_up"
NUM_POSES = 11
UPRIGHT_COSINE = 0.95
"""A rod counts as upright within this cosine of the top."""
_HEIGHT, _LEFT, _RIGHT = 5.0, 0.115, 0.985
_STRIP = (0.775, 0.165)
"""Bottom and height of the film strip, as shares of the figure's height."""


def swing_up_strip(problem: Problem, states: np.ndarray, costs: Series) -> Figure:
    """An episode over time: poses, the angle with the upright band, the constrained quantity with its limit.

    `states` are [T+1, state], `costs` the cost of each of the T decisions.
    """
    view = require_view(problem)
    states = view.check(states, "the episode")
    if not np.all(np.isfinite(states)):
        row = int(np.argmin(np.all(np.isfinite(states), axis=1)))
        raise ValueError(
            f"state {row} of the episode is {states[row]}; expected finite numbers: pass the states before it"
        )
    if len(costs) != len(states) - 1:
        raise ValueError(
            f"got {len(costs)} costs for {len(states)} states; expected one per decision, {len(states) - 1}: "
            "pass the states with the one before the first decision, and the costs without its cost"
        )
    seconds = np.arange(len(states)) * view.plane.decision_seconds

    figure = style.blank(_HEIGHT, layout=None)
    strip = figure.add_axes((_LEFT, _STRIP[0], _RIGHT - _LEFT, _STRIP[1]))
    upper = figure.add_axes((_LEFT, 0.44, _RIGHT - _LEFT, 0.29))
    lower = figure.add_axes((_LEFT, 0.11, _RIGHT - _LEFT, 0.27))
    pause = 0.5 * seconds[-1] / (NUM_POSES - 1)
    for axes in (strip, upper, lower):
        axes.set_xlim(-pause, seconds[-1] + pause)
    _poses(strip, view, states, seconds)
    _angle(upper, view, states, seconds)
    _constrained(lower, view, states, seconds)
    _title(figure, problem.name, view, states, costs)
    for axes in (upper, lower):
        axes.yaxis.set_label_coords(-0.1, 0.5)
    return figure


def _poses(axes: Axes, view: View, states: np.ndarray, seconds: np.ndarray) -> None:
    """Draw the rod at a few times, each over its own time on the axes below; equal scales without changing the box."""
    axes.set_axis_off()
    low, high = axes.get_xlim()
    height = (high - low) * (_STRIP[1] * _HEIGHT) / ((_RIGHT - _LEFT) * style.WIDTH_INCHES)
    axes.set_ylim(-0.5 * height, 0.5 * height)
    rows = np.unique(np.linspace(0, len(states) - 1, NUM_POSES).round().astype(int))
    spacing = seconds[-1] / (NUM_POSES - 1)
    rod = min(0.44 * height, 0.62 * spacing / (1.0 + view.plane.rail))
    angles, bases, is_outside = view.rod[0].read(states), view.bases(states), view.is_outside(states)
    for strength, row in zip(np.linspace(0.4, 1.0, len(rows)), rows, strict=True):
        held = float(seconds[row] + rod * bases[row])
        tip = held + rod * math.sin(angles[row]), -rod * math.cos(angles[row])
        colour = _tint(style.DANGER if is_outside[row] else style.BLUE, strength)
        axes.plot([held, tip[0]], [0.0, tip[1]], color=colour, linewidth=3.2, solid_capstyle="round", zorder=3)
        axes.plot(*tip, "o", color=colour, markersize=6.5, zorder=3)
        axes.plot(held, 0.0, "s" if view.plane.rail else "o", color=style.INK, markersize=5, zorder=4, label="base")
        if view.plane.rail:
            ends = seconds[row] + rod * view.plane.rail * np.array([-1.0, 1.0])
            axes.plot(ends, [0.0, 0.0], color=style.DANGER, marker="|", markersize=7, linewidth=0.8, zorder=2)


def _tint(colour: str, strength: float) -> tuple[float, ...]:
    """`colour` over white: unlike transparency, it does not darken where two parts overlap."""
    return tuple(1.0 - strength * (1.0 - part) for part in to_rgb(colour))


def _angle(axes: Axes, view: View, states: np.ndarray, seconds: np.ndarray) -> None:
    """Draw the angle without jumps, so that more than one turn shows as such."""
    style.clean(axes, ylabel="pole angle")
    degrees = np.degrees(np.unwrap(view.rod[0].read(states)))
    low, high = min(-90.0, degrees.min() - 25.0), max(90.0, degrees.max() + 25.0)
    if max(-degrees.min(), degrees.max()) < 180.0:
        low, high = (-205.0, high) if -degrees.min() > degrees.max() else (low, 205.0)
    axes.set_ylim(low, high)
    width = np.degrees(np.arccos(UPRIGHT_COSINE))
    turns = np.arange(np.floor(low / 180.0), np.ceil(high / 180.0) + 1).astype(int)
    for turn in turns[turns % 2 == 1]:
        axes.axhspan(180 * turn - width, 180 * turn + width, color=_tint(style.GREEN, 0.2), linewidth=0.0, zorder=0.5)
    axes.set_yticks(turns * 180, ["upright" if turn % 2 else "hanging" for turn in turns])
    axes.set_ylim(low, high)
    axes.plot(seconds, degrees, color=style.BLUE, linewidth=2.0, zorder=3, label="angle")
    axes.tick_params(labelbottom=False)


def _constrained(axes: Axes, view: View, states: np.ndarray, seconds: np.ndarray) -> None:
    coordinate, limit = view.rod[1], view.limit
    quantity, unit = coordinate.label.rsplit(" (", 1)
    style.clean(axes, xlabel="time (s)", ylabel=f"{quantity.split()[-1]} ({unit}")
    values = coordinate.read(states)
    axes.set_ylim(-view.span(states), view.span(states))
    axes.set_yticks([-limit, 0.0, limit])
    style.forbid(axes, above=limit, below=-limit)
    axes.plot(seconds, values, color=style.BLUE, linewidth=2.0, zorder=3, label=quantity)
    is_outside = view.is_outside(states)
    axes.plot(seconds[is_outside], values[is_outside], "x", color=style.DANGER, markersize=5, zorder=4, label=OUTSIDE)


def _title(figure: Figure, problem_name: str, view: View, states: np.ndarray, costs: Series) -> None:
    total = float(np.sum(np.nan_to_num(style.finite(costs), nan=np.inf)))
    is_up = bool(np.cos(view.rod[0].read(states[-1])) < -UPRIGHT_COSINE)
    ending = "ends upright" if is_up else "does not end upright"
    text = f"{problem_name.capitalize()}: {ending}, cost {style.as_cost(total)} (budget {view.budget:g})"
    colour = style.DANGER if total > view.budget else style.INK
    figure.text(_LEFT, 0.985, text, ha="left", va="top", fontsize=style.LARGE, color=colour)

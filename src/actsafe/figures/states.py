"""Every coordinate of a state over an episode, for problems that declare no plane to draw their states in."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from actsafe.figures import style
from actsafe.figures.coordinates import Episodes

NUM_COLUMNS, MOST_COORDINATES = 3, 12


def state_coordinates(names: Sequence[str], trajectories: Mapping[str, Episodes]) -> Figure:
    """A panel per coordinate, at most twelve, with all episodes [T+1, state] of every algorithm, the last in bold."""
    if not trajectories or not all(len(episodes) for episodes in trajectories.values()):
        raise ValueError("got no trajectories; expected at least one episode of every algorithm: train a run first")
    shown = list(names)[:MOST_COORDINATES]
    num_rows = -(-len(shown) // NUM_COLUMNS)
    figure = style.blank(0.8 + 1.8 * num_rows)
    grid = figure.subplots(num_rows, NUM_COLUMNS, sharex=True, squeeze=False).ravel()
    algorithms = style.in_order(trajectories)
    for place, (axes, name) in enumerate(zip(grid, shown, strict=False)):
        style.clean(axes, title=name, xlabel="decision" if place >= len(shown) - NUM_COLUMNS else "")
        for algorithm in algorithms:
            *earlier, last = [np.asarray(states, dtype=float)[:, place] for states in trajectories[algorithm]]
            for values in earlier:
                axes.plot(values, color=style.look(algorithm).colour, alpha=0.3, linewidth=0.9)
            axes.plot(last, color=style.look(algorithm).colour, linewidth=1.8, label=style.look(algorithm).label)
        axes.tick_params(labelbottom=True)
    for axes in grid[len(shown) :]:
        axes.set_axis_off()
    looks = [style.look(algorithm) for algorithm in algorithms]
    handles = [Line2D([], [], color=look.colour, linewidth=1.8, label=f"{look.label}, last episode") for look in looks]
    faint = Line2D([], [], color=style.GREY, alpha=0.4, linewidth=0.9, label="earlier ones")
    style.legend(figure, [*handles, faint])
    return figure

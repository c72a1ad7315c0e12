"""How the safe set grows inside the reachable set over the episodes: the paper's schematic, from a run."""

import dataclasses
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from actsafe.figures import style

MOMENTS = (0.03, 0.4)
"""The first panels show when this share of the policies that ever joined had joined; the last one shows the end."""
SAFE = "#8CC3E6"
"""The safe set: lighter than its seed."""


@dataclasses.dataclass(frozen=True)
class Growth:
    """One run over a policy class with two parameters; all but `actions` and `deployed` are [first, second]."""

    actions: np.ndarray
    """Values of either parameter."""
    joined: np.ndarray
    """The episode from which on a policy was known to be safe, -1 for never."""
    is_reachable: np.ndarray
    is_unsafe: np.ndarray
    """Which policies truly break the budget."""
    deployed: np.ndarray
    """Policies tried, one per episode, counted through."""
    final: int
    """The policy chosen in the end, counted through."""


def safe_set_growth(growth: Growth) -> Figure:
    """Three moments of the safe set among all policies, above its size over the episodes."""
    figure = style.blank(6.2)
    grid = figure.add_gridspec(2, 3, height_ratios=(1.35, 1.0))
    for column, episode in enumerate(_moments(growth)):
        axes = figure.add_subplot(grid[0, column])
        _draw_moment(axes, growth, episode, is_last=column == len(MOMENTS))
        if column:
            axes.set_ylabel("")
            axes.tick_params(labelleft=False)
    _draw_size(figure.add_subplot(grid[1, :]), growth)
    handles = [
        Patch(facecolor=style.BLUE, label="$S_0$"),
        Patch(facecolor=SAFE, label="safe set $S_n$"),
        Line2D([], [], color=style.INK, linewidth=1.6, label="edge of what is reachable, $R^ε_H(S_0)$"),
        Line2D([], [], color=style.ORANGE, marker="o", markersize=4, linestyle="", label="tried"),
        Line2D([], [], color=style.BLACK, marker="*", markersize=10, linestyle="", label="chosen in the end"),
        Patch(facecolor=style.DANGER_SHADE, edgecolor=style.DANGER, hatch=style.HATCH, label="truly unsafe"),
    ]
    style.legend(figure, handles)
    return figure


def _moments(growth: Growth) -> list[int]:
    """The episodes at which the panels look."""
    joins = np.sort(growth.joined[growth.joined > 0])
    if not joins.size:
        return [0, 0, len(growth.deployed)]
    early, middle = (int(joins[int(share * (joins.size - 1))]) for share in MOMENTS)
    return [early, middle, len(growth.deployed)]


def _draw_moment(axes: Axes, growth: Growth, episode: int, *, is_last: bool) -> None:
    style.clean(axes, title=f"after {episode} episodes", xlabel="first action", ylabel="second action")
    axes.grid(visible=False)
    values = growth.actions
    is_safe = (growth.joined >= 0) & (growth.joined <= episode)
    step = values[1] - values[0]
    edges = np.append(values, values[-1] + step) - 0.5 * step
    for is_member, colour in ((is_safe, SAFE), (growth.joined == 0, style.BLUE)):
        members = np.ma.masked_where(~is_member, is_member).T
        axes.pcolormesh(edges, edges, members, cmap=ListedColormap([colour]), rasterized=True)
    # Contours halfway between policies that are members and policies that are not.
    if growth.is_unsafe.any():
        look: dict[str, Any] = {"colors": [style.DANGER_SHADE], "hatches": [style.HATCH]}
        shaded = axes.contourf(values, values, growth.is_unsafe.T.astype(float), [0.5, 1.5], **look)
        shaded.set_edgecolor(style.DANGER + "60")
        shaded.set_linewidth(0.0)
        axes.contour(values, values, growth.is_unsafe.T, [0.5], colors=[style.DANGER], linestyles=[style.DASHES])
    axes.contour(values, values, growth.is_reachable.T, [0.5], colors=[style.INK], linewidths=1.6)
    tried = growth.deployed[:episode]
    shape = growth.joined.shape
    first, second = np.unravel_index(np.unique(tried), shape)
    axes.plot(values[first], values[second], "o", color=style.ORANGE, markersize=2.6, markeredgewidth=0)
    if is_last:
        first, second = np.unravel_index(growth.final, shape)
        look = {"color": style.BLACK, "markersize": 13, "markeredgecolor": "white", "clip_on": False}
        axes.plot(values[first], values[second], "*", **look)
    ends = (edges[0], edges[-1])
    axes.set(xlim=ends, ylim=ends, aspect="equal")


def _draw_size(axes: Axes, growth: Growth) -> None:
    """Sizes over the episodes; the steps are episodes in which policies joined."""
    style.clean(axes, xlabel="episodes", ylabel="share of all policies")
    num_episodes = max(len(growth.deployed), 1)
    episodes = np.arange(num_episodes + 1)
    joins = np.sort(growth.joined[growth.joined >= 0])
    known = np.searchsorted(joins, episodes, side="right") / growth.joined.size
    axes.step(episodes, known, where="post", color=style.BLUE, linewidth=2.0)
    axes.set_xscale("symlog", linthresh=10.0, linscale=0.6)
    ticks = [tick for tick in (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000) if tick <= num_episodes]
    axes.set_xticks(ticks, [str(tick) for tick in ticks], minor=False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, num_episodes)
    axes.set_ylim(0.0, 1.05)
    reachable, safe = float(np.mean(growth.is_reachable)), 1.0 - float(np.mean(growth.is_unsafe))
    axes.axhline(reachable, color=style.INK, linewidth=1.6)
    axes.axhline(safe, **style.LIMIT)
    style.name(axes, "truly safe", (0.0, safe), (6, 4), color=style.DANGER)
    style.name(axes, "reachable", (0.0, reachable), (6, 4))
    style.name(axes, "known to be safe", (num_episodes, float(known[-1])), (-6, 5), color=style.BLUE, ha="right")
    found = growth.joined[growth.is_reachable]
    if np.all(found >= 0):
        place = (float(np.max(found)), reachable)
        axes.plot(*place, "o", color=style.INK, markersize=6)
        is_late = place[0] > 0.2 * num_episodes
        text = f"all of it known after {np.max(found)} episodes"
        style.name(axes, text, place, (-8, 6) if is_late else (8, -13), ha="right" if is_late else "left")

"""States in the plane that their problem declares: which of them break a limit, and paths without lines across."""

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from actsafe.envs.make import is_pure
from actsafe.envs.problem import ProblemBatch
from actsafe.figures import style
from actsafe.problems.base import Coordinate, Plane, Problem
from actsafe.training.config import Config

OUTSIDE = "outside the limit"
Series = Sequence[float | int | None] | np.ndarray
"""Numbers as they come out of a results file, null for one that is not finite, or as an array."""
Episodes = Sequence[np.ndarray] | np.ndarray
"""The states of each episode, [T+1, state]."""


@dataclasses.dataclass(frozen=True)
class View:
    """The plane of a problem, and what figures need to know beside it."""

    plane: Plane
    state_dim: int
    budget: float

    def is_outside(self, states: np.ndarray) -> np.ndarray:
        """Whether each state breaks a limit; one that is not finite counts as breaking it."""
        is_inside = np.all(np.isfinite(states), axis=-1)
        for coordinate in (self.plane.x, self.plane.y):
            if coordinate.limit is not None:
                is_inside &= np.abs(coordinate.read(states)) <= coordinate.limit
        return ~is_inside

    def check(self, states: np.ndarray, what: str) -> np.ndarray:
        """`states` as an array [T+1, state], or an error that names `what`."""
        states = np.asarray(states, dtype=float)
        if states.ndim != 2 or states.shape[1] != self.state_dim or len(states) < 2:
            raise ValueError(
                f"{what} has shape {states.shape}; expected [T+1, {self.state_dim}] with at least two rows: "
                "pass the states of one episode, as the problem's state vector"
            )
        return states

    @property
    def rod(self) -> tuple[Coordinate, Coordinate]:
        """The angle of the rod, where the plane has one, and the other coordinate."""
        x, y = self.plane.x, self.plane.y
        return (x, y) if x.is_angle else (y, x)

    @property
    def limit(self) -> float:
        """Of the coordinate that is not the rod's angle."""
        return limit_of(self.rod[1])

    def span(self, states: np.ndarray) -> float:
        """How far a plot of that coordinate reaches: beyond its limit, and beyond all states."""
        return max(1.35 * self.limit, 1.08 * style.most(np.abs(self.rod[1].read(states))))

    def bases(self, states: np.ndarray) -> np.ndarray:
        """Where the rod is held, in rod lengths."""
        return np.zeros(len(states)) if self.plane.base is None else self.plane.base(states)

    def places(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where states are drawn, angles in degrees."""
        return drawn(self.plane.x, self.plane.x.read(states)), drawn(self.plane.y, self.plane.y.read(states))

    def path(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The line through states, angles in degrees, with a gap wherever one passes its seam."""
        x, y = self.plane.x.read(states), self.plane.y.read(states)
        if self.plane.x.is_angle:
            x, y = break_at_seam(x, y)
        elif self.plane.y.is_angle:
            y, x = break_at_seam(y, x)
        return drawn(self.plane.x, x), drawn(self.plane.y, y)

    def reaches(self, episodes: Iterable[np.ndarray]) -> tuple[float, float]:
        """How far the axes extend: as far as was visited, at least as the problem says, at most thrice the limit."""
        episodes = list(episodes)
        return _reach(self.plane.x, episodes), _reach(self.plane.y, episodes)

    def frame(self, axes: Axes, reaches: tuple[float, float]) -> None:
        """Give axes of the plane their limits and ticks, and shade what lies beyond the limits of the coordinates."""
        coordinates = zip("xy", (self.plane.x, self.plane.y), reaches, strict=True)
        for along, coordinate, reach in coordinates:
            end = float(drawn(coordinate, reach))
            axes.set(**{f"{along}lim": (-end, end)})
            axis = axes.xaxis if along == "x" else axes.yaxis
            if coordinate.names:
                values, names = zip(*coordinate.names, strict=True)
                axis.set_ticks(drawn(coordinate, np.array(values)), names)
            if coordinate.limit is not None:
                limit = float(drawn(coordinate, coordinate.limit))
                style.forbid(axes, above=limit, below=-limit, along=along)
                # Side by side there is room for few numbers along x.
                middle = [0.0] if along == "y" or reach < 2.0 * limit else []
                axis.set_ticks([-limit, *middle, limit])


def view_of(problem: Problem | None) -> View | None:
    """How to draw the states of this problem; None where it declares no plane."""
    plane = None if problem is None else problem.plane
    return None if plane is None or problem is None else View(plane, problem.state_dim, problem.budget)


def require_view(problem: Problem) -> View:
    """The same, or an error."""
    found = view_of(problem)
    if found is None:
        raise ValueError(f"{problem.name} declares no plane to draw its states in; expected Problem.plane to give one")
    return found


def problem_of(config: Config) -> Problem | None:
    """The problem that a run is about; None for other environments."""
    if not is_pure(config.env):
        return None
    with contextlib.closing(config.make_envs(1)) as envs:
        return envs.problem if isinstance(envs, ProblemBatch) else None


def limit_of(coordinate: Coordinate) -> float:
    """Its limit, or how far it reaches where it has none."""
    return coordinate.reach if coordinate.limit is None else coordinate.limit


def drawn(coordinate: Coordinate, values: Any) -> Any:
    """Values as they are drawn: angles in degrees."""
    return np.degrees(values) if coordinate.is_angle else values


def _reach(coordinate: Coordinate, episodes: Sequence[np.ndarray]) -> float:
    if coordinate.is_angle:
        return float(np.pi)
    farthest = 1.06 * style.most(0.0, *(np.abs(coordinate.read(states)) for states in episodes))
    return max(coordinate.reach, farthest if coordinate.limit is None else min(farthest, 3.0 * coordinate.limit))


def break_at_seam(angles: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Both series with a gap wherever the angle (radians) passes +-pi; the line runs up to the edge on either side."""
    jumps = np.flatnonzero(np.abs(np.diff(angles)) > np.pi)
    edge = np.sign(angles[jumps]) * np.pi
    before, after = np.pi - np.abs(angles[jumps]), np.pi - np.abs(angles[jumps + 1])
    share = np.divide(before, before + after, out=np.zeros_like(before), where=before + after > 0.0)
    crossing = values[jumps] + share * (values[jumps + 1] - values[jumps])
    gap = np.full_like(edge, np.nan)
    where = np.repeat(jumps + 1, 3)
    return (
        np.insert(angles, where, np.stack([edge, gap, -edge], axis=1).ravel()),
        np.insert(values, where, np.stack([crossing, gap, crossing], axis=1).ravel()),
    )

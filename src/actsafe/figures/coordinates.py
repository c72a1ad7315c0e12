"""How the states of each problem are read for drawing: the angle, the constrained quantity, its limit.

Angles are counted from hanging, so that both problems start at 0 and have their goal at +-180 degrees.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from actsafe.problems import PROBLEMS, Cartpole, Pendulum

Series = Sequence[float | int | None] | np.ndarray
"""Numbers as they come out of a results file, null for one that is not finite, or as an array."""
Episodes = Sequence[np.ndarray] | np.ndarray
"""The states of each episode, [T+1, state]."""
UPRIGHT_COSINE = 0.95
"""A state counts as upright within this cosine of the top, as in `Problem.is_goal`."""


@dataclasses.dataclass(frozen=True)
class View:
    """What to read off a state vector, [..., state]."""

    angle: Callable[[np.ndarray], np.ndarray]
    """Radians from hanging, in [-pi, pi]."""
    constrained: Callable[[np.ndarray], np.ndarray]
    """The quantity whose size the safety constraint limits."""
    base: Callable[[np.ndarray], np.ndarray]
    """Where the rod is held, in rod lengths."""
    rail: float
    """How far the place where the rod is held may safely move either way, in rod lengths; 0 where it is fixed."""
    limit: float
    label: str
    """Name and unit of the constrained quantity."""
    reach: float
    """How far a plot of the constrained quantity extends at least."""
    is_constrained_upwards: bool
    """In the state plane: the constrained quantity is on the y axis, the angle on the x axis; or else the other way."""
    state_dim: int
    budget: float
    decision_seconds: float

    def is_outside(self, states: np.ndarray) -> np.ndarray:
        """Whether each state breaks the limit; one that is not finite counts as breaking it."""
        return ~(np.abs(self.constrained(states)) <= self.limit) | ~np.all(np.isfinite(states), axis=-1)

    def check(self, states: np.ndarray, what: str) -> np.ndarray:
        """`states` as an array [T+1, state], or an error that names `what`."""
        states = np.asarray(states, dtype=float)
        if states.ndim != 2 or states.shape[1] != self.state_dim or len(states) < 2:
            raise ValueError(
                f"{what} has shape {states.shape}; expected [T+1, {self.state_dim}] with at least two rows: "
                "pass the states of one episode, as the problem's state vector"
            )
        return states


def _pendulum() -> View:
    problem = Pendulum()
    return View(
        angle=lambda states: np.arctan2(-states[..., 1], -states[..., 0]),
        constrained=lambda states: states[..., 2],
        base=lambda states: np.zeros(states.shape[:-1]),
        rail=0.0,
        limit=problem.params.speed_limit,
        label="angular speed (rad/s)",
        reach=1.08 * problem.params.max_speed,
        is_constrained_upwards=True,
        state_dim=problem.state_dim,
        budget=problem.budget,
        decision_seconds=problem.params.time_step * problem.action_repeat,
    )


def _cartpole() -> View:
    problem = Cartpole()
    return View(
        angle=lambda states: np.arctan2(states[..., 2], states[..., 1]),
        constrained=lambda states: states[..., 0],
        base=lambda states: states[..., 0] / problem.params.pole_length,
        rail=problem.params.position_limit / problem.params.pole_length,
        limit=problem.params.position_limit,
        label="cart position (m)",
        reach=1.7 * problem.params.position_limit,
        is_constrained_upwards=False,
        state_dim=problem.state_dim,
        budget=problem.budget,
        decision_seconds=problem.params.time_step * problem.action_repeat,
    )


_VIEWS: dict[str, Callable[[], View]] = {Pendulum.name: _pendulum, Cartpole.name: _cartpole}


def view(problem_name: str) -> View:
    """How to read the states of this problem."""
    if problem_name not in _VIEWS:
        hint = "add a view of it to figures/coordinates.py" if problem_name in PROBLEMS else "check the name"
        raise ValueError(f"no figure can draw {problem_name!r}; expected one of {', '.join(_VIEWS)}: {hint}")
    return _VIEWS[problem_name]()


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

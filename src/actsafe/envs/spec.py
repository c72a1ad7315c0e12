"""What an agent knows of its environment, and what one tick brings."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float

from actsafe.problems.base import Problem


class EnvSpec(NamedTuple):
    """The description of an environment, without the environment: an agent is made from this alone."""

    name: str
    observation_shape: tuple[int, ...]
    action_dim: int
    cost_names: tuple[str, ...]
    """Of the constraints, in the order of the costs."""
    budgets: tuple[float, ...]
    """Largest sum of each cost allowed in an episode."""
    num_decisions: int
    """Decisions in an episode that does not end early."""
    action_repeat: int = 1
    """Simulator steps in a decision, over which reward and costs are summed."""
    action_range: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Least and largest action of the environment, which [-1, 1] is stretched to; None where that is its range."""
    action_shape: tuple[int, ...] | None = None
    """Of an action of the environment; None where it is a vector of `action_dim`."""
    action_dtype: str = "float32"
    observation_dtype: str = "float32"
    """uint8 for pixels (height, width, 3), float32 or float64 for vectors."""
    is_compiled: bool = False
    """Whether the environments advance inside compiled programs, and decisions are made there too."""
    task: str = "task"
    """The task whose reward `TimeStep.reward` is."""
    tasks: tuple[str, ...] = ("task",)
    """All tasks; `TimeStep.info["rewards"]` has a column for each, where there is more than one."""
    problem: Problem | None = None
    """The problem, where reward and cost are known functions of the state and the observation is the state."""

    def own_actions(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Actions (..., action) in [-1, 1] in the environment's own range, shape and type."""
        stretched = actions.astype(np.float64)
        if self.action_range is not None:
            low, high = (np.asarray(bound, np.float64) for bound in self.action_range)
            stretched = (low + high) / 2.0 + stretched * (high - low) / 2.0
        shape = (self.action_dim,) if self.action_shape is None else self.action_shape
        return stretched.astype(self.action_dtype).reshape(*actions.shape[:-1], *shape)

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the problem; `from_json` gives the rest back."""
        return {name: value for name, value in self._asdict().items() if name != "problem"}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "EnvSpec":
        return cls(**{name: _tuples(value) for name, value in content.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


class TimeStep(NamedTuple):
    """What one tick brings to every environment of a batch: the makings of exactly one row each."""

    view: Any
    """Arrays with the leading axis environment, which `EnvBatch.observe` turns into observations."""
    reward: Float[Array | np.ndarray, " environment"]
    costs: Float[Array | np.ndarray, "environment constraint"]
    is_first: Bool[Array | np.ndarray, " environment"]
    """This tick began an episode: the action had no effect, reward and costs are 0."""
    is_last: Bool[Array | np.ndarray, " environment"]
    """The episode ended with this row; the next one is a first."""
    info: Mapping[str, Any] = {}
    """Further arrays with the leading axis environment. Problems give `rewards` (environment, task) and
    `inner_cost`."""

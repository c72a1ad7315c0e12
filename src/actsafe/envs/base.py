"""What the training loop knows of its environments, whatever they are."""

import abc
import functools
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float, Shaped

from actsafe.envs.checks import check_action


class TimeStep(NamedTuple):
    """What one tick brings to every environment: the makings of exactly one row each."""

    sight: Any
    """Arrays with the leading axis environment, which `EnvBatch.observe` turns into observations."""
    reward: Float[Array | np.ndarray, " environment"]
    costs: Float[Array | np.ndarray, "environment constraint"]
    is_first: Bool[Array | np.ndarray, " environment"]
    """This tick began an episode: the action was not heeded, reward and costs are 0."""
    is_last: Bool[Array | np.ndarray, " environment"]
    """The episode ended with this row; the next one is a first."""


class EnvBatch(abc.ABC):
    """Environments that advance together, one decision of each a tick.

    The tick after an episode's last begins the next one. Environments may end at different times. A termination ends
    an episode as a truncation does: no difference is made between the two.
    """

    name: str
    num_envs: int
    action_dim: int
    observation_shape: tuple[int, ...]
    observation_dtype: Any
    """uint8 for pixels (height, width, 3), float32 for vectors."""
    cost_names: tuple[str, ...]
    """Of the constraints, in the order of the costs."""
    budgets: tuple[float, ...]
    """Largest sum of each cost allowed in an episode."""
    action_repeat: int
    """Simulator steps in a decision, over which reward and costs are summed."""
    num_decisions: int
    """Decisions in an episode that does not end early."""

    @abc.abstractmethod
    def reset(self, seed: int) -> TimeStep:
        """First rows of all environments; environment i has the seed `environment_seeds(seed, num_envs)[i]`."""

    @abc.abstractmethod
    def step(self, actions: Any) -> TimeStep:
        """What actions (environment, action) bring: outside [-1, 1] clipped, refused where they are not numbers."""

    @abc.abstractmethod
    def observe(self, sight: Any) -> Shaped[Array, "environment *observation"]:
        """The observations of a `sight`. Pure, to be traced into whatever is compiled around it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Frees what the environments hold; they cannot be used afterwards."""

    def checked_actions(self, actions: Any) -> npt.NDArray[np.float64]:
        """`actions` as numbers, clipped to [-1, 1], or ValueError before anything has changed."""
        return check_action(actions, self._action_space)

    @functools.cached_property
    def _action_space(self) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(-1.0, 1.0, (self.num_envs, self.action_dim), np.float32)


def environment_seeds(seed: int, num_envs: int) -> list[int]:
    """Seeds of the environments of a fleet: they follow each other, but fleets of neighbouring seeds share none."""
    first = int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1
    return [first + number for number in range(num_envs)]


def require_sound_step(fleet: EnvBatch, arrival: TimeStep, tick: int, *, is_sight_checked: bool = True) -> TimeStep:
    """`arrival`, or ValueError that says which number of which environment one cannot learn from."""
    for what, values, shape in (("reward", arrival.reward, ()), ("costs", arrival.costs, (len(fleet.cost_names),))):
        if np.shape(values) != (fleet.num_envs, *shape):
            raise ValueError(
                f"{fleet.name}: the shape of {what} at tick {tick} is {np.shape(values)}, expected "
                f"{(fleet.num_envs, *shape)}, one for each environment; look into the environment."
            )
    sights = jax.tree.leaves(arrival.sight) if is_sight_checked else []
    parts = [("observation", sight, -np.inf) for sight in sights if np.issubdtype(sight.dtype, np.floating)]
    parts.append(("reward", arrival.reward, -np.inf))
    parts += [(f"cost {name!r}", arrival.costs[:, number], 0.0) for number, name in enumerate(fleet.cost_names)]
    for what, values, least in parts:
        rows = np.asarray(values).reshape(fleet.num_envs, -1)
        is_wrong = ~(np.isfinite(rows) & (rows >= least))
        if np.any(is_wrong):
            environment, entry = np.argwhere(is_wrong)[0].tolist()
            expected = "a finite number" + (" of at least 0" if least == 0.0 else "")
            raise ValueError(
                f"{fleet.name}: the {what} of environment {environment} at tick {tick} is {rows[environment, entry]}, "
                f"expected {expected}; look into the environment. Nothing of this tick was handed on."
            )
    return arrival

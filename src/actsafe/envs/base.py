"""A batch of environments: what the training loop steps, whatever they are."""

import abc
import functools
from typing import Any

import gymnasium
import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Shaped

from actsafe.envs.checks import check_action
from actsafe.envs.spec import EnvSpec, TimeStep


class EnvBatch(abc.ABC):
    """Environments that advance together, one decision of each a tick.

    The tick after an episode's last begins the next one. Environments may end at different times. A termination ends
    an episode as a truncation does: no difference is made between the two.
    """

    num_envs: int
    spec: EnvSpec

    @property
    def observation_dtype(self) -> np.dtype[Any]:
        """uint8 for pixels, float32 or float64 for vectors."""
        return np.dtype(self.spec.observation_dtype)

    @property
    def name(self) -> str:
        return self.spec.name

    @abc.abstractmethod
    def reset(self, seed: int) -> TimeStep:
        """First rows of all environments; environment i has the seed `environment_seeds(seed, num_envs)[i]`."""

    @abc.abstractmethod
    def step(self, actions: Any) -> TimeStep:
        """What actions (environment, action) bring: outside [-1, 1] clipped, refused where they are not numbers."""

    @abc.abstractmethod
    def observe(self, view: Any) -> Shaped[Array, "environment *observation"]:
        """The observations of a `view`. Pure, to be traced into whatever is compiled around it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Frees what the environments hold; they cannot be used afterwards."""

    def checked_actions(self, actions: Any) -> npt.NDArray[np.float64]:
        """`actions` as numbers, clipped to [-1, 1], or ValueError before anything has changed."""
        return check_action(actions, self._action_space)

    @functools.cached_property
    def _action_space(self) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(-1.0, 1.0, (self.num_envs, self.spec.action_dim), np.float32)


def environment_seeds(seed: int, num_envs: int) -> list[int]:
    """Seeds of the environments of a batch: they follow each other, but batches of neighbouring seeds share none."""
    first = int(np.random.SeedSequence(seed).generate_state(1)[0]) >> 1
    return [first + number for number in range(num_envs)]


def require_sound_step(envs: EnvBatch, time_step: TimeStep, tick: int, *, is_view_checked: bool = True) -> TimeStep:
    """`time_step`, or ValueError that says which number of which environment one cannot learn from."""
    for what, values, shape in (
        ("reward", time_step.reward, ()),
        ("costs", time_step.costs, (len(envs.spec.cost_names),)),
    ):
        if np.shape(values) != (envs.num_envs, *shape):
            raise ValueError(
                f"{envs.name}: the shape of {what} at tick {tick} is {np.shape(values)}, expected "
                f"{(envs.num_envs, *shape)}, one for each environment; look into the environment."
            )
    views = jax.tree.leaves(time_step.view) if is_view_checked else []
    parts = [("observation", view, -np.inf) for view in views if np.issubdtype(view.dtype, np.floating)]
    parts.append(("reward", time_step.reward, -np.inf))
    parts += [(f"cost {name!r}", time_step.costs[:, number], 0.0) for number, name in enumerate(envs.spec.cost_names)]
    for what, values, least in parts:
        rows = np.asarray(values).reshape(envs.num_envs, -1)
        is_wrong = ~(np.isfinite(rows) & (rows >= least))
        if np.any(is_wrong):
            environment, entry = np.argwhere(is_wrong)[0].tolist()
            expected = "a finite number" + (" of at least 0" if least == 0.0 else "")
            raise ValueError(
                f"{envs.name}: the {what} of environment {environment} at tick {tick} is {rows[environment, entry]}, "
                f"expected {expected}; look into the environment. Nothing of this tick was handed on."
            )
    return time_step

"""The pendulum of the paper's Gaussian-process experiments: swing up a rod without spinning faster than 6 rad/s."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from actsafe.problems.base import (
    Action,
    Coordinate,
    Plane,
    Problem,
    Reward,
    Scalar,
    State,
    angle,
    on_unit_circle,
    pole_angle,
    require_positive,
    wrap,
)


class PendulumParams(eqx.Module):
    """Physical constants, in SI units: the leaves of a pytree, so that any of them can be batched or shifted."""

    gravity: float = 9.81
    mass: float = 1.0
    length: float = 1.0
    max_torque: float = 2.0
    max_speed: float = 8.0
    time_step: float = 0.05
    speed_limit: float = 6.0
    """The safety limit: a speed above it costs what it is above it."""

    def __check_init__(self) -> None:
        require_positive(self)


class Pendulum(Problem):
    """A rod on a motor that is too weak to lift it directly.

    State (cos th, sin th, omega) with th = 0 upright; one action, the torque over `max_torque`.

        omega' = clip(omega + dt (3 g / (2 l) sin th + 3 / (m l^2) torque), +-max_speed)
        th'    = th + dt omega'

    Cost: max(|omega| - 6, 0), budget 0.
    """

    name: ClassVar[str] = "pendulum"
    state_names: ClassVar[tuple[str, ...]] = ("cos", "sin", "speed")
    action_names: ClassVar[tuple[str, ...]] = ("torque",)
    state_scale: ClassVar[tuple[float, ...]] = (0.5, 0.5, 2.0)
    change_scale: ClassVar[tuple[float, ...]] = (0.3, 0.3, 1.0)

    params: PendulumParams = dataclasses.field(default_factory=PendulumParams)
    num_decisions: int = eqx.field(default=50, static=True)
    action_repeat: int = eqx.field(default=2, static=True)
    budget: float = eqx.field(default=0.0, static=True)
    process_noise_std: float = eqx.field(default=0.0, static=True)

    def reset(self, key: PRNGKeyArray) -> State:
        """Hanging at rest, always."""
        return jnp.array([-1.0, 0.0, 0.0])

    def simulate(self, state: State, action: Action) -> State:
        cos, sin, speed = state
        p = self.params
        torque = p.max_torque * action[0]
        acceleration = 3.0 * p.gravity / (2.0 * p.length) * sin + 3.0 / (p.mass * p.length**2) * torque
        speed = jnp.clip(speed + p.time_step * acceleration, -p.max_speed, p.max_speed)
        theta = angle(cos, sin) + p.time_step * speed
        return jnp.stack([jnp.cos(theta), jnp.sin(theta), speed])

    def cost(self, state: State, margin: float = 0.0) -> Scalar:
        return jnp.maximum(jnp.abs(state[2]) - (self.params.speed_limit - margin), 0.0)

    def project(self, state: State) -> State:
        return jnp.stack([*on_unit_circle(state[0], state[1]), state[2]])

    @property
    def tasks(self) -> Mapping[str, Reward]:
        return {"swing_up": self._stay_at(0.0), "keep_down": self._stay_at(jnp.pi)}

    @property
    def plane(self) -> Plane:
        p = self.params
        speed = Coordinate("angular speed (rad/s)", lambda states: states[..., 2], 1.08 * p.max_speed, p.speed_limit)
        return Plane(
            pole_angle(lambda states: np.arctan2(-states[..., 1], -states[..., 0])),
            speed,
            lambda angle, speed: np.stack([-np.cos(angle), -np.sin(angle), speed], axis=-1),
            base=lambda states: np.zeros(states.shape[:-1]),
            decision_seconds=p.time_step * self.action_repeat,
        )

    def is_goal(self, state: State) -> Array:
        """Within about 18 degrees of the top (cos > 0.95) and slower than 1 rad/s."""
        return (state[0] > 0.95) & (jnp.abs(state[2]) < 1.0)

    def _stay_at(self, target: float) -> Reward:
        """-(dth^2 + 0.1 omega^2 + 0.02 u^2), dth the wrapped angle from `target`."""

        def reward(state: State, action: Action) -> Scalar:
            offset = wrap(angle(state[0], state[1]) - target)
            return -(offset**2 + 0.1 * state[2] ** 2 + 0.02 * action[0] ** 2)

        return reward

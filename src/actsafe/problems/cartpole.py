"""The cartpole of the paper's Gaussian-process experiments: swing up a pole without leaving the middle of the rail."""

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


class CartpoleParams(eqx.Module):
    """Physical constants, in SI units."""

    cart_mass: float = 5.0
    pole_mass: float = 1.0
    """A point mass at the end of a massless pole."""
    pole_length: float = 1.0
    gravity: float = 9.81
    max_force: float = 15.0
    time_step: float = 0.05
    position_limit: float = 0.5
    """The safety limit: a cart farther out costs what it is farther out."""

    def __check_init__(self) -> None:
        require_positive(self)


class Cartpole(Problem):
    """A cart with a hanging pole on a frictionless rail.

    State (p, cos th, sin th, v, omega) with th = 0 hanging; one action, the force over `max_force`. Explicit Euler on

        [M + m       m l cos th] [p'' ]   [F + m l omega^2 sin th]
        [m l cos th  m l^2     ] [th''] = [-m g l sin th         ]

    Cost: max(|p| - 0.5, 0), budget 0.75.
    """

    name: ClassVar[str] = "cartpole"
    state_names: ClassVar[tuple[str, ...]] = ("position", "cos", "sin", "velocity", "speed")
    action_names: ClassVar[tuple[str, ...]] = ("force",)
    state_scale: ClassVar[tuple[float, ...]] = (0.3, 0.5, 0.5, 0.5, 2.0)
    change_scale: ClassVar[tuple[float, ...]] = (0.1, 0.3, 0.3, 0.4, 1.0)

    params: CartpoleParams = dataclasses.field(default_factory=CartpoleParams)
    num_decisions: int = eqx.field(default=50, static=True)
    action_repeat: int = eqx.field(default=2, static=True)
    budget: float = eqx.field(default=0.75, static=True)
    process_noise_std: float = eqx.field(default=0.0, static=True)

    def reset(self, key: PRNGKeyArray) -> State:
        """Hanging at rest in the middle, always."""
        return jnp.array([0.0, 1.0, 0.0, 0.0, 0.0])

    def simulate(self, state: State, action: Action) -> State:
        position, cos, sin, velocity, speed = state
        p = self.params
        coupling = p.pole_mass * p.pole_length * cos
        mass = p.cart_mass + p.pole_mass
        inertia = p.pole_mass * p.pole_length**2
        push = p.max_force * action[0] + p.pole_mass * p.pole_length * speed**2 * sin
        swing = -p.pole_mass * p.gravity * p.pole_length * sin
        determinant = mass * inertia - coupling**2
        cart_acceleration = (inertia * push - coupling * swing) / determinant
        pole_acceleration = (mass * swing - coupling * push) / determinant
        theta = angle(cos, sin) + p.time_step * speed
        return jnp.stack(
            [
                position + p.time_step * velocity,
                jnp.cos(theta),
                jnp.sin(theta),
                velocity + p.time_step * cart_acceleration,
                speed + p.time_step * pole_acceleration,
            ]
        )

    def cost(self, state: State, margin: float = 0.0) -> Scalar:
        return jnp.maximum(jnp.abs(state[0]) - (self.params.position_limit - margin), 0.0)

    def project(self, state: State) -> State:
        return jnp.stack([state[0], *on_unit_circle(state[1], state[2]), state[3], state[4]])

    @property
    def tasks(self) -> Mapping[str, Reward]:
        return {"swing_up": self._stay_at(jnp.pi), "keep_down": self._stay_at(0.0)}

    @property
    def plane(self) -> Plane:
        p = self.params
        reach, rest = 1.7 * p.position_limit, np.zeros_like
        return Plane(
            Coordinate("cart position (m)", lambda states: states[..., 0], reach, p.position_limit),
            pole_angle(lambda states: np.arctan2(states[..., 2], states[..., 1])),
            lambda position, angle: np.stack(
                [position, np.cos(angle), np.sin(angle), rest(angle), rest(angle)], axis=-1
            ),
            base=lambda states: states[..., 0] / p.pole_length,
            rail=p.position_limit / p.pole_length,
            decision_seconds=p.time_step * self.action_repeat,
        )

    def is_goal(self, state: State) -> Array:
        """Within about 18 degrees of the top (cos < -0.95) and turning slower than 1 rad/s."""
        return (state[1] < -0.95) & (jnp.abs(state[4]) < 1.0)

    def _stay_at(self, target: float) -> Reward:
        """-(dth^2 + p^2 + 0.1 (v^2 + omega^2)) - 0.01 u^2, dth the wrapped angle from `target`."""

        def reward(state: State, action: Action) -> Scalar:
            position, cos, sin, velocity, speed = state
            offset = wrap(angle(cos, sin) - target)
            return -(offset**2 + position**2 + 0.1 * (velocity**2 + speed**2)) - 0.01 * action[0] ** 2

        return reward

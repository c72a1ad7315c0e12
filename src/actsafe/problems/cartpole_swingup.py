"""The RWRL-style cartpole of the paper's vision experiments: swing up on a rail whose middle metre alone is free."""

import dataclasses
import math
from collections.abc import Mapping
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from actsafe.problems.base import Action, Problem, Reward, Scalar, State, angle, on_unit_circle, require_positive


class CartpoleSwingupParams(eqx.Module):
    """Physical constants, in SI units."""

    cart_mass: float = 1.0
    pole_mass: float = 0.1
    pole_length: float = 1.0
    """From the hinge to the far end of the capsule's axis."""
    pole_radius: float = 0.045
    gravity: float = 9.81
    max_force: float = 10.0
    cart_damping: float = 5e-4
    pole_damping: float = 2e-6
    rail_length: float = 1.8
    """The cart stops dead here, on either side."""
    time_step: float = 0.01
    position_limit: float = 0.5
    """The safety limit: a simulator step that ends with the cart here or farther out costs 1."""

    def __check_init__(self) -> None:
        require_positive(self)

    @property
    def pole_inertia(self) -> Scalar | float:
        """Of the pole, a solid capsule of uniform density, about the hinge."""
        length, radius, mass = self.pole_length, self.pole_radius, self.pole_mass
        cylinder_share = length / (length + 4.0 / 3.0 * radius)
        cylinder = cylinder_share * (3.0 * radius**2 + length**2) / 12.0
        # Two half balls: 2/5 r^2 about their common centre, moved out to the ends of the cylinder.
        caps = (1.0 - cylinder_share) * (0.4 * radius**2 + length * (3.0 * radius + 2.0 * length) / 8.0)
        return mass * (cylinder + caps + (length / 2.0) ** 2)


class CartpoleSwingup(Problem):
    """A cart with a hanging pole; the pole must be swung up and the cart must stay near the middle of the rail.

    State (p, cos th, sin th, v, omega) with th = 0 upright; one action, the force over `max_force`. With the pole's
    centre of mass at l = pole_length / 2, its inertia J about the hinge, and RK4 on

        [M + m       m l cos th] [p'' ]   [F - d_p v + m l omega^2 sin th]
        [m l cos th  J         ] [th''] = [m g l sin th - d_th omega     ]

    Reward and cost are read after every simulator step of 0.01 s and summed. Cost: 1 where |p| >= 0.5; budget 100 in
    the 1000 steps of an episode.

    *Deviation:* the suite's soft stop at the ends of the rail is a hard one here; at a limit of 0.5 m only those who
    break it meet it.
    """

    name: ClassVar[str] = "cartpole_swingup"
    state_names: ClassVar[tuple[str, ...]] = ("position", "cos", "sin", "velocity", "speed")
    action_names: ClassVar[tuple[str, ...]] = ("force",)
    state_scale: ClassVar[tuple[float, ...]] = (0.3, 0.5, 0.5, 0.5, 2.0)
    change_scale: ClassVar[tuple[float, ...]] = (0.05, 0.1, 0.1, 0.3, 0.5)
    is_summed: ClassVar[bool] = True

    params: CartpoleSwingupParams = dataclasses.field(default_factory=CartpoleSwingupParams)
    num_decisions: int = eqx.field(default=500, static=True)
    action_repeat: int = eqx.field(default=2, static=True)
    budget: float = eqx.field(default=100.0, static=True)
    process_noise_std: float = eqx.field(default=0.0, static=True)
    action_cost: float = eqx.field(default=0.2, static=True)
    """What a simulator step with a large action costs in reward; an |action| of at most 0.1 is free."""

    def reset(self, key: PRNGKeyArray) -> State:
        """Hanging near the middle, nearly at rest."""
        position, offset, velocity, speed = 0.01 * jax.random.normal(key, (4,))
        theta = jnp.pi + offset
        return jnp.stack([position, jnp.cos(theta), jnp.sin(theta), velocity, speed])

    def simulate(self, state: State, action: Action) -> State:
        position, cos, sin, velocity, speed = state
        step = self.params.time_step
        start = jnp.stack([position, angle(cos, sin), velocity, speed])
        first = self._derivative(start, action)
        second = self._derivative(start + step / 2.0 * first, action)
        third = self._derivative(start + step / 2.0 * second, action)
        fourth = self._derivative(start + step * third, action)
        end = start + step / 6.0 * (first + 2.0 * second + 2.0 * third + fourth)
        rail = self.params.rail_length
        velocity = jnp.where(jnp.abs(end[0]) > rail, 0.0, end[2])
        return jnp.stack([jnp.clip(end[0], -rail, rail), jnp.cos(end[1]), jnp.sin(end[1]), velocity, end[3]])

    def _derivative(self, coordinates: Array, action: Action) -> Array:
        """(v, omega, p'', th'') at (p, th, v, omega)."""
        _, theta, velocity, speed = coordinates
        p = self.params
        moment = p.pole_mass * p.pole_length / 2.0
        coupling = moment * jnp.cos(theta)
        push = p.max_force * action[0] - p.cart_damping * velocity + moment * jnp.sin(theta) * speed**2
        fall = moment * p.gravity * jnp.sin(theta) - p.pole_damping * speed
        mass = p.cart_mass + p.pole_mass
        determinant = mass * p.pole_inertia - coupling**2
        cart = (p.pole_inertia * push - coupling * fall) / determinant
        pole = (mass * fall - coupling * push) / determinant
        return jnp.stack([velocity, speed, cart, pole])

    def cost(self, state: State, margin: float = 0.0) -> Scalar:
        is_inside = jnp.abs(state[0]) < self.params.position_limit - margin
        # What is not a number stays so: a reader must not take it for inside or for outside.
        return jnp.where(jnp.isnan(state[0]), state[0], 1.0 - is_inside.astype(state.dtype))

    def project(self, state: State) -> State:
        return jnp.stack([state[0], *on_unit_circle(state[1], state[2]), state[3], state[4]])

    @property
    def tasks(self) -> Mapping[str, Reward]:
        return {
            "swing_up_sparse": lambda state, action: self.is_balanced(state) - self._effort(action),
            "swing_up": lambda state, action: _dense(state, action) - self._effort(action),
            "keep_down": lambda state, action: (state[1] <= -0.995).astype(state.dtype) - self._effort(action),
        }

    def is_balanced(self, state: State) -> Scalar:
        """1 within 0.25 m of the middle and about 5.7 degrees of the top (both inclusive), else 0."""
        return ((jnp.abs(state[0]) <= 0.25) & (state[1] >= 0.995)).astype(state.dtype)

    def is_goal(self, state: State) -> Array:
        """Balanced, and turning slower than 1 rad/s."""
        return (self.is_balanced(state) > 0.0) & (jnp.abs(state[4]) < 1.0)

    def _effort(self, action: Action) -> Scalar:
        """`action_cost` (1 - tol(a)), tol = 1 up to 0.1 and 0.1^(((|a| - 0.1) / 0.1)^2) beyond."""
        excess = jnp.maximum(jnp.abs(action[0]) - 0.1, 0.0) / 0.1
        return self.action_cost * (1.0 - jnp.exp(math.log(0.1) * excess**2))


def _dense(state: State, action: Action) -> Scalar:
    """The suite's dense reward: the pole's height, less where the cart is far out, the force large, the pole fast."""
    position, cos, _, _, speed = state
    upright = (cos + 1.0) / 2.0
    centred = (1.0 + jnp.exp(math.log(0.1) * (position / 2.0) ** 2)) / 2.0
    gentle = (4.0 + jnp.maximum(1.0 - action[0] ** 2, 0.0)) / 5.0
    slow = (1.0 + jnp.exp(math.log(0.1) * (speed / 5.0) ** 2)) / 2.0
    return upright * centred * gentle * slow

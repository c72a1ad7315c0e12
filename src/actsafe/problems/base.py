"""What a constrained Markov decision process is here.

A problem knows its dynamics, its tasks (rewards), its cost and its budget. It imports no learning code, holds no
mutable state, and every method is a pure function that can be jitted, vmapped and differentiated.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

State = Float[Array, " state"]
Action = Float[Array, " action"]
Scalar = Float[Array, ""]

Reward = Callable[[State, Action], Scalar]
"""A known reward r(s, a); `Problem.is_summed` says at which state it is read."""


class Step(NamedTuple):
    """What one decision brings."""

    state: State
    rewards: Float[Array, " task"]
    """Of every task, in the order of `Problem.tasks`."""
    cost: Scalar
    """What counts against the budget."""
    inner_cost: Scalar
    """Largest cost at any simulator step of this decision, between decisions included: a diagnostic."""


class Coordinate(NamedTuple):
    """One axis of a plane of states."""

    label: str
    """Its name and unit."""
    read: Callable[[Any], Any]
    """Its values in states [..., state]."""
    reach: float
    """How far an axis extends at least, either way."""
    limit: float | None = None
    """The size beyond which it costs; None where none does."""
    is_angle: bool = False
    """In radians from -pi to pi, which are the same."""
    names: tuple[tuple[float, str], ...] = ()
    """Values that have names."""


class Plane(NamedTuple):
    """How figures draw the states of a problem: two coordinates, and a rod where one of them is its angle."""

    x: Coordinate
    y: Coordinate
    at: Callable[[Any, Any], Any]
    """The states with these values; what else a state has is at rest."""
    base: Callable[[Any], Any] | None = None
    """Where the rod is held in states, in rod lengths; None where there is no rod."""
    rail: float = 0.0
    """How far that place may safely move either way, in rod lengths; 0 where it is fixed."""
    decision_seconds: float = 1.0


class Problem(eqx.Module):
    """A constrained MDP: maximise the sum of a task's reward, keep the sum of costs within `budget`.

    Actions are scaled to [-1, 1]. A state is the vector that a learner sees.
    """

    name: eqx.AbstractVar[str]
    state_names: eqx.AbstractVar[tuple[str, ...]]
    action_names: eqx.AbstractVar[tuple[str, ...]]

    num_decisions: eqx.AbstractVar[int]
    """Decisions in an episode."""
    action_repeat: eqx.AbstractVar[int]
    """Simulator steps for which one action is held."""
    budget: eqx.AbstractVar[float]
    """Largest sum of costs allowed in an episode."""
    process_noise_std: eqx.AbstractVar[float]
    """Std of the Gaussian noise added to every state coordinate once per decision; 0 for none."""
    is_summed: ClassVar[bool] = False
    """How a decision is accounted. False, as in the paper's experiments from state: the reward r(s, a) is read once, at
    the decision state, and the cost once, at the state arrived in. True, as benchmark suites do it: both are read after
    every simulator step, at the state arrived in, and summed over the `action_repeat`."""

    state_scale: eqx.AbstractVar[tuple[float, ...]]
    """Prior knowledge: the typical size of each state coordinate. Inputs are not magnified beyond it."""
    change_scale: eqx.AbstractVar[tuple[float, ...]]
    """Prior knowledge: how much each state coordinate may plausibly change in one decision. A model without data
    assumes this much uncertainty, and never less than it before data says so."""

    def __check_init__(self) -> None:
        for name, least in (("num_decisions", 1), ("action_repeat", 1), ("budget", 0), ("process_noise_std", 0)):
            value = getattr(self, name)
            if isinstance(value, int | float) and not value >= least:
                raise ValueError(f"{self.name}: {name} must be at least {least}, got {value}")

    @property
    def state_dim(self) -> int:
        return len(self.state_names)

    @property
    def action_dim(self) -> int:
        return len(self.action_names)

    @abc.abstractmethod
    def reset(self, key: PRNGKeyArray) -> State:
        """The first state of an episode."""

    @abc.abstractmethod
    def simulate(self, state: State, action: Action) -> State:
        """The state one simulator step later, without noise."""

    @abc.abstractmethod
    def cost(self, state: State, margin: float = 0.0) -> Scalar:
        """The cost of being in `state`, at least 0; a `margin` tightens the limit by that much."""

    @abc.abstractmethod
    def project(self, state: State) -> State:
        """The nearest state that can exist (an angle's cosine and sine lie on the unit circle)."""

    @property
    def plane(self) -> Plane | None:
        """The plane in which figures draw states; None draws every coordinate over time."""
        return None

    @property
    @abc.abstractmethod
    def tasks(self) -> Mapping[str, Reward]:
        """The known rewards by name."""

    @abc.abstractmethod
    def is_goal(self, state: State) -> Array:
        """Whether the goal (for a swing-up: upright and slow) holds in `state`."""

    def step(self, state: State, action: Action, key: PRNGKeyArray) -> Step:
        """Hold `action` (clipped to [-1, 1]) for one decision."""
        action = jnp.clip(action, -1.0, 1.0)

        def hold(state: State, _: None) -> tuple[State, tuple[Scalar, Array]]:
            state = self.simulate(state, action)
            return state, (self.cost(state), self._rewards(state, action))

        end, (costs, rewards) = jax.lax.scan(hold, state, length=self.action_repeat)
        noise = self.process_noise_std * jax.random.normal(key, end.shape, end.dtype)
        end = self.project(end + noise)
        last_cost = self.cost(end)
        inner_cost = jnp.maximum(jnp.max(costs), last_cost)
        if self.is_summed:
            # The last simulator step is read with its noise.
            cost = jnp.sum(costs[:-1]) + last_cost
            rewards = jnp.sum(rewards[:-1], axis=0) + self._rewards(end, action)
            return Step(end, rewards, cost, inner_cost)
        return Step(end, self._rewards(state, action), last_cost, inner_cost)

    def _rewards(self, state: State, action: Action) -> Float[Array, " task"]:
        return jnp.stack([reward(state, action) for reward in self.tasks.values()])

    def decision_cost(self, state: State, margin: float = 0.0) -> Scalar:
        """What a planner charges for a decision that ends in `state`: as if all its simulator steps did."""
        return (self.action_repeat if self.is_summed else 1) * self.cost(state, margin)


def require_positive(params: eqx.Module) -> None:
    """`ValueError` for a constant that is a plain number and not positive; arrays (a batch, a trace) pass."""
    for field in dataclasses.fields(params):
        value = getattr(params, field.name)
        if isinstance(value, int | float) and not (value > 0 and math.isfinite(value)):
            raise ValueError(f"{type(params).__name__}.{field.name} must be positive and finite, got {value}")


def pole_angle(read: Callable[[Any], Any]) -> Coordinate:
    """A pole's angle from hanging."""
    names = ((-math.pi, "up"), (-math.pi / 2, ""), (0.0, "hanging"), (math.pi / 2, ""), (math.pi, "up"))
    return Coordinate("pole angle", read, math.pi, is_angle=True, names=names)


def angle(cosine: Scalar, sine: Scalar) -> Scalar:
    """The angle in [-pi, pi] with this cosine and sine."""
    return jnp.arctan2(sine, cosine)


def wrap(angle: Scalar) -> Scalar:
    """`angle` shifted by full turns into [-pi, pi)."""
    return (angle + jnp.pi) % (2.0 * jnp.pi) - jnp.pi


def on_unit_circle(cosine: Scalar, sine: Scalar) -> tuple[Scalar, Scalar]:
    """(cosine, sine) scaled to length one; (1, 0) where both vanish. What is not a number stays so."""
    length = jnp.hypot(cosine, sine)
    is_zero = length <= 1e-12
    safe = jnp.where(is_zero, 1.0, length)
    return jnp.where(is_zero, 1.0, cosine / safe), jnp.where(is_zero, 0.0, sine / safe)

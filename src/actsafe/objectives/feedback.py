"""Feedback for imagined particles: a plan is a policy, and a policy answers to where it finds itself.

Without feedback every small error near an unstable state grows for the whole look-ahead, and a plan through such a
state looks less safe than it is under a controller that plans anew at every step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.models.base import Model
from actsafe.problems.base import Action, Problem, State

Gains = Float[Array, "time action state"]


class Tracking(NamedTuple):
    """A mean trajectory and the gains that hold it."""

    states: Float[Array, "time state"]
    gains: Gains

    def follow(
        self, problem: Problem, model: Model, state: State, plan: Float[Array, "time action"]
    ) -> Float[Array, "time action"]:
        """The actions, under the mean model, of `plan` with feedback towards this trajectory added."""

        def step(state: State, inputs: tuple[Array, Array, Array]) -> tuple[State, Action]:
            planned, gain, target = inputs
            action = jnp.clip(planned + gain @ (state - target), -1.0, 1.0)
            return problem.project(model.predict(state, action).mean), action

        return jax.lax.scan(step, state, (plan, self.gains, self.states))[1]


def no_tracking(problem: Problem, horizon: int) -> Tracking:
    """Gains of zero: plans are open loop."""
    states = jnp.zeros((horizon, problem.state_dim))
    return Tracking(states, jnp.zeros((horizon, problem.action_dim, problem.state_dim)))


def track(
    problem: Problem, model: Model, state: State, plan: Float[Array, "time action"], *, effort: float
) -> Tracking:
    """The mean trajectory of `plan`, and gains that hold it: u = plan_t + K_t (s - s_mean,t), a finite-horizon LQR.

    Deviations cost sum_j (ds_j / state_scale_j)^2 and actions `effort` |du|^2. A trajectory whose linearisation is not
    finite gets no feedback.
    """

    def mean(state: State, action: Action) -> State:
        # Differentiated through the projection: directions that cannot occur have no slope.
        return problem.project(model.predict(problem.project(state), action).mean)

    def forward(state: State, action: Action) -> tuple[State, tuple[State, tuple[Array, Array]]]:
        return mean(state, action), (state, jax.jacfwd(mean, argnums=(0, 1))(state, action))

    _, (states, (state_slopes, action_slopes)) = jax.lax.scan(forward, state, plan)
    weight = jnp.diag(1.0 / jnp.asarray(problem.state_scale) ** 2)

    def backward(value: Array, slopes: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = slopes
        curvature = effort * jnp.eye(problem.action_dim) + b.T @ value @ b
        gain = -jnp.linalg.solve(curvature, b.T @ value @ a)
        value = weight + a.T @ value @ (a + b @ gain)
        return 0.5 * (value + value.T), gain

    _, gains = jax.lax.scan(backward, weight, (state_slopes, action_slopes), reverse=True)
    is_sound = jnp.all(jnp.isfinite(gains)) & jnp.all(jnp.isfinite(states))
    return Tracking(jnp.where(is_sound, states, 0.0), jnp.where(is_sound, gains, 0.0))

"""Feedback for imagined particles: a plan is a policy, and a policy answers to where it finds itself.

Without feedback every small error near an unstable state grows for the whole look-ahead, and no plan through such a
state is ever surely safe, although a controller that plans anew at every step holds it with ease.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.models.base import Model
from actsafe.problems.base import Action, Problem, State

Gains = Float[Array, "time action state"]


def no_gains(problem: Problem, horizon: int) -> Gains:
    """Gains of an open-loop plan."""
    return jnp.zeros((horizon, problem.action_dim, problem.state_dim))


def tracking_gains(
    problem: Problem, model: Model, state: State, plan: Float[Array, "time action"], *, effort: float
) -> Gains:
    """Gains K_t of the finite-horizon LQR that tracks the mean trajectory of `plan`: u = plan_t + K_t (s - s_mean,t).

    Deviations cost sum_j (ds_j / state_scale_j)^2 and actions `effort` |du|^2. A trajectory whose linearisation is not
    finite gets no feedback.
    """

    def mean(state: State, action: Action) -> State:
        # Differentiated through the projection: directions that cannot occur have no slope.
        return problem.project(model.predict(problem.project(state), action).mean)

    def forward(state: State, action: Action) -> tuple[State, tuple[Array, Array]]:
        return mean(state, action), jax.jacfwd(mean, argnums=(0, 1))(state, action)

    _, (state_slopes, action_slopes) = jax.lax.scan(forward, state, plan)
    weight = jnp.diag(1.0 / jnp.asarray(problem.state_scale) ** 2)

    def backward(value: Array, slopes: tuple[Array, Array]) -> tuple[Array, Array]:
        a, b = slopes
        curvature = effort * jnp.eye(problem.action_dim) + b.T @ value @ b
        gain = -jnp.linalg.solve(curvature, b.T @ value @ a)
        value = weight + a.T @ value @ (a + b @ gain)
        return 0.5 * (value + value.T), gain

    _, gains = jax.lax.scan(backward, weight, (state_slopes, action_slopes), reverse=True)
    return jnp.where(jnp.all(jnp.isfinite(gains)), gains, 0.0)

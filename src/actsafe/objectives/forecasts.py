"""Forecasts of recorded episodes, several decisions ahead, and their errors in the forecasts' own std."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.models.base import Model
from actsafe.objectives.feedback import no_tracking
from actsafe.objectives.imagination import ParticleNoise, imagine
from actsafe.problems.base import Problem


def forecast_scores(
    problem: Problem,
    model: Model,
    states: Float[Array, "states state"],
    actions: Float[Array, "decisions action"],
    *,
    horizon: int,
    num_particles: int,
    multiplier: Float[Array, " state"],
    key: PRNGKeyArray,
) -> Float[Array, "window time state"]:
    """(truth − mean) / std of what the model says 1 to `horizon` decisions ahead, given the actions that were taken.

    The episode is cut into windows of `horizon` decisions, each forecast from its first state: none overlap, so that
    scores equally far ahead share no error. One decision ahead, mean and std are the model's own, std² being
    (β epistemic)² + aleatoric². Further ahead they are those of particles, moved as plans are judged: with fresh doubt
    at every step (TS1), which adds up more slowly than a model that is wrong in the same way twice.
    """
    num_windows = actions.shape[0] // horizon
    starts = horizon * jnp.arange(num_windows)

    def one(inputs: tuple[Array, PRNGKeyArray]) -> Float[Array, "time state"]:
        start, key = inputs
        state = states[start]
        plan = jax.lax.dynamic_slice_in_dim(actions, start, horizon)
        truth = jax.lax.dynamic_slice_in_dim(states, start + 1, horizon)
        noise = ParticleNoise.draw(key, 1 + num_particles, horizon, problem.state_dim)
        gains = no_tracking(problem, horizon).gains
        imagined = imagine(problem, model, state, plan, gains=gains, noise=noise, multiplier=multiplier)
        mean, std = moments(imagined.next_states[1:])
        first = model.predict(state, plan[0])
        mean = mean.at[0].set(first.mean)
        std = std.at[0].set(jnp.hypot(multiplier * first.epistemic_std, first.aleatoric_std))
        return (truth - mean) / std

    return jax.lax.map(one, (starts, jax.random.split(key, num_windows)))


def moments(particles: Float[Array, "particle *rest"]) -> tuple[Float[Array, "*rest"], Float[Array, "*rest"]]:
    """Mean of the particles, and the std of one more draw about it: (1 + 1/n) times the variance between them."""
    num_particles = particles.shape[0]
    widening = jnp.sqrt(1.0 + 1.0 / num_particles)
    return jnp.mean(particles, axis=0), widening * jnp.std(particles, axis=0, ddof=1)

"""Forecasts of recorded episodes, several decisions ahead, and their errors in the forecasts' own std."""

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.models.base import Model
from actsafe.objectives.feedback import no_tracking
from actsafe.objectives.imagination import ParticleNoise, imagine
from actsafe.problems.base import Problem


def forecast_scores(
    problem: Problem,
    model: Model,
    states: Float[Array, "window row state"],
    actions: Float[Array, "window time action"],
    *,
    num_particles: int,
    multiplier: Float[Array, " state"],
    key: PRNGKeyArray,
) -> Float[Array, "window time state"]:
    """(truth − mean) / std of what the model says of each window after its first state, given the actions taken.

    `states` have one row more than `actions`. One decision ahead, mean and std are the model's own, std² being
    (β epistemic)² + aleatoric². Further ahead they are those of particles, moved as plans are judged: with fresh draws
    at every step (TS1), whose errors add up more slowly than those of a model that is wrong in the same way twice.
    """
    num_windows, horizon = actions.shape[:2]

    def one(inputs: tuple[Array, Array, PRNGKeyArray]) -> Float[Array, "time state"]:
        states, plan, key = inputs
        noise = ParticleNoise.draw(key, 1 + num_particles, horizon, problem.state_dim)
        gains = no_tracking(problem, horizon).gains
        imagined = imagine(problem, model, states[0], plan, gains=gains, noise=noise, multiplier=multiplier)
        mean, std = moments(imagined.next_states[1:])
        first = model.predict(states[0], plan[0])
        mean = mean.at[0].set(first.mean)
        std = std.at[0].set(jnp.hypot(multiplier * first.epistemic_std, first.aleatoric_std))
        return (states[1:] - mean) / std

    return jax.lax.map(one, (states, actions, jax.random.split(key, num_windows)))


def moments(particles: Float[Array, "particle *rest"]) -> tuple[Float[Array, "*rest"], Float[Array, "*rest"]]:
    """Mean of the particles, and the std of one more draw about it: (1 + 1/n) times the variance between them."""
    num_particles = particles.shape[0]
    widening = jnp.sqrt(1.0 + 1.0 / num_particles)
    return jnp.mean(particles, axis=0), widening * jnp.std(particles, axis=0, ddof=1)


def windows_of(
    is_first: Bool[np.ndarray, "environment time"], length: int, stride: int | None = None
) -> Iterator[tuple[int, int]]:
    """Environment and first row of windows of `length` rows within one episode, which begin every `stride` rows.

    Without a stride they do not overlap. With `length - 1` the last row of one is the first of the next: forecasts
    from first rows share no truth.
    """
    for env, begins in enumerate(is_first):
        edges = [*map(int, np.flatnonzero(begins)), len(begins)]
        for start, end in itertools.pairwise(edges):
            yield from ((env, first) for first in range(start, end - length + 1, stride or length))

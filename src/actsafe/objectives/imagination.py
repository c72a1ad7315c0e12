"""Trajectories in a model's imagination: particles that spread by its uncertainty (TS1, Chua et al., 2018)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.models.base import Model, Prediction
from actsafe.objectives.feedback import Gains
from actsafe.problems.base import Problem, State


class ParticleNoise(NamedTuple):
    """Standard normal draws that move particles; shared by all plans, so that these differ by merit alone."""

    epistemic: Float[Array, "particle time state"]
    aleatoric: Float[Array, "particle time state"]

    @classmethod
    def draw(cls, key: PRNGKeyArray, num_particles: int, horizon: int, state_dim: int) -> "ParticleNoise":
        """Fresh noise; the first particle has none and follows the mean."""
        draws = jax.random.normal(key, (2, num_particles, horizon, state_dim)).at[:, 0].set(0.0)
        return cls(draws[0], draws[1])


class Imagined(NamedTuple):
    """Imagined trajectories: `states` before each action, `next_states` after it, and what the model thought of it."""

    states: Float[Array, "particle time state"]
    actions: Float[Array, "particle time action"]
    next_states: Float[Array, "particle time state"]
    predictions: Prediction


def imagine(
    problem: Problem,
    model: Model,
    state: State,
    plan: Float[Array, "time action"],
    *,
    gains: Gains,
    noise: ParticleNoise,
    multiplier: Float[Array, " state"],
) -> Imagined:
    """One trajectory per particle under `plan`: s' = mu + beta sigma e_1 + sigma_noise e_2, fresh e at every step.

    A particle acts as plan_t + K_t (s - s_mean,t), clipped; s_mean is the first particle.

    *Deviation:* the particle is put back on the set of states that can exist (cosine and sine stay on the circle), and
    it may answer to its own deviation (the paper's plans are open loop: gains of zero).
    """

    def step(states: Float[Array, "particle state"], inputs: tuple) -> tuple[Array, Imagined]:
        planned, gain, epistemic, aleatoric = inputs

        def move(state: State, epistemic: Array, aleatoric: Array) -> Imagined:
            action = jnp.clip(planned + gain @ (state - states[0]), -1.0, 1.0)
            prediction = model.predict(state, action)
            drift = multiplier * prediction.epistemic_std * epistemic + prediction.aleatoric_std * aleatoric
            return Imagined(state, action, problem.project(prediction.mean + drift), prediction)

        moved = jax.vmap(move)(states, epistemic, aleatoric)
        return moved.next_states, moved

    num_particles = noise.epistemic.shape[0]
    start = jnp.broadcast_to(state, (num_particles, *state.shape))
    by_time = (plan, gains, jnp.swapaxes(noise.epistemic, 0, 1), jnp.swapaxes(noise.aleatoric, 0, 1))
    _, trajectory = jax.lax.scan(step, start, by_time)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), trajectory)

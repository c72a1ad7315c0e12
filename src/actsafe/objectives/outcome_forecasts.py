"""Forecasts of rewards and costs by a world model that stops looking, and how far they are off."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.data.rows import Rows
from actsafe.models.base import Draws, Latent, LatentModel
from actsafe.objectives.forecasts import moments

LIKELIHOOD_STD = 1.0
"""Of rewards and costs about what the head expects: the likelihood that the world model is trained with."""


def outcome_errors(
    model: LatentModel, rows: Rows, *, num_seen: int, num_particles: int, key: PRNGKeyArray
) -> tuple[Float[Array, "batch time outcome"], Float[Array, "batch time outcome"]]:
    """truth − mean of reward and costs after the first `num_seen` rows of sequences, given the actions taken, and std.

    Mean and std are those between particles of what the head expects. Particles start from draws of the filter of their
    own, and follow another member of the ensemble at every step.
    """
    filter_key, dream_key = jax.random.split(key)
    seen = jax.tree.map(lambda leaf: leaf[:, :num_seen], rows)
    states = jax.vmap(lambda k: model.observe(seen, k))(jax.random.split(filter_key, num_particles))
    last = jax.tree.map(lambda leaf: leaf[:, :, -1], states)
    actions = jnp.asarray(rows.action)[:, num_seen:]
    keys = jax.random.split(dream_key, (num_particles, len(actions)))
    of_sequence = jax.vmap(lambda *inputs: _imagined(model, *inputs))
    dreamt = jax.vmap(of_sequence, in_axes=(0, None, 0))(last, actions, keys)
    truth = jnp.concatenate([jnp.asarray(rows.reward)[..., None], jnp.asarray(rows.costs)], axis=-1)[:, num_seen:]
    mean, std = moments(dreamt)
    return truth - mean, std


def _imagined(
    model: LatentModel, state: Latent, actions: Float[Array, "time action"], key: PRNGKeyArray
) -> Float[Array, "time outcome"]:
    """Expected reward and costs along one particle of one sequence."""

    def advance(state: Latent, inputs: tuple[Array, Draws]) -> tuple[Latent, Array]:
        action, draws = inputs
        state = model.imagine(state, action[None], draws)
        outcome = model.outcome(model.features(state))
        return state, jnp.concatenate([outcome.reward, outcome.costs[0]])

    draws = model.draw(1, len(actions), [*jax.random.split(key)])
    return jax.lax.scan(advance, jax.tree.map(lambda leaf: leaf[None], state), (actions, draws))[1]

"""Forecasts of rewards and costs by a world model that stops looking, and their errors in the forecasts' own std."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.data.rows import Rows
from actsafe.models.rssm.states import Gaussian, State
from actsafe.models.rssm.world_model import WorldModel
from actsafe.objectives.forecasts import moments

LIKELIHOOD_STD = 1.0
"""Of rewards and costs about what the head expects: the likelihood that the world model is trained with."""


def outcome_errors(
    model: WorldModel, rows: Rows, *, num_seen: int, num_particles: int, key: PRNGKeyArray
) -> tuple[Float[Array, "batch time outcome"], Float[Array, "batch time outcome"]]:
    """truth − mean of reward and costs after the first `num_seen` rows of sequences, given the actions taken, and std.

    Mean and std are those between particles of what the head expects. Particles start from draws of the filter of their
    own, and believe another member of the ensemble at every step.
    """
    filter_key, dream_key = jax.random.split(key)
    seen = jax.tree.map(lambda leaf: leaf[:, :num_seen], rows)
    states = jax.vmap(lambda k: model.observe(seen, k).state)(jax.random.split(filter_key, num_particles))
    last = jax.tree.map(lambda leaf: leaf[:, :, -1].astype(jnp.float32), states)
    actions = jnp.asarray(rows.action)[:, num_seen:]
    dreamt = jax.vmap(lambda state, k: _dream(model, state, actions, k))(
        last, jax.random.split(dream_key, num_particles)
    )
    truth = jnp.concatenate([jnp.asarray(rows.reward)[..., None], jnp.asarray(rows.costs)], axis=-1)[:, num_seen:]
    mean, std = moments(dreamt)
    return truth - mean, std


def _dream(
    model: WorldModel, state: State, actions: Float[Array, "batch time action"], key: PRNGKeyArray
) -> Float[Array, "batch time outcome"]:
    """Expected reward and costs along one particle of every sequence."""
    member_key, noise_key = jax.random.split(key)
    num_batch, num_steps = actions.shape[:2]
    members = jax.random.randint(member_key, (num_steps, num_batch), 0, model.cell.num_members)
    noise = jax.random.normal(noise_key, (num_steps, *state.stochastic.shape), jnp.float32)
    each = jnp.arange(num_batch)

    def advance(state: State, inputs: tuple[Array, Array, Array]) -> tuple[State, Array]:
        action, member, noise = inputs
        deterministic, priors = model.cell.predict(state, action)
        prior = Gaussian(priors.mean[member, each], priors.std[member, each])
        state = State(deterministic[member, each].astype(jnp.float32), prior.sample(noise).astype(jnp.float32))
        outcome = model.outcome(state.features)
        return state, jnp.concatenate([outcome.reward[:, None], outcome.costs], axis=-1)

    _, outcomes = jax.lax.scan(advance, state, (jnp.swapaxes(actions, 0, 1), members, noise))
    return jnp.swapaxes(outcomes, 0, 1)

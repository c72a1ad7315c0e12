"""The world model of `models.rssm`, in the parts that `side_by_side` puts in order, and what acting needs of it."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.data.rows import Rows
from actsafe.fast import cell
from actsafe.fast.convolutions import decoder_error, encode
from actsafe.fast.filter import FilterResult, PlainSteps, StepDraws, Steps, distributions, filter_steps, prepare
from actsafe.fast.networks import mlp
from actsafe.models.rssm.states import Filtered, State
from actsafe.models.rssm.world_model import WorldModel, flat_observations, outcome_of, total_loss


def step(
    model: WorldModel,
    state: State,
    action: Float[Array, "row action"],
    embedding: Float[Array, "row feature"],
    is_first: Bool[Array, " row"],
    key: PRNGKeyArray,
) -> State:
    """Plain: `WorldModel.step`."""
    member_key, noise_key = jax.random.split(key)
    goes_on = 1.0 - is_first[:, None].astype(jnp.float32)
    state = State(state.deterministic * goes_on, state.stochastic * goes_on)
    deterministic, _ = cell.predict(model.cell, state, action * goes_on)
    members = jax.random.randint(member_key, is_first.shape, 0, model.cell.num_members)
    chosen = jnp.take_along_axis(deterministic, members[None, :, None], axis=0)[0]
    posterior = cell.correct(model.cell.posterior, chosen, embedding)
    noise = jax.random.normal(noise_key, posterior.mean.shape, jnp.float32)
    return State(chosen.astype(jnp.float32), posterior.sample(noise))


def encode_rows(model: WorldModel, rows: Rows, key: PRNGKeyArray) -> tuple[Steps | PlainSteps, StepDraws]:
    """All that `WorldModel.filter` does before its chain of steps."""
    is_first = jnp.asarray(rows.is_first)
    with jax.named_scope("encoder"):
        embeddings = encode(model.encoder, flat_observations(rows))
    with jax.named_scope("filter"):
        sequences, owners = embeddings.reshape(*is_first.shape, -1), model.owners(rows)
        return prepare(model.cell, sequences, jnp.asarray(rows.action), is_first, key, owners)


def elbo(
    model: WorldModel, rows: Rows, result: FilterResult | Filtered, draws: StepDraws, key: PRNGKeyArray
) -> tuple[Float[Array, ""], tuple[State, dict[str, Array]]]:
    """`WorldModel.loss` once the chain of steps is done; `key` is the one that it was given."""
    filtered = distributions(model.cell, result, draws)
    features = filtered.state.features.reshape(rows.is_first.size, -1)
    with jax.named_scope("decoder"):
        observation_loss = jnp.mean(decoder_error(model.decoder, features, flat_observations(rows)))
    with jax.named_scope("open_loop"):
        ahead = model.open_loop_losses(rows, filtered.state, key)
    outcome = outcome_of(mlp(model.head, features))
    return total_loss(model.settings, rows, filtered, observation_loss, outcome, ahead)


def loss(
    model: WorldModel, rows: Rows, key: PRNGKeyArray, *, unroll: int = 1
) -> tuple[Float[Array, ""], tuple[State, dict[str, Array]]]:
    """Plain: `WorldModel.loss`."""
    steps, draws = encode_rows(model, rows, key)
    with jax.named_scope("filter"):
        result = filter_steps(model.cell, steps, draws, unroll=unroll)
    return elbo(model, rows, result, draws, key)

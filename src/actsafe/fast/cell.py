"""The cell of `models.rssm.cell`, with fewer and larger operations.

A normalised cell has the plain operations: what is normalised is needed product by product, and these functions do not
keep products apart.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.fast.gru import beside, gru
from actsafe.fast.networks import dense, elu, shifted
from actsafe.models.networks import Dense
from actsafe.models.rssm.cell import Cell, Posterior, Priors
from actsafe.models.rssm.states import Gaussian, State


def predict(
    cell: Cell, state: State, action: Float[Array, "row action"]
) -> tuple[Float[Array, "member row deterministic"], Gaussian]:
    """What every member expects to follow. Plain: `Cell.predict`."""
    return predict_each(cell.priors, *jax.tree.map(lambda leaf: to_members(leaf, cell.num_members), (state, action)))


def predict_many(
    cell: Cell, state: State, action: Float[Array, "row action"]
) -> tuple[Float[Array, "member row deterministic"], Gaussian]:
    """`Cell.predict` of so many rows that to write and read what both layers of gates give takes longer than a product
    with both at once, in which a third of the weights are 0."""
    if cell.is_normalised:
        return cell.predict(state, action)
    priors, dtype = cell.priors, cell.priors.entry.weight.dtype
    step = jnp.concatenate([state.stochastic, action], axis=-1).astype(dtype)
    entering = dense(priors.entry, to_members(step, cell.num_members))
    previous = to_members(state.deterministic.astype(dtype), cell.num_members)
    gates = dense(joined_gates(priors), beside(entering, previous))
    deterministic = gru(gates, previous)
    return deterministic, belief(priors, deterministic)


def predict_each(
    priors: Priors, state: State, action: Float[Array, "member row action"]
) -> tuple[Float[Array, "member row deterministic"], Gaussian]:
    """What each member expects to follow states of its own. Plain: `Priors.__call__`."""
    if priors.scales is not None:
        return priors(state, action)
    dtype = priors.entry.weight.dtype
    step = jnp.concatenate([state.stochastic, action], axis=-1).astype(dtype)
    previous = state.deterministic.astype(dtype)
    x, ends = dense(priors.gates_from_entry, elu(dense(priors.entry, step))), 2 * previous.shape[-1]
    h = previous @ priors.gates_from_state
    from_state = shifted(h[..., ends:], priors.candidate_bias)
    gates = jnp.concatenate([x[..., :ends] + h[..., :ends], x[..., ends:], from_state], axis=-1)
    deterministic = gru(gates, previous)
    return deterministic, belief(priors, deterministic)


def belief(priors: Priors, deterministic: Float[Array, "member row deterministic"]) -> Gaussian:
    """Plain: `Priors.belief`."""
    return Gaussian.of(dense(priors.out, elu(dense(priors.hidden, deterministic))))


def correct(
    posterior: Posterior, deterministic: Float[Array, "row deterministic"], embedding: Float[Array, "row embedding"]
) -> Gaussian:
    """Plain: `Posterior.__call__`."""
    if posterior.scale is not None:
        return posterior(deterministic, embedding)
    hidden = deterministic @ posterior.hidden.weight[: deterministic.shape[-1]]
    hidden = hidden + from_observation(posterior, embedding, deterministic.shape[-1])
    return Gaussian.of(dense(posterior.out, elu(hidden)))


def from_observation(
    posterior: Posterior, embedding: Float[Array, "*lead embedding"], size: int
) -> Float[Array, "*lead hidden"]:
    """The observation's part of the posterior's hidden layer, and the layer's bias; `size` is the deterministic one."""
    return shifted(embedding @ posterior.hidden.weight[size:], posterior.hidden.bias)


def joined_gates(priors: Priors) -> Dense:
    """Both layers of gates as one, [x, h] to (reset, update, candidate from x, candidate from h)."""
    x, h = priors.gates_from_entry, priors.gates_from_state
    rest = 2 * h.shape[-2]
    none_x, none_h = jnp.zeros_like(x.weight[..., rest:]), jnp.zeros_like(h[..., rest:])
    upper = jnp.concatenate([x.weight, none_x], axis=-1)
    lower = jnp.concatenate([h[..., :rest], none_h, h[..., rest:]], axis=-1)
    bias = jnp.concatenate([x.bias, priors.candidate_bias], axis=-1)
    return Dense(jnp.concatenate([upper, lower], axis=-2), bias)


def to_members(x: Float[Array, "row feature"], num_members: int) -> Float[Array, "member row feature"]:
    """The same rows for every member."""
    return jnp.broadcast_to(x[None], (num_members, *x.shape))

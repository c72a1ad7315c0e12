"""The filter: latent states of a recorded sequence, inferred step by step.

h_t = f^i(h_{t−1}, s_{t−1}, a_{t−1}),   s_t ~ q(s_t | h_t, o_t),   i ~ U{1 … M} drawn anew at every step for all rows

With a bootstrap i is drawn for every row, among the members that learn from it (see `bootstrap`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from actsafe.models.rssm.bootstrap import draw_owners
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.states import Filtered, State


class FilterDraws(NamedTuple):
    """The random numbers of a filter."""

    members: Int[Array, "time *row"]
    noise: Float[Array, "time row stochastic"]

    @classmethod
    def draw(
        cls,
        cell: Cell,
        num_steps: int,
        num_rows: int,
        key: PRNGKeyArray,
        owners: Bool[Array, "row time member"] | None = None,
    ) -> "FilterDraws":
        """A member for every step, or with `owners` one of them for every row, and the noise of every state."""
        member_key, noise_key = jax.random.split(key)
        if owners is None:
            members = jax.random.randint(member_key, (num_steps,), 0, cell.num_members)
        else:
            members = draw_owners(jnp.swapaxes(owners, 0, 1), member_key)
        return cls(members, jax.random.normal(noise_key, (num_steps, num_rows, cell.stochastic_size), jnp.float32))


def filter_sequences(
    cell: Cell,
    embeddings: Float[Array, "batch time embedding"],
    actions: Float[Array, "batch time action"],
    is_first: Bool[Array, "batch time"],
    key: PRNGKeyArray,
    owners: Bool[Array, "batch time member"] | None = None,
) -> Filtered:
    """States and beliefs (batch, time) from the beginning; where an episode begins, nothing before it counts.

    `owners` are the members that may be followed to each row, if those are not all.
    """
    num_rows, num_steps = is_first.shape
    draws = FilterDraws.draw(cell, num_steps, num_rows, key, owners)
    inputs = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), (embeddings, actions, is_first))
    embeddings, actions, is_first = inputs
    filtered = filter_steps(cell, embeddings, actions, is_first, draws)
    return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), filtered)


def filter_steps(
    cell: Cell,
    embeddings: Float[Array, "time batch embedding"],
    actions: Float[Array, "time batch action"],
    is_first: Bool[Array, "time batch"],
    draws: FilterDraws,
    *,
    unroll: int = 1,
) -> Filtered:
    """The same (time, batch), with these random numbers."""
    dtype = cell.priors.entry.weight.dtype

    def step(state: State, inputs: tuple[Array, Array, Array, FilterDraws]) -> tuple[State, Filtered]:
        embedding, action, is_first, (member, noise) = inputs
        goes_on = 1.0 - is_first[:, None].astype(dtype)
        state, action = jax.tree.map(lambda leaf: leaf * goes_on, (state, action.astype(dtype)))
        deterministic, prior = cell.follow(state, action, member)
        posterior = cell.posterior(deterministic, embedding)
        state = State(deterministic, posterior.sample(noise).astype(dtype))
        return state, Filtered(state, posterior, prior)

    start = jax.tree.map(lambda leaf: leaf.astype(dtype), cell.begin(is_first.shape[1]))
    return jax.lax.scan(step, start, (embeddings, actions, is_first, draws), unroll=unroll)[1]

"""Rewards and costs some steps ahead, without the observations in between: what dreams ask of a model.

s_{t+j} ~ f^i(s_{t+j−1}, a_{t+j−1}),  j = 1 … k,  from filtered s_t,  i drawn anew for every row and step
loss = mean over t, j of −log p(r_{t+j}, c_{t+j} | s_{t+j}),  normal with unit variance

Learned from filtered states alone, the outcome head never sees states such as dreams lead to. Here it does. Gradients
go through all steps to the priors, which so learn what costs, and to the states that they start from.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from actsafe.data.rows import Rows
from actsafe.models.base import Outcome
from actsafe.models.rssm.bootstrap import draw_owners
from actsafe.models.rssm.cell import Cell
from actsafe.models.rssm.elbo import squared_error
from actsafe.models.rssm.states import State


class Ahead(NamedTuple):
    """The rows that lie ahead of starting times 0, k, 2k, ...: each row of a sequence but the first is ahead of one."""

    starts: Int[Array, " start"]
    places: Int[Array, "step start"]
    """Times of the rows, within the sequence."""
    counts: Float[Array, "step batch start"]
    """1 where there is such a row and no episode begins on the way to it, else 0."""

    @classmethod
    def of(cls, is_first: Bool[Array, "batch time"], num_steps: int) -> "Ahead":
        """Up to `num_steps` ahead."""
        length = is_first.shape[1]
        starts = jnp.arange(0, length - 1, num_steps)
        times = starts[None, :] + 1 + jnp.arange(num_steps)[:, None]
        places = jnp.minimum(times, length - 1)
        goes_on = (times < length)[:, None, :] & jnp.moveaxis(~is_first[:, places], 1, 0)
        return cls(starts, places, jnp.cumprod(goes_on.astype(jnp.float32), axis=0))

    def take(self, field: Array) -> Array:
        """A field (batch, time, ...) of these rows: (step, batch and start, ...)."""
        taken = jnp.moveaxis(field[:, self.places], 1, 0)
        return taken.reshape(taken.shape[0], -1, *field.shape[2:])


def open_loop_losses(
    cell: Cell,
    outcome: Callable[[Array], Outcome],
    states: State,
    rows: Rows,
    owners: Bool[Array, "batch time member"] | None,
    num_steps: int,
    key: PRNGKeyArray,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The losses of rewards and of costs up to `num_steps` ahead of filtered `states` (batch, time).

    Members are drawn among a row's `owners`, if there are any, and else among all.
    """
    ahead, dtype = Ahead.of(jnp.asarray(rows.is_first), num_steps), cell.priors.entry.weight.dtype
    start = jax.tree.map(lambda leaf: leaf[:, ahead.starts].reshape(-1, leaf.shape[-1]), states)
    actions, rewards, costs = (
        ahead.take(jnp.asarray(field)) for field in (rows.action, rows.reward[..., None], rows.costs)
    )
    member_key, noise_key = jax.random.split(key)
    lead = actions.shape[:2]
    if owners is None:
        members = jax.random.randint(member_key, lead, 0, cell.num_members)
    else:
        members = draw_owners(ahead.take(owners), member_key)
    noise = jax.random.normal(noise_key, (*lead, cell.stochastic_size), jnp.float32)

    def step(state: State, inputs: tuple[Array, Array, Array]) -> tuple[State, Array]:
        action, members, noise = inputs
        deterministic, prior = cell.follow(state, action.astype(dtype), members)
        state = State(deterministic, prior.sample(noise).astype(dtype))
        return state, state.features

    _, features = jax.lax.scan(step, start, (actions, members, noise))
    expected = outcome(features.reshape(-1, features.shape[-1]))
    counts = ahead.counts.ravel()

    def mean_error(predicted: Float[Array, "row entry"], target: Array) -> Float[Array, ""]:
        errors = squared_error(predicted, target.reshape(predicted.shape))
        return jnp.sum(counts * errors) / jnp.maximum(jnp.sum(counts), 1.0)

    return mean_error(expected.reward[:, None], rewards), mean_error(expected.costs, costs)

"""The governor: a fallback takes the rest of an episode over before its budget is spent.

    the fallback acts from the first decision on with    Σ c_t > 0   and   Σ c_t + ĉ ≥ d

Σ c_t is what the episode has cost so far, d the budget, and ĉ, the reserve, an upper estimate of what the episode costs
once the fallback acts: the conformal quantile of the costs of episodes that it took over, and a fixed share of the
budget until enough are recorded. A cost that is not a number takes over too.
"""

import math
from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from actsafe.agents.safe_set.settings import GovernorSettings


def must_take_over(
    spent: Float[Array, "environment constraint"],
    reserve: Float[Array, "environment constraint"],
    budgets: Sequence[float],
) -> Bool[Array, " environment"]:
    """Whether the fallback has to act from here on; what is not finite says yes."""
    bounds = jnp.asarray(budgets, spent.dtype)[None]
    is_within = (spent <= 0.0) | (spent + reserve < bounds)
    return jnp.any(~is_within, axis=-1)


class Aftermath(eqx.Module):
    """What episodes cost after they were taken over, by the level of the fallback: a ring of the newest."""

    costs: Float[Array, "level entry constraint"]
    counts: Int[Array, " level"]
    """Episodes recorded since the beginning; `costs` holds the newest."""

    @classmethod
    def empty(cls, num_levels: int, num_kept: int, num_constraints: int) -> "Aftermath":
        return cls(jnp.zeros((num_levels, num_kept, num_constraints), jnp.float32), jnp.zeros((num_levels,), jnp.int32))

    def record(
        self,
        level: Int[Array | np.ndarray, ""],
        cost: Float[Array | np.ndarray, " constraint"],
        is_real: Bool[Array | np.ndarray, ""],
    ) -> "Aftermath":
        """With one episode more, if it is real."""
        entry = self.counts[level] % self.costs.shape[1]
        costs = self.costs.at[level, entry].set(jnp.where(is_real, jnp.asarray(cost), self.costs[level, entry]))
        return Aftermath(costs, self.counts.at[level].add(jnp.asarray(is_real, jnp.int32)))

    def reserve(self, settings: GovernorSettings, budgets: Sequence[float]) -> Float[Array, "level constraint"]:
        """ĉ by level and constraint: the ⌈(n + 1) coverage⌉-th smallest cost, where n entries give such a rank."""
        num_kept, bounds = self.costs.shape[1], jnp.asarray(budgets, jnp.float32)
        known = jnp.minimum(self.counts, num_kept)[:, None]
        is_known = jnp.arange(num_kept)[None] < known
        rank = jnp.ceil((known + 1) * settings.coverage).astype(jnp.int32)
        ordered = jnp.sort(jnp.where(is_known[..., None], self.costs, jnp.inf), axis=1)
        index = jnp.broadcast_to(jnp.clip(rank, 1, num_kept)[..., None] - 1, (*known.shape, len(budgets)))
        learned = jnp.take_along_axis(ordered, index, axis=1)[:, 0]
        enough = known >= min(math.ceil(settings.coverage / (1.0 - settings.coverage)), num_kept)
        return jnp.where(enough, jnp.minimum(learned, bounds[None]), settings.reserve * bounds[None])

"""What the values of critics can be, and what an objective remembers from update to update to know it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.actor_critic.settings import ActorCriticSettings
from actsafe.objectives.weights import ObjectiveWeights, Weight

UNCERTAINTY_DECAY = 0.999
"""Of the largest uncertainty that is remembered, at each update: a model is most unsure before it has learned, and what
was possible then would bound nothing later."""
RANGE_DECAY = 0.99
"""Of the running range of returns, at each update."""
PERCENTILES = (5.0, 95.0)
"""Between which that range lies."""


class ObjectiveMemory(NamedTuple):
    """What an objective has seen in earlier dreams. 0 stands for nothing yet."""

    largest_uncertainty: Float[Array, ""] | float = 0.0
    return_range: Float[Array, ""] | float = 0.0

    @classmethod
    def empty(cls) -> "ObjectiveMemory":
        """Nothing yet, in arrays of their own."""
        return cls(jnp.zeros((), jnp.float32), jnp.zeros((), jnp.float32))

    def with_uncertainty(self, uncertainty: Float[Array, "time row"]) -> "ObjectiveMemory":
        """max{max u, 0.999 · before}: what was just dreamt is always among what was seen."""
        newest = jnp.max(uncertainty).astype(jnp.float32)
        return self._replace(largest_uncertainty=jnp.maximum(newest, UNCERTAINTY_DECAY * self.largest_uncertainty))

    def with_returns(self, returns: Float[Array, "time row"]) -> "ObjectiveMemory":
        """S ← 0.99 S + 0.01 (Per(R, 95) − Per(R, 5)); the first range is taken as it is."""
        low, high = jnp.percentile(returns.astype(jnp.float32), jnp.asarray(PERCENTILES, jnp.float32))
        before, newest = jnp.asarray(self.return_range, jnp.float32), high - low
        averaged = RANGE_DECAY * before + (1.0 - RANGE_DECAY) * newest
        return self._replace(return_range=jnp.where(before == 0.0, newest, averaged))

    def or_before(self, before: "ObjectiveMemory") -> "ObjectiveMemory":
        """This, and what was remembered before in place of entries that are not finite."""
        return jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(new), new, old), self, before)


class Bounds(NamedTuple):
    """The least and the largest value of each critic: of the reward, then of every cost."""

    lowest: Float[Array, " critic"]
    highest: Float[Array, " critic"]

    def clip(self, values: Float[Array, "critic time row"]) -> Float[Array, "critic time row"]:
        """The values within their bounds."""
        lowest, highest = (bound[:, None, None] for bound in self)
        return jnp.clip(values, lowest, highest)


def value_bounds(
    settings: ActorCriticSettings,
    weights: ObjectiveWeights,
    dreamt_costs: Float[Array, " constraint"],
    largest_uncertainty: Weight,
) -> Bounds:
    """What every decision brings at the least and at most, for ever.

    reward:  (task · [r_min, r_max] + κ · [0, u_max]) / (1 − γ)
    cost:    [0, (max{c_max, ĉ_max} + λ u_max) / (1 − γ_c)]

    r and c are recorded, u and ĉ dreamt (`dreamt_costs`, the largest of these dreams). The model may expect a larger
    cost than any that was met, and no critic is held below that. A c_max that is not known, or not above 0, is taken as
    infinite: only a cost that was met says how large costs are. Critics learn from their own values and may run away; a
    negative value of a cost would pay for breaking the budget.
    """
    recorded = weights.recorded
    task = _scaled(weights.task, recorded.lowest_reward, recorded.highest_reward)
    bonus = _scaled(weights.uncertainty, 0.0, largest_uncertainty)
    known = jnp.asarray(recorded.highest_costs, jnp.float32)
    costs = jnp.maximum(jnp.where(known > 0.0, known, jnp.inf), dreamt_costs)
    _, charge = _scaled(weights.pessimism, 0.0, largest_uncertainty)
    reward_bounds = [
        (of_task + of_bonus) / (1.0 - settings.discount) for of_task, of_bonus in zip(task, bonus, strict=True)
    ]
    cost_bounds = jnp.zeros_like(costs), (costs + charge) / (1.0 - settings.cost_discount)
    return Bounds(
        *(jnp.append(reward, cost).astype(jnp.float32) for reward, cost in zip(reward_bounds, cost_bounds, strict=True))
    )


def _scaled(weight: Weight, lowest: Weight, highest: Weight) -> tuple[Array, Array]:
    """The interval from `lowest` to `highest` times `weight`; a weight of 0 makes it 0 even where it is infinite."""
    ends = [jnp.where(jnp.asarray(weight) == 0.0, 0.0, weight * jnp.asarray(end)) for end in (lowest, highest)]
    return jnp.minimum(*ends), jnp.maximum(*ends)

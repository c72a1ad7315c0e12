"""What a policy maximises, as weights of what a model predicts."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Weight = Float[Array, ""] | float


class Recorded(NamedTuple):
    """The extremes of what single decisions brought, as far as anything is known of them."""

    lowest_reward: Weight = -math.inf
    highest_reward: Weight = math.inf
    highest_costs: Float[Array, "*constraint"] | float = math.inf
    """Of every constraint, or of all. Costs are never below 0."""


class ObjectiveWeights(NamedTuple):
    """Weights of rewards and of the charge for uncertainty: numbers, so that several objectives are one batch."""

    task: Weight
    """Of the task's reward."""
    uncertainty: Weight
    """Of the uncertainty as a reward: the intrinsic reward, or an optimist's bonus."""
    pessimism: Weight
    """Of the uncertainty as a cost."""
    recorded: Recorded = Recorded()
    """What critics are held to: no policy earns or costs more than that at every decision."""


def stacked(entries: Sequence[ObjectiveWeights]) -> ObjectiveWeights:
    """Several objectives as one batch."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float32) for leaf in leaves]), *entries)

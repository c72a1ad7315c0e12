"""What a policy maximises, as weights of what a model predicts."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Weight = Float[Array, ""] | float


class ObjectiveWeights(NamedTuple):
    """Weights of rewards and of the charge for uncertainty: numbers, so that several objectives are one batch."""

    task: Weight
    """Of the task's reward."""
    uncertainty: Weight
    """Of the uncertainty as a reward: the intrinsic reward, or an optimist's bonus."""
    pessimism: Weight
    """Of the uncertainty as a cost."""
    lowest: Weight = -math.inf
    """The least value that the reward's critic is believed."""
    highest: Weight = math.inf
    """The largest."""


def stacked(entries: Sequence[ObjectiveWeights]) -> ObjectiveWeights:
    """Several objectives as one batch."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float32) for leaf in leaves]), *entries)

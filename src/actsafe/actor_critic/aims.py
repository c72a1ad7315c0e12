"""What actor-critics are after."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Weight = Float[Array, ""] | float


class Aim(NamedTuple):
    """What is maximised, and how costs are judged: numbers, so that several aims are one batch."""

    task: Weight
    """Weight of the task's reward."""
    doubt: Weight
    """Weight of the doubt as a reward: the intrinsic reward, or an optimist's bonus."""
    pessimism: Weight
    """Weight of the doubt as a cost."""
    lowest: Weight = -math.inf
    """What its critic says is heeded from here on,"""
    highest: Weight = math.inf
    """and up to here: beyond lies what no policy can earn."""


def aims(entries: Sequence[Aim]) -> Aim:
    """Several aims as one batch."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf, jnp.float32) for leaf in leaves]), *entries)

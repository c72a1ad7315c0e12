"""What critics expect of states, and both ways back from it: to their weights, and to the states.

All critics are one batch. A return depends on its own critic alone, so that the gradients of all returns are one pass
back, each through the critic that it depends on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float

from actsafe.fast.networks import mlp
from actsafe.fast.ordering import after
from actsafe.models.networks import MLP, cast
from actsafe.models.packing import flat

Cotangents = Float[Array, "critic time row"]


class CriticValues(NamedTuple):
    """Values of states, and what changes them."""

    values: Float[Array, "critic time row"]
    to_features: Callable[[Cotangents], Float[Array, "critic time row feature"]]
    """∂/∂features of Σ values · cotangents, apart for every critic."""
    to_weights: Callable[[Cotangents, Any], Float[Array, "critic parameter"]]
    """∂/∂weights of the same, in the critics' own precision; to be computed after the second argument. Both ways are
    alike, and a compiler that found them side by side would make one of them, so that each waits for the other."""


def evaluate(critics: MLP, features: Float[Array, "time row feature"], dtype: DTypeLike) -> CriticValues:
    """The value of every state by every critic; products of matrices are in `dtype`. Plain: `losses.critic_values`."""
    lead, num_critics = features.shape[:2], critics.layers[0].weight.shape[0]

    def forward(critics: MLP, seen: Float[Array, "critic row feature"]) -> Array:
        return mlp(cast(critics, dtype), seen)[..., 0].astype(jnp.float32)

    rows = features.reshape(1, -1, features.shape[-1])
    values, pull_back = jax.vjp(forward, critics, jnp.broadcast_to(rows, (num_critics, *rows.shape[1:])))

    def to_features(cotangents: Cotangents) -> Array:
        return pull_back(cotangents.reshape(values.shape).astype(values.dtype))[1].reshape(num_critics, *features.shape)

    def to_weights(cotangents: Cotangents, others: Any) -> Array:
        later = after(pull_back, others)
        return jax.vmap(flat)(later(cotangents.reshape(values.shape).astype(values.dtype))[0])

    return CriticValues(values.reshape(num_critics, *lead), to_features, to_weights)

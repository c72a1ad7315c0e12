"""Where operations have their place in a program. A compiler puts them into one order, which decides whose memory is
taken over by whom, and merges what it finds side by side; both can make a device wait for what it does not need."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Value = TypeVar("Value")


def after(value: Value, others: Any) -> Value:
    """`value`, all uses of which have their place in the program after `others`; a device need not wait for these."""
    return together(value, others)[0]


def together(*values: Any) -> Any:
    """The same values, of which none is used, and the memory of none given up, before all have their place."""
    arrays, rest = eqx.partition(values, eqx.is_array)
    return eqx.combine(jax.lax.optimization_barrier(arrays), rest)


def once(value: Value, other: Float[Array, "..."]) -> Value:
    """`value`, for which a device does wait until it has `other`; nothing, if that is not a number."""
    is_known = ~jnp.isnan(other.reshape(-1)[0])
    return jax.tree.map(lambda leaf: jnp.where(is_known, leaf, jnp.zeros_like(leaf)), value)

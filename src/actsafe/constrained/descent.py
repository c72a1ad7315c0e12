"""Steps of an optimiser on parameters that are one vector, which is a few passes over memory instead of hundreds."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float


def descend(
    optimiser: optax.GradientTransformation,
    parameters: Float[Array, " parameter"],
    direction: Float[Array, " parameter"],
    memory: Any,
) -> tuple[Float[Array, " parameter"], Any, Float[Array, ""]]:
    """The parameters after a step, the optimiser's memory, and 1 if the step was skipped, else 0.

    A direction that is not finite is skipped: parameters and memory stay as they were.
    """
    is_sound = jnp.isfinite(jnp.sum(jnp.square(direction)))
    change, moved = optimiser.update(direction, memory, parameters)
    following = jnp.where(is_sound, parameters + jnp.asarray(change), parameters)
    memory = jax.tree.map(lambda new, old: jnp.where(is_sound, new, old), moved, memory)
    return following, memory, 1.0 - is_sound.astype(jnp.float32)

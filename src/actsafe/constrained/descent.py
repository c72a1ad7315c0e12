"""Steps of an optimiser on all parameters as one vector, which is a few passes over memory instead of hundreds."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

Parameters = TypeVar("Parameters")


def flat(tree: PyTree) -> Float[Array, " parameter"]:
    """All floating-point arrays of `tree` as one vector."""
    return ravel_pytree(eqx.filter(tree, eqx.is_inexact_array))[0]


def begin(optimiser: optax.GradientTransformation, parameters: PyTree) -> Any:
    """What the optimiser remembers before the first step."""
    return optimiser.init(flat(parameters))


def descend(
    optimiser: optax.GradientTransformation,
    parameters: Parameters,
    direction: Float[Array, " parameter"],
    memory: Any,
) -> tuple[Parameters, Any, Float[Array, ""]]:
    """The parameters after a step, the optimiser's memory, and 1 if the step was skipped, else 0.

    A direction that is not finite is skipped: parameters and memory stay as they were.
    """
    learned, rest = eqx.partition(parameters, eqx.is_inexact_array)
    vector, restore = ravel_pytree(learned)
    is_sound = jnp.isfinite(jnp.sum(jnp.square(direction)))
    change, moved = optimiser.update(direction, memory, vector)
    vector = jnp.where(is_sound, vector + jnp.asarray(change), vector)
    memory = jax.tree.map(lambda new, old: jnp.where(is_sound, new, old), moved, memory)
    return eqx.combine(restore(vector), rest), memory, 1.0 - is_sound.astype(jnp.float32)

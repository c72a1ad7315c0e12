"""What is applied to directions."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from actsafe.constrained.base import Gradient
from actsafe.constrained.slope import choose, inner_product

MAX_NORM, EPS = 100.0, 1e-5
"""Where the global norm is clipped, and Adam's smallest denominator."""


def clipped_adam(learning_rate: float | Float[Array, ""]) -> optax.GradientTransformation:
    """Adam behind a clip of the global norm, which stands still where the direction is zero.

    Adam alone would go on with its momentum, and a step that was skipped would move the parameters all the same.
    """
    adam = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.adam(learning_rate, eps=EPS))

    def update(updates: Gradient, state: Any, params: PyTree | None = None) -> tuple[Gradient, Any]:
        change, moved = adam.update(updates, state, params)
        is_moving = inner_product(updates, updates) > 0
        return choose(is_moving, change, jax.tree.map(jnp.zeros_like, change)), choose(is_moving, moved, state)

    return optax.GradientTransformation(adam.init, update)

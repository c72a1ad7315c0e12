"""Weighted sums of gradients: what all constrained steps descend, each with its own weights."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from actsafe.constrained.base import Gradient, Info, Linearisation


class Slope(NamedTuple):
    """A weighted sum of gradients, and how fast each cost grows along it."""

    gradient: Gradient
    """g = w₀ ∇f₀ + Σᵢ wᵢ ∇fᵢ."""
    norm: Float[Array, ""]
    """‖g‖."""
    cost_rates: Float[Array, " constraint"]
    """θᵢ = ⟨∇fᵢ, g⟩ / ‖g‖; zero where g is."""
    is_sound: Bool[Array, ""]
    """Whether loss, margins and every entry of every gradient are finite."""


def slope(
    linearisation: Linearisation, loss_weight: Float[Array, ""] | float, cost_weights: Float[Array, " constraint"]
) -> Slope:
    """The slope under these weights.

    The weights do not depend on the gradients, so that XLA may fuse the sum and its products into one pass over them.
    And 0 · NaN = 0 · ∞ = NaN: ‖g‖ is finite only where all gradients are, those with weight 0 among them.
    """
    _require_shapes(linearisation)
    cost_gradients = [
        jax.tree.map(lambda leaf, i=i: leaf[i], linearisation.cost_gradients) for i in range(cost_weights.size)
    ]

    def weigh(of_loss: Array, *of_costs: Array) -> Array:
        total = loss_weight * of_loss
        for i, of_cost in enumerate(of_costs):
            total = total + cost_weights[i] * of_cost
        return total.astype(of_loss.dtype)

    gradient = jax.tree.map(weigh, linearisation.loss_gradient, *cost_gradients)
    norm = jnp.sqrt(inner_product(gradient, gradient))
    unit = jnp.where(norm > 0, norm, 1.0)
    rates = [inner_product(of_cost, gradient) / unit for of_cost in cost_gradients]
    is_known = jnp.isfinite(linearisation.loss) & jnp.all(jnp.isfinite(linearisation.margins))
    return Slope(
        gradient,
        norm,
        jnp.stack(rates) if rates else jnp.zeros_like(cost_weights),
        is_known & jnp.isfinite(norm),
    )


def scaled(descended: Slope, step_size: Float[Array, ""] | float) -> Gradient:
    """`step_size` times the gradient; zero where the slope is not sound."""

    def scale(leaf: Array) -> Array:
        return jnp.where(descended.is_sound, step_size * leaf, 0.0).astype(leaf.dtype)

    return jax.tree.map(scale, descended.gradient)


def report(
    descended: Slope,
    *,
    is_feasible: Bool[Array, ""],
    step_size: Float[Array, ""] | float,
    multipliers: Float[Array, " constraint"],
) -> Info:
    """What every constrained step reports: see `ConstrainedStep`."""
    measured = {
        "is_feasible": is_feasible,
        "step_size": step_size,
        "gradient_norm": descended.norm,
        "multiplier": jnp.max(multipliers, initial=0.0),
    }
    info = {name: jnp.where(descended.is_sound, value, 0.0) for name, value in measured.items()}
    return {name: value.astype(descended.norm.dtype) for name, value in info.items()} | {
        "is_skipped": (~descended.is_sound).astype(descended.norm.dtype)
    }


def inner_product(a: Gradient, b: Gradient) -> Float[Array, ""]:
    """⟨a, b⟩ over all leaves."""
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda x, y: jnp.sum(x * y), a, b))


def choose(is_first: Bool[Array, ""], first: PyTree, second: PyTree) -> PyTree:
    """One of two trees of the same structure."""
    return jax.tree.map(lambda one, other: jnp.where(is_first, one, other), first, second)


def _require_shapes(linearisation: Linearisation) -> None:
    num_constraints = linearisation.margins.size

    def require(of_loss: Array, of_costs: Array) -> None:
        expected = (num_constraints, *of_loss.shape)
        if of_costs.shape != expected:
            raise ValueError(
                f"cost_gradients: got a leaf of shape {of_costs.shape}, expected {expected}; "
                "stack one gradient per margin along the first axis of every leaf of loss_gradient."
            )

    jax.tree.map(require, linearisation.loss_gradient, linearisation.cost_gradients)

"""Standardisation with a floor: a coordinate that has hardly moved yet is not blown up to unit variance."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Normaliser(eqx.Module):
    """x -> (x - mean) / scale, coordinate by coordinate."""

    mean: Float[Array, " feature"]
    scale: Float[Array, " feature"]

    @classmethod
    def fit(
        cls, values: Float[Array, "n feature"], is_data: Bool[Array, " n"], floor: Float[Array, " feature"]
    ) -> "Normaliser":
        """Mean and std of the rows that are data, the std no smaller than `floor`."""
        weight = jnp.where(is_data, 1.0, 0.0)[:, None]
        count = jnp.maximum(jnp.sum(weight), 1.0)
        mean = jnp.sum(weight * values, axis=0) / count
        variance = jnp.sum(weight * (values - mean[None]) ** 2, axis=0) / count
        return cls(mean, jnp.maximum(jnp.sqrt(variance), floor))

    def __call__(self, values: Float[Array, " feature"]) -> Float[Array, " feature"]:
        return (values - self.mean) / self.scale

    def invert(self, values: Float[Array, " feature"]) -> Float[Array, " feature"]:
        return values * self.scale + self.mean

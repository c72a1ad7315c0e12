"""Latent states, beliefs about them, and sequences of both."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

MIN_STD = 0.1


class State(NamedTuple):
    """A latent state."""

    deterministic: Float[Array, "*lead deterministic"]
    """h"""
    stochastic: Float[Array, "*lead stochastic"]
    """s"""

    @property
    def features(self) -> Float[Array, "*lead feature"]:
        """[h, s]"""
        return jnp.concatenate([self.deterministic, self.stochastic], axis=-1)


class Gaussian(NamedTuple):
    """Independent normal distributions."""

    mean: Float[Array, "*lead stochastic"]
    std: Float[Array, "*lead stochastic"]

    @classmethod
    def of(cls, outputs: Float[Array, "*lead outputs"]) -> "Gaussian":
        """From a layer's outputs: the mean, and std = softplus + 0.1; in float32."""
        mean, raw = jnp.split(outputs.astype(jnp.float32), 2, axis=-1)
        return cls(mean, jax.nn.softplus(raw) + MIN_STD)

    def sample(self, noise: Float[Array, "*lead stochastic"]) -> Float[Array, "*member_and_lead stochastic"]:
        """mean + std · noise."""
        return self.mean + self.std * noise


class Filtered(NamedTuple):
    """A sequence as the filter saw it."""

    state: State
    posterior: Gaussian
    prior: Gaussian
    """Of the member that was followed."""

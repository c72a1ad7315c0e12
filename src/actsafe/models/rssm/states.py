"""Latent states, what is believed of them, and sequences of them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

MIN_STD = 0.1


class State(NamedTuple):
    """A latent state."""

    deterministic: Float[Array, "*lead deterministic"]
    stochastic: Float[Array, "*lead stochastic"]

    @property
    def features(self) -> Float[Array, "*lead feature"]:
        """What heads, actors and critics see."""
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

    def sample(self, noise: Float[Array, "*lead stochastic"]) -> Float[Array, "*lead stochastic"]:
        """mean + std · noise."""
        return self.mean + self.std * noise


class Steps(NamedTuple):
    """What the filter's steps are given, one after the other; done for all steps at once."""

    action_offsets: Float[Array, "time row hidden"]
    """The actions' part of what enters the cell, and the layer's bias."""
    informed: Float[Array, "time row hidden"]
    """The observations' part of the posterior's hidden layer, and the layer's bias."""


class StepDraws(NamedTuple):
    """The same, without gradients."""

    noise: Float[Array, "time row stochastic"]
    goes_on: Float[Array, "time row 1"]
    """0 where an episode begins, else 1."""
    members: Int[Array, " time"]
    """One is drawn per step and predicts for the whole batch."""


class FilterResult(NamedTuple):
    """What the filter's steps came to."""

    states: State
    """(time, row, ...)"""
    outputs: Float[Array, "time row outputs"]
    """Of the posterior's last layer."""


class Filtered(NamedTuple):
    """A sequence as the filter saw it."""

    state: State
    posterior: Gaussian
    prior: Gaussian
    """Of the member that was drawn at each step."""

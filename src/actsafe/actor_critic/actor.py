"""The policy: a tanh-squashed Gaussian."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.models.networks import MLP

MEAN_LIMIT = 5.0
MIN_STD = 1e-4


class Squashed(NamedTuple):
    """tanh(N(mean, std))."""

    mean: Float[Array, "*lead action"]
    std: Float[Array, "*lead action"]

    def sample(self, noise: Float[Array, "*lead action"]) -> Float[Array, "*lead action"]:
        """An action in (-1, 1)."""
        return jnp.tanh(self.mean + self.std * noise)

    @property
    def middle(self) -> Float[Array, "*lead action"]:
        """The median action: what is done when nothing is to be tried out."""
        return jnp.tanh(self.mean)


class Actor(eqx.Module):
    """Features to a distribution of actions; with the default sizes and 2 actions, 747,604 parameters."""

    layers: MLP
    initial_std: float = eqx.field(static=True)

    @classmethod
    def create(
        cls, num_features: int, num_actions: int, *, width: int, depth: int, initial_std: float, key: PRNGKeyArray
    ) -> "Actor":
        """An actor whose first distribution is nearly N(0, `initial_std`) before squashing, in every state."""
        return cls(MLP.create(num_features, 2 * num_actions, width, depth, key, last_scale=0.01), initial_std)

    def __call__(self, features: Float[Array, "*lead feature"]) -> Squashed:
        """The distribution in every state."""
        return self.distribution(self.layers(features.astype(self.layers.layers[0].weight.dtype)))

    def distribution(self, outputs: Float[Array, "*lead outputs"]) -> Squashed:
        """mean = 5 tanh(m / 5),  std = softplus(s + softplus⁻¹(initial_std)) + 10⁻⁴, from the layers' (m, s)."""
        mean, spread = jnp.split(outputs.astype(jnp.float32), 2, axis=-1)
        offset = self.initial_std + math.log(-math.expm1(-self.initial_std))
        return Squashed(MEAN_LIMIT * jnp.tanh(mean / MEAN_LIMIT), jax.nn.softplus(spread + offset) + MIN_STD)

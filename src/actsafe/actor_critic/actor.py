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
FAR = 3.0
"""Where a raw mean moves the action a hundredth of what it does near 0. Farther out its effect vanishes."""


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
        return self.distribution(self.layers(features))

    @property
    def num_actions(self) -> int:
        return self.layers.layers[-1].bias.shape[-1] // 2

    def distribution(self, outputs: Float[Array, "*lead outputs"]) -> Squashed:
        """mean = 5 tanh(m / 5),  std = softplus(s + softplus⁻¹(initial_std)) + 10⁻⁴, from the layers' (m, s)."""
        mean, spread = jnp.split(outputs.astype(jnp.float32), 2, axis=-1)
        offset = self.initial_std + math.log(-math.expm1(-self.initial_std))
        return Squashed(MEAN_LIMIT * jnp.tanh(mean / MEAN_LIMIT), jax.nn.softplus(spread + offset) + MIN_STD)

    def saturation(self, outputs: Float[Array, "*lead outputs"]) -> Float[Array, ""]:
        """½ Σ e² over actions, its mean over decisions: e is how far the layers' m lies beyond ±`FAR`, else 0.

        As an integrator winds up behind a valve that is open already, means grow where squashing hides it: a policy
        that switches between -1 and 1 gains from every larger weight. In the end no gradient comes back through it.
        """
        mean, _ = jnp.split(outputs.astype(jnp.float32), 2, axis=-1)
        return jnp.mean(jnp.sum(0.5 * (mean - jnp.clip(mean, -FAR, FAR)) ** 2, axis=-1))

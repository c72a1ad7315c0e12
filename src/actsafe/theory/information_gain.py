"""How much n noisy observations can tell about an unknown function, in nats: gamma_n."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

GREEDY_SHARE = 1.0 - math.exp(-1.0)
"""A greedy choice of observations gains at least this share of the best choice: the gain is submodular."""


class GainBounds(NamedTuple):
    """What the largest gain lies between, after 1, 2, ... observations."""

    lower: Float[Array, " count"]
    """Gained by a greedy choice of inputs."""
    upper: Float[Array, " count"]
    """What no choice of inputs exceeds."""


def information_gain(covariance: Float[Array, "n n"], noise_std: Float[Array, ""] | float) -> Float[Array, ""]:
    """gamma = 1/2 log det(I + K / sigma^2), in nats: what n noisy observations told about the function.

    `covariance` is K without noise. Paper, Theorem 4.1; Srinivas et al. (2012).
    """
    count = covariance.shape[-1]
    factor = jnp.linalg.cholesky(jnp.eye(count) + covariance / noise_std**2)
    return jnp.sum(jnp.log(jnp.diagonal(factor)))


def greedy_information_gain(covariance: Float[Array, "n n"], noise_std: float, num_observations: int) -> GainBounds:
    """Bounds on gamma_n = max over n of the inputs of 1/2 log det(I + K / sigma^2), for n = 1 to `num_observations`.

        greedy_n ≤ gamma_n ≤ greedy_n / (1 - 1/e),   greedy_n = greedy_(n-1) + 1/2 log(1 + max_x var_(n-1)(x) / sigma^2)

    `covariance` is K of all inputs that can be asked about, a finite set; each may be chosen more than once. Holds
    because the gain is monotone and submodular in the set of observations (Nemhauser et al., 1978; Srinivas et al.).
    """

    def observe(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        covariance, gain = carry
        chosen = jnp.argmax(jnp.diagonal(covariance))
        row = covariance[chosen]
        gain = gain + 0.5 * jnp.log1p(row[chosen] / noise_std**2)
        covariance = covariance - jnp.outer(row, row) / (row[chosen] + noise_std**2)
        return (covariance, gain), gain

    _, gains = jax.lax.scan(observe, (covariance, jnp.zeros(())), length=num_observations)
    return GainBounds(gains, gains / GREEDY_SHARE)


def worst_case_information_gain(
    num_observations: Float[Array, "*many"] | float, *, kernel_bound: float, noise_std: float, rank: int | None = None
) -> Float[Array, "*many"]:
    """An upper bound on gamma_n from k(x, x) ≤ `kernel_bound` alone, or from the kernel's finite rank m as well.

        gamma_n ≤ n/2 log(1 + k_max / sigma^2)           every observation as good as the first
        gamma_n ≤ m/2 log(1 + n k_max / (m sigma^2))     m eigenvalues of K of sum at most n k_max, equal at worst

    The least of what applies. In nats; k and sigma^2 in the same units.
    """
    ratio = kernel_bound / noise_std**2
    count = jnp.asarray(num_observations, float)
    gain = 0.5 * count * jnp.log1p(ratio)
    return gain if rank is None else jnp.minimum(gain, 0.5 * rank * jnp.log1p(count * ratio / rank))

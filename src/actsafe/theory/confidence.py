"""How far the truth can lie from a Gaussian process's mean, in its standard deviations: beta_n(delta)."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def confidence_multiplier(
    gain: Float[Array, "*outputs"] | float, *, delta: float, norm_bound: float, num_outputs: int = 1
) -> Float[Array, "*outputs"]:
    """beta_n(delta) = B + sqrt(2 (gamma_n + log(d_s / delta))).

    Holds for all n and all inputs at once, with probability 1 - delta, if every output has RKHS norm at most B, the
    observation noise is sigma-sub-Gaussian, and the posterior is regularised by lambda = sigma^2 with that same sigma.
    K, sigma and B are in the same (standardised) units. With another regulariser the square root carries a factor
    sigma / sqrt(lambda); with lambda = sigma^2 that factor is one. Lemma 4.1 of the paper; Abbasi-Yadkori (2013).
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")
    if not norm_bound >= 0.0:
        raise ValueError(f"norm_bound must be at least 0, got {norm_bound}")
    return norm_bound + jnp.sqrt(2.0 * (gain + jnp.log(num_outputs / delta)))

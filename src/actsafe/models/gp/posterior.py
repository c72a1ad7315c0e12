"""Exact Gaussian-process regression on padded data, and a cheaper posterior that never claims to know more.

Rows beyond the data carry `is_data` False. They enter the kernel matrix as rows of the identity and the targets as
zeros, so that every quantity equals, to rounding, the one computed without them: shapes stay fixed while data grows.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from actsafe.models.gp.kernels import Kernel

VARIANCE_FLOOR = 1e-12


class Moments(NamedTuple):
    """Mean and standard deviation of the latent function, without noise."""

    mean: Float[Array, ""]
    std: Float[Array, ""]


class Posterior(eqx.Module):
    """A conditioned Gaussian process, ready to be asked.

        mean(x) = k(x, X) (K + s^2 I)^-1 y
        var(x)  = k(x, x) - |L^-1 k(X_S, x)|^2,  L L^T = K_SS + s^2 I

    The mean uses all data. The variance conditions on the rows S alone: on all of them (exact), or on a chosen subset.
    Conditioning on less never lowers a Gaussian's variance, so the interval around the exact mean only grows.
    """

    kernel: Kernel
    scaled_inputs: Float[Array, "data input"]
    """Inputs over lengthscales; the rows of S first."""
    weights: Float[Array, " data"]
    """(K + s^2 I)^-1 y; zero in the padding."""
    is_data: Bool[Array, " data"]
    whitening: Float[Array, "subset subset"]
    """L^-1 of the rows of S."""

    def __call__(self, x: Float[Array, " input"]) -> Moments:
        """The latent function's mean and std at `x`."""
        row = self.kernel.of_scaled(self.kernel.scale(x)[None], self.scaled_inputs)
        row = jnp.where(self.is_data, row, 0.0)
        subset = self.whitening.shape[0]
        explained = self.whitening @ row[:subset]
        variance = self.kernel.variance - explained @ explained
        return Moments(row @ self.weights, jnp.sqrt(jnp.maximum(variance, VARIANCE_FLOOR)))


def condition(
    kernel: Kernel,
    inputs: Float[Array, "data input"],
    targets: Float[Array, " data"],
    is_data: Bool[Array, " data"],
    *,
    noise_std: Float[Array, ""],
    subset_size: int | None = None,
    is_mean_exact: bool = True,
) -> Posterior:
    """The posterior given the data; its variance conditions on `subset_size` of the rows, or on all for None.

    With `is_mean_exact` False the mean conditions on those rows alone too: the posterior of less data, at less cost.
    """
    if subset_size is not None and subset_size < inputs.shape[0]:
        order = spread_order(kernel, inputs, is_data, noise_std=noise_std, size=subset_size)
        order = order if is_mean_exact else order[:subset_size]
        inputs, targets, is_data = inputs[order], targets[order], is_data[order]
    covariance = noisy_covariance(kernel, inputs, is_data, noise_std=noise_std)
    factor = jnp.linalg.cholesky(covariance)
    weights = jax.scipy.linalg.cho_solve((factor, True), jnp.where(is_data, targets, 0.0))
    # The leading block of a Cholesky factor is the factor of the leading block.
    size = inputs.shape[0] if subset_size is None else min(subset_size, inputs.shape[0])
    # One solve after the other, by a dependency that a compiler keeps: two at a time, each for many processes, can wait
    # for each other without end in the threads of jaxlib 0.10 on a machine with two cores.
    one = jnp.where(jnp.isnan(weights[0]), jnp.nan, 1.0)
    whitening = jax.scipy.linalg.solve_triangular(factor[:size, :size], one * jnp.eye(size), lower=True)
    return Posterior(kernel, jax.vmap(kernel.scale)(inputs), weights, is_data, whitening)


def noisy_covariance(
    kernel: Kernel, inputs: Float[Array, "data input"], is_data: Bool[Array, " data"], *, noise_std: Float[Array, ""]
) -> Float[Array, "data data"]:
    """K + s^2 I on the data, the identity on the padding."""
    both = is_data[:, None] & is_data[None]
    gram = jnp.where(both, kernel.matrix(inputs, inputs), 0.0)
    return gram + jnp.diag(jnp.where(is_data, noise_std**2, 1.0))


def log_marginal_likelihood(
    kernel: Kernel,
    inputs: Float[Array, "data input"],
    targets: Float[Array, " data"],
    is_data: Bool[Array, " data"],
    *,
    noise_std: Float[Array, ""],
) -> Float[Array, ""]:
    """log N(y; 0, K + s^2 I) over the rows that are data."""
    factor = jnp.linalg.cholesky(noisy_covariance(kernel, inputs, is_data, noise_std=noise_std))
    targets = jnp.where(is_data, targets, 0.0)
    white = jax.scipy.linalg.solve_triangular(factor, targets, lower=True)
    log_determinant = 2.0 * jnp.sum(jnp.log(jnp.diagonal(factor)))
    return -0.5 * (white @ white + log_determinant + jnp.sum(is_data) * jnp.log(2.0 * jnp.pi))


def spread_order(
    kernel: Kernel,
    inputs: Float[Array, "data input"],
    is_data: Bool[Array, " data"],
    *,
    noise_std: Float[Array, ""],
    size: int,
) -> Int[Array, " data"]:
    """An order of the rows whose first `size` are, one after the other, the least known from the ones before.

    Greedy choice by the remaining variance, that is a pivoted Cholesky factorisation stopped after `size` columns. Rows
    of data come before padding.
    """
    count = inputs.shape[0]
    scaled = jax.vmap(kernel.scale)(inputs)

    def choose(i: Int[Array, ""], carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        remaining, columns, rank = carry
        pivot = jnp.argmax(remaining)
        column = jnp.where(is_data & is_data[pivot], kernel.of_scaled(scaled, scaled[pivot][None]), 0.0)
        column = column - columns @ columns[pivot]
        column = column / jnp.sqrt(jnp.maximum(remaining[pivot], VARIANCE_FLOOR) + noise_std**2)
        remaining = (remaining - column**2).at[pivot].set(-jnp.inf)
        return remaining, columns.at[:, i].set(column), rank.at[pivot].set(i)

    # Padding ranks below every row of data (-1 against variances of at least about 0) but above chosen ones (-inf).
    remaining = jnp.where(is_data, kernel.variance, -1.0)
    start = (remaining, jnp.zeros((count, size)), jnp.arange(count) + size + jnp.where(is_data, 0, count))
    _, _, rank = jax.lax.fori_loop(0, size, choose, start)
    return jnp.argsort(rank)

"""The set of models that the data has not ruled out, M_n, as a band around the unknown function."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Band(NamedTuple):
    """All functions f with lower ≤ f ≤ upper at every input of a finite set."""

    lower: Float[Array, " input"]
    upper: Float[Array, " input"]


def prior_models(kernel_diagonal: Float[Array, " input"], norm_bound: float) -> Band:
    """M_0: all functions with |f(x)| ≤ B sqrt(k(x, x)), which is what an RKHS norm of at most B says of their values.

    The paper defines M_n from M_(n-1) on and leaves M_0 open; this one needs no data and holds with certainty.
    """
    reach = norm_bound * jnp.sqrt(kernel_diagonal)
    return Band(-reach, reach)


def calibrated_models(
    mean: Float[Array, " input"], std: Float[Array, " input"], multiplier: Float[Array, ""] | float
) -> Band:
    """Q_n(delta) = {f: |mu_n(x) - f(x)| ≤ beta_n(delta) sigma_n(x) for all x}. Definition 4.1 of the paper."""
    return Band(mean - multiplier * std, mean + multiplier * std)


def intersect(models: Band, more: Band) -> Band:
    """M_n = M_(n-1) ∩ Q_n: what was ruled out once stays so. Definition 4.2 of the paper."""
    return Band(jnp.maximum(models.lower, more.lower), jnp.minimum(models.upper, more.upper))


def contains(models: Band, function: Float[Array, " input"]) -> Bool[Array, ""]:
    """Whether `function`, given by its values at the inputs, is one of the models."""
    return jnp.all((models.lower <= function) & (function <= models.upper))


def is_empty(models: Band) -> Bool[Array, ""]:
    """Whether no function is left, or some bound is not a number: the multiplier was too small, or the data is bad."""
    return ~jnp.all(models.lower <= models.upper)

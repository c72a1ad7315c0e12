"""How large the model's errors are, in its own standard deviations, and the multiplier that covers them.

Every episode is held-out data for the model that planned it: it is predicted before it is learned from. Its scores
|error| / std say how far the model's intervals would have had to be widened to hold what they claim to hold.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from actsafe.models.base import Model


def standard_scores(
    model: Model,
    states: Float[Array, "n state"],
    actions: Float[Array, "n action"],
    next_states: Float[Array, "n state"],
) -> tuple[Float[Array, "n state"], Bool[Array, "n state"]]:
    """|error| / sqrt(epistemic^2 + aleatoric^2) of every prediction, and whether it is evidence about uncertainty.

    A prediction speaks of the epistemic std only where that std is at least the noise. A score that is not finite is
    evidence of the worst kind and counts as infinite.
    """
    prediction = jax.vmap(model.predict)(states, actions)
    std = jnp.hypot(prediction.epistemic_std, prediction.aleatoric_std)
    scores = jnp.abs(next_states - prediction.mean) / std
    is_known = jnp.isfinite(scores)
    return jnp.where(is_known, scores, jnp.inf), (prediction.epistemic_std >= prediction.aleatoric_std) | ~is_known


def conformal_quantile(scores: Float[Array, " n"], is_evidence: Bool[Array, " n"], coverage: float) -> Float[Array, ""]:
    """The ceil((n+1) coverage)-th smallest score: at least `coverage` of further scores stay below it, on average.

    This holds for exchangeable scores (split conformal), not for those of a model that learns while it collects them:
    `Calibrated` takes it for an empirical quantile, without the guarantee. Where n is too small for that rank the
    largest score stands in; -inf without evidence.
    """
    count = jnp.sum(is_evidence)
    rank = jnp.clip(jnp.ceil((count + 1) * coverage).astype(int), 1, jnp.maximum(count, 1))
    ordered = jnp.sort(jnp.where(is_evidence, scores, jnp.inf))
    return jnp.where(count > 0, ordered[rank - 1], -jnp.inf)


def coverage(
    scores: Float[Array, " n"], is_evidence: Bool[Array, " n"], multiplier: Float[Array, ""]
) -> Float[Array, ""]:
    """The share of the evidence that lies within `multiplier` standard deviations; not a number without evidence."""
    inside = jnp.sum(is_evidence & (scores <= multiplier))
    return inside / jnp.sum(is_evidence)


def normal_coverage(multiplier: float) -> float:
    """The share of a standard normal within `multiplier` standard deviations."""
    return math.erf(multiplier / math.sqrt(2.0))

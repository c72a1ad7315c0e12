"""The screen: whole-episode dreams of a frozen candidate, before it acts.

    score = max_i E[Σ_t c_t | f^i, π],    t over all decisions of an episode, undiscounted

Dreams begin where recorded episodes began, and each follows one member f^i of the ensemble from its beginning to its
end: the paper's max over f in Q_n of J_c(π, f). A candidate passes where score plus margin, and an upper quantile of
the worst member's dreams, lie within every budget. From the first decision on whose uncertainty is larger than any on
recorded data, a dream may be charged for every decision.

A screen refuses and ranks; it certifies nothing. The margin follows what came of the deployments before,

    margin ← margin + rate · d · (1[over] − target),

which holds the share of deployments over budget near `target` in the long run (adaptive conformal inference), and
promises nothing of the next one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.actor_critic.actor import Actor
from actsafe.agents.safe_set.settings import ScreenSettings
from actsafe.models.base import Latent, LatentModel
from actsafe.objectives.uncertainty import Uncertainty


class Forecast(NamedTuple):
    """What dreams say of a policy, by constraint; not a number where nothing was dreamt."""

    score: Float[Array, "*lead constraint"]
    upper: Float[Array, "*lead constraint"]
    """The upper quantile of the worst member's dreams."""
    share_unknown: Float[Array, "*lead"]
    """Of dreams, that came to where uncertainty is larger than on recorded data."""

    @classmethod
    def none(cls, num_constraints: int) -> "Forecast":
        unknown = jnp.full((num_constraints,), jnp.nan, jnp.float32)
        return cls(unknown, unknown, jnp.full((), jnp.nan, jnp.float32))


class Dreamt(NamedTuple):
    """Costs of dreamt episodes."""

    costs: Float[Array, "member particle constraint"]
    is_unknown: Bool[Array, "member particle"]
    """Whether uncertainty was ever larger than the limit."""


def dream_episodes(
    model: LatentModel,
    actor: Actor,
    observations: Array,
    *,
    uncertainty: Uncertainty,
    limit: Float[Array, ""],
    unknown_cost: float,
    num_decisions: int,
    num_particles: int,
    key: PRNGKeyArray,
) -> Dreamt:
    """Episodes of `num_decisions` decisions, `num_particles` by every member, from these first observations in turn."""
    num_members = model.num_members
    start_key, dream_key = jax.random.split(key)
    start = _begin(model, observations, actor.num_actions, num_particles, start_key)
    latent = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (num_members, *leaf.shape)), start)
    shape = (num_members, num_particles)
    num_costs = jax.eval_shape(lambda: model.outcome(model.features(latent))).costs.shape[-1]

    def advance(carried: tuple[Latent, Array, Array], key: PRNGKeyArray) -> tuple[tuple[Latent, Array, Array], None]:
        latent, paid, is_unknown = carried
        action_key, model_key = jax.random.split(key)
        distribution = actor(model.features(latent))
        action = distribution.sample(jax.random.normal(action_key, distribution.mean.shape, jnp.float32))
        if unknown_cost:
            rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (latent, action))
            is_unknown = is_unknown | ~(uncertainty(model.disagreement(*rows)).reshape(shape) <= limit)
        latent = model.follow(latent, action, model_key)
        costs = model.outcome(model.features(latent)).costs.astype(jnp.float32)
        costs = costs + unknown_cost * is_unknown[..., None]
        latent = jax.tree.map(lambda new, old: new.astype(old.dtype), latent, carried[0])
        return (latent, paid + costs, is_unknown), None

    nothing = jnp.zeros((*shape, num_costs), jnp.float32), jnp.zeros(shape, bool)
    (_, costs, is_unknown), _ = jax.lax.scan(advance, (latent, *nothing), jax.random.split(dream_key, num_decisions))
    return Dreamt(costs, is_unknown)


def _begin(model: LatentModel, observations: Array, num_actions: int, num_rows: int, key: PRNGKeyArray) -> Latent:
    """States after the first observations of episodes, which the rows take in turn."""
    embeddings = model.encode(observations)
    embeddings = embeddings[jnp.arange(num_rows) % len(embeddings)]
    no_action, is_first = jnp.zeros((num_rows, num_actions), jnp.float32), jnp.ones((num_rows,), bool)
    return model.step(model.begin(num_rows), no_action, embeddings, is_first, key)


def forecast_of(dreamt: Dreamt, settings: ScreenSettings) -> Forecast:
    """The worst member's mean, and the worst upper quantile."""
    means = jnp.mean(dreamt.costs, axis=1)
    upper = jnp.quantile(dreamt.costs, settings.quantile, axis=1)
    unknown = jnp.mean(dreamt.is_unknown.astype(jnp.float32))
    return Forecast(_largest(means), _largest(upper), unknown)


def _largest(values: Float[Array, "member constraint"]) -> Float[Array, " constraint"]:
    """Over members; infinite where one is not a number."""
    return jnp.max(jnp.where(jnp.isnan(values), jnp.inf, values), axis=0)


def passes(forecast: Forecast, margin: Float[Array, " constraint"], budgets: Sequence[float]) -> Bool[Array, ""]:
    """Whether a candidate may act; what is not known, or not finite, does not pass."""
    bounds = jnp.asarray(budgets, jnp.float32)
    return jnp.all(forecast.score + margin <= bounds) & jnp.all(forecast.upper + margin <= bounds)


def moved_margin(
    margin: Float[Array, " constraint"],
    is_over: Bool[Array, " constraint"],
    settings: ScreenSettings,
    budgets: Sequence[float],
) -> Float[Array, " constraint"]:
    """The margin after a deployment; between 0 and the budget."""
    bounds = jnp.asarray(budgets, jnp.float32)
    moved = margin + settings.margin_rate * bounds * (is_over.astype(jnp.float32) - settings.target)
    return jnp.clip(moved, 0.0, bounds)

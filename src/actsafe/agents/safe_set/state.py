"""The safe set of one seed as it changes: a candidate, the archive, and what is known of both."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from actsafe.agents.algorithms import Role
from actsafe.agents.safe_set import screen
from actsafe.agents.safe_set.archive import Archive, Counts
from actsafe.agents.safe_set.canary import CANDIDATE, NONE, Verdict, judged
from actsafe.agents.safe_set.governor import Aftermath
from actsafe.agents.safe_set.screen import Forecast
from actsafe.agents.safe_set.settings import SafeSetSettings

ROLES = tuple(Role)
"""A policy's role is kept as its place here."""


class Taken(NamedTuple):
    """Episodes that were taken over, in a deployment."""

    level: Int[Array | np.ndarray, "*seed entry"]
    """Of the fallback."""
    cost: Float[Array | np.ndarray, "*seed entry constraint"]
    """From then on."""
    is_real: Bool[Array | np.ndarray, "*seed entry"]


class Outcomes(NamedTuple):
    """What the episodes of a deployment came to."""

    candidate: Counts
    certified: Counts
    taken: Taken


class SafeSet(eqx.Module):
    """All that changes."""

    candidate: Any
    """The weights of the policy that is under way to be certified."""
    role: Int[Array, ""]
    stage: Int[Array, ""]
    """That it is at, from 0; `canary.NONE` where none is under way."""
    counts: Counts
    """Of the candidate's episodes."""
    forecast: Forecast
    archive: Archive
    first: Shaped[Array, "place *observation"]
    """First observations of recorded episodes."""
    has_first: Bool[Array, ""]
    margin: Float[Array, " constraint"]
    """Of the screen."""
    aftermath: Aftermath

    @classmethod
    def empty(cls, weights: Any, settings: SafeSetSettings, first: Array, num_constraints: int) -> "SafeSet":
        """Nothing but S_0; `weights` and `first` are such as will come."""
        return cls(
            jax.tree.map(jnp.copy, weights),
            jnp.zeros((), jnp.int32),
            jnp.full((), NONE, jnp.int32),
            Counts.none(num_constraints),
            Forecast.none(num_constraints),
            Archive.empty(weights, settings.archive_size, num_constraints),
            first,
            jnp.zeros((), bool),
            jnp.zeros((num_constraints,), jnp.float32),
            Aftermath.empty(CANDIDATE, settings.governor.num_kept, num_constraints),
        )

    def is_free(self, role: int) -> Bool[Array, ""]:
        """Whether a new candidate of this role may be put forward."""
        return (self.stage == NONE) | (self.role != role)


def put_forward(
    before: SafeSet,
    weights: Any,
    role: int,
    forecast: Forecast,
    settings: SafeSetSettings,
    budgets: Sequence[float],
) -> SafeSet:
    """The safe set with a new candidate, if none of its role is under way; it is, where it passes the screen."""
    is_new = before.is_free(role)
    is_fit = screen.passes(forecast, before.margin, budgets) if settings.screen.is_on else jnp.ones((), bool)
    is_fit = is_fit | settings.screen.is_advisory
    stage = jnp.where(is_fit, 0, NONE)
    none = Counts.none(len(budgets))
    new = (weights, jnp.asarray(role, jnp.int32), stage.astype(jnp.int32), none, forecast)
    old = (before.candidate, before.role, before.stage, before.counts, before.forecast)
    candidate, role_now, stage, counts, forecast = jax.tree.map(lambda a, b: jnp.where(is_new, a, b), new, old)
    fields = (before.archive, before.first, before.has_first, before.margin, before.aftermath)
    return SafeSet(candidate, role_now, stage, counts, forecast, *fields)


def settled(
    before: SafeSet, outcomes: Outcomes, settings: SafeSetSettings, budgets: Sequence[float]
) -> tuple[SafeSet, Verdict]:
    """The safe set after a deployment: candidates go on, are certified or recalled; what is certified may lose that."""
    verdict = judged(settings.canary, before.stage, outcomes.candidate)
    counts = before.counts + outcomes.candidate
    place, is_any = before.archive.newest()
    told = before.archive.counted(place, outcomes.certified, settings.tolerance)
    archive = jax.tree.map(lambda new, old: jnp.where(is_any, new, old), told, before.archive)
    if settings.archive_size:
        added = archive.add(before.candidate, before.role, counts)
        archive = jax.tree.map(lambda new, old: jnp.where(verdict.is_certified, new, old), added, archive)
    has_acted = outcomes.candidate.episodes > 0
    is_over = outcomes.candidate.over + outcomes.candidate.taken_over > 0
    moved = screen.moved_margin(before.margin, jnp.broadcast_to(is_over, before.margin.shape), settings.screen, budgets)
    margin = jnp.where(has_acted & settings.screen.is_on, moved, before.margin)
    aftermath, _ = jax.lax.scan(
        lambda known, taken: (known.record(taken.level, taken.cost, taken.is_real), None),
        before.aftermath,
        outcomes.taken,
    )
    fields = (before.candidate, before.role, verdict.stage.astype(jnp.int32), counts, before.forecast)
    return SafeSet(*fields, archive, before.first, before.has_first, margin, aftermath), verdict


class GuardedState(eqx.Module):
    """All that changes of a guarded agent: the agent's own state, and the safe set."""

    inner: Any
    safe_set: SafeSet

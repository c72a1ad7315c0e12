"""How far a world model's forecasts of rewards and costs are off, on episodes that it has not learned from."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.agents.base import Forecasts
from actsafe.data.rows import Rows
from actsafe.models.networks import cast
from actsafe.models.rssm.world_model import WorldModel
from actsafe.objectives.outcome_forecasts import LIKELIHOOD_STD, outcome_scores

NUM_SEEN, NUM_PARTICLES, NUM_AT_ONCE = 5, 32, 32
"""Rows that the model sees before it forecasts, particles of a forecast, and forecasts in one compiled call."""
CLAIMS = {
    "model": (LIKELIHOOD_STD, "spread of the ensemble's dreams, and the unit variance of its likelihood"),
    "dreams": (0.0, "spread of the ensemble's dreams alone: uncertainty about what is expected, not about what comes"),
}


def outcome_forecasts(
    agent: Any, state: Any, episodes: Sequence[Rows], *, horizon: int, key: PRNGKeyArray
) -> Forecasts:
    """Scores of reward and costs in episodes (seed, environment, time), of every seed's world model.

    The claim *model* decides: it is the predictive distribution that the model was trained with. That of *dreams* is
    how far the ensemble disagrees about expectations; truths that vary about their expectation do not lie within it.
    The constraint relies on costs alone.
    """
    names = ("reward", *agent.spec.cost_names)
    scores = {name: [np.zeros((0, horizon, len(names)))] for name in CLAIMS}
    for rows in episodes:
        rows = rows._replace(reward=agent.settings.reward_scale * np.asarray(rows.reward))
        for seed in range(len(rows.reward)):
            own = jax.tree.map(lambda leaf, seed=seed: leaf[seed], state.model)
            model = cast(own.tree, agent.dtype)
            of_seed = Rows(*(field[seed] for field in rows))
            for number, windows in enumerate(_batches(of_seed, NUM_SEEN + horizon)):
                for name, (noise_std, _) in CLAIMS.items():
                    own_key = jax.random.fold_in(jax.random.fold_in(key, seed), number)
                    scores[name].append(np.asarray(_forecast(model, windows, noise_std, own_key), float))
    pooled = {name: np.concatenate(parts) for name, parts in scores.items()}
    meanings = {name: meaning for name, (_, meaning) in CLAIMS.items()}
    return Forecasts(pooled, meanings, names, "model", (False, *(True for _ in agent.spec.cost_names)))


@eqx.filter_jit
def _forecast(model: WorldModel, rows: Rows, noise_std: float, key: PRNGKeyArray) -> Float[Array, "batch time outcome"]:
    return outcome_scores(model, rows, num_seen=NUM_SEEN, num_particles=NUM_PARTICLES, noise_std=noise_std, key=key)


def _batches(rows: Rows, length: int) -> Iterator[Rows]:
    """Windows (batch, time), some at a time."""
    windows = list(windows_of(np.asarray(rows.is_first), length))
    for start in range(0, len(windows), NUM_AT_ONCE):
        chosen = windows[start : start + NUM_AT_ONCE]
        parts = [Rows(*(field[env, first : first + length] for field in rows)) for env, first in chosen]
        yield jax.tree.map(lambda *fields: jnp.stack(fields), *parts)


def windows_of(is_first: Bool[np.ndarray, "environment time"], length: int) -> Iterator[tuple[int, int]]:
    """Environment and first tick of windows of `length` rows that neither overlap nor cross from episode to episode."""
    for env, begins in enumerate(is_first):
        edges = [*map(int, np.flatnonzero(begins)), len(begins)]
        for start, end in itertools.pairwise(edges):
            yield from ((env, first) for first in range(start, end - length + 1, length))

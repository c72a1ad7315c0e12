"""What a world model forecasts: rewards and costs of episodes that it has not learned from, and of its policies."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from actsafe.agents.algorithms import Role
from actsafe.agents.base import Estimate, Forecasts, Newest, Promise
from actsafe.data.rows import Rows
from actsafe.models.networks import cast
from actsafe.models.rssm.world_model import WorldModel
from actsafe.objectives.forecasts import windows_of
from actsafe.objectives.outcome_forecasts import LIKELIHOOD_STD, outcome_errors

NUM_SEEN, NUM_PARTICLES, NUM_AT_ONCE = 5, 32, 32
"""Rows that the model sees before it forecasts, particles of a forecast, and forecasts in one compiled call."""
CLAIMS = {
    "model": (LIKELIHOOD_STD, "spread of the ensemble's dreams, and the unit variance of its likelihood"),
    "dreams": (0.0, "spread of the ensemble's dreams alone: uncertainty about what is expected, not about what comes"),
}
HELD_AGAINST = (
    ("discounted cost return, against the planner's budget", "predicted_return", "planner_budget"),
    ("cost of an episode, against its budget", "predicted_pessimistic_cost", "budget"),
)
"""Columns of the ledger with the two costs of a policy, and their bounds."""
DOES_NOT_PROMISE = (
    "That any action is checked before it is taken: the policy acts, and nothing holds it back.",
    "A worst case: a pessimistic cost is a mean over imagined decisions, with a charge for uncertainty.",
    "Costs of the policy from where its episodes begin: imagination starts from states in the recorded data, which "
    "earlier policies reached.",
)


def outcome_forecasts(
    agent: Any, state: Any, episodes: Sequence[Rows], *, horizon: int, key: PRNGKeyArray
) -> Forecasts:
    """Scores of reward and costs in episodes (seed, environment, time), of every seed's world model.

    The claim *model* decides: it is the predictive distribution that the model was trained with. The constraint relies
    on costs alone. A std of at least 1 for costs of a few units covers nearly every error: to fail is evidence, to pass
    is none, and the claim is said to have no power. That of *dreams* is how far the ensemble disagrees about
    expectations; truths that vary about their expectation do not lie within it, so that it cannot decide either.
    """
    names = ("reward", *agent.spec.cost_names)
    length, errors, stds = NUM_SEEN + horizon, [], []
    for seed in range(state.num_updates.shape[0]):
        own = jax.tree.map(lambda leaf, seed=seed: leaf[seed], state.model)
        model = cast(own.tree, agent.dtype)
        of_seed = [Rows(*(np.asarray(field)[seed] for field in rows)) for rows in episodes]
        windows = [(rows, *window) for rows in of_seed for window in windows_of(np.asarray(rows.is_first), length)]
        for number, start in enumerate(range(0, len(windows), NUM_AT_ONCE)):
            chosen = windows[start : start + NUM_AT_ONCE]
            # The last window fills the last call up: one program for all.
            filled = chosen + chosen[-1:] * (NUM_AT_ONCE - len(chosen))
            parts = [Rows(*(field[env, first : first + length] for field in rows)) for rows, env, first in filled]
            rows = jax.tree.map(lambda *fields: jnp.asarray(np.stack(fields)), *parts)
            found = _forecast(
                model, agent.settings.learned(rows), jax.random.fold_in(jax.random.fold_in(key, seed), number)
            )
            error, std = (np.asarray(each, float)[: len(chosen)] for each in found)
            errors.append(error)
            stds.append(std)
    shape = (0, horizon, len(names))
    error, std = (np.concatenate([np.zeros(shape), *parts]) for parts in (errors, stds))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores = {name: error / np.hypot(std, noise_std) for name, (noise_std, _) in CLAIMS.items()}
    return Forecasts(
        scores,
        {name: meaning for name, (_, meaning) in CLAIMS.items()},
        names,
        deciding="model",
        is_safety=(False, *(True for _ in agent.spec.cost_names)),
        has_power=False,
        details={"seen": NUM_SEEN, "particles": NUM_PARTICLES},
    )


@eqx.filter_jit
def _forecast(model: WorldModel, rows: Rows, key: PRNGKeyArray) -> tuple[Array, Array]:
    return outcome_errors(model, rows, num_seen=NUM_SEEN, num_particles=NUM_PARTICLES, key=key)


def imagined_promise(agent: Any, newest: Newest) -> Promise:
    """Both costs that a policy was imagined to have while the newest epoch learned, of every seed and constraint.

    The discounted cost return is held against the planner's budget, which is what updates keep to; the cost of an
    episode, which is the mean over imagined decisions times the decisions of an episode, against the budget itself.
    They are of the task's policy, and of the exploration's where that acted.
    """
    imagined = [Role.TASK, Role.EXPLORATION] if newest.role is Role.EXPLORATION else [Role.TASK]
    estimates = tuple(
        tuple(
            Estimate(what, {"role": each.value, "constraint": row["constraint"]}, row[cost], row[bound])
            for each in imagined
            for row in agent.predicted(each, own, None)
            for what, cost, bound in HELD_AGAINST
        )
        for own in newest.learned
    )
    settings, length = agent.settings, agent.spec.num_decisions
    horizon = settings.actor_critic.horizon
    return Promise(
        "imagined from recorded states, mean over the updates of the newest epoch",
        horizon,
        f"Dreams end after {horizon} decisions. The return goes on with what critics expect; the cost of an episode "
        f"takes all of its {length} decisions to cost what an imagined one does.",
        estimates,
        {"members": settings.model.num_members, "is_pessimistic": agent.algorithm.objective.is_pessimistic},
    )

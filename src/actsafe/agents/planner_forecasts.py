"""What a planner with a Gaussian process forecasts: states of held-out episodes, and the costs of its plans."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray

from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode, Estimate, Forecasts, Newest, Percept, Promise
from actsafe.agents.seeds import over_seeds
from actsafe.data.rows import Rows
from actsafe.data.transitions import states_of
from actsafe.models.base import Model
from actsafe.objectives.forecasts import forecast_scores, windows_of

NUM_PARTICLES = 128
CLAIMS = {
    "model": "epistemic std and noise of the process",
    "plans": "epistemic std times the confidence multiplier, and noise: what plans are judged by",
}
DOES_NOT_PROMISE = (
    "Other plans than those listed: the policy plans anew at every decision, and checks each plan when it is made.",
    "That every decision passes that check: where no plan does, the one that costs least is executed.",
    "A worst case: a pessimistic cost is the largest of finitely many particles.",
)


def state_forecasts(
    agent: Any, learner: Any, state: Any, episodes: Sequence[Rows], *, horizon: int, key: PRNGKeyArray
) -> Forecasts:
    """Scores of every state coordinate in episodes (seed, environment, time), of all seeds in one compiled call.

    Two claims: *model* is the process as it is; *plans* has its epistemic std times the confidence multiplier. This one
    decides: it is the set of models that plans are judged by and that the theory assumes to hold the truth. The cost is
    a function of the state. Where it is observed instead, so is the reward, which no budget relies on.
    """
    is_observed = agent.spec.problem is None
    states, actions, is_real = _windows(episodes, horizon, with_outcomes=is_observed)
    multipliers = jnp.stack([jnp.ones_like(state.multiplier), state.multiplier], axis=1)
    keys = jax.random.split(key, len(states))
    scores = np.asarray(_scores(agent, learner.believe(state), states, actions, multipliers, keys))
    names = tuple(agent.problem.state_names)
    return Forecasts(
        {name: scores[:, place][is_real] for place, name in enumerate(CLAIMS)},
        CLAIMS,
        names,
        deciding="plans",
        is_safety=tuple(not (is_observed and name == "reward") for name in names),
        has_power=True,
        details={
            "confidence_multiplier": np.asarray(state.multiplier),
            "noise_std": agent.settings.gp.noise_std,
            "particles": NUM_PARTICLES,
        },
    )


@eqx.filter_jit
def _scores(
    agent: Any, models: Model, states: Array, actions: Array, multipliers: Array, keys: Key[Array, " seed"]
) -> Float[Array, "seed claim window time state"]:
    def one(model: Model, states: Array, actions: Array, multipliers: Array, key: PRNGKeyArray) -> Array:
        def of_claim(multiplier: Array) -> Array:
            return forecast_scores(
                agent.problem, model, states, actions, num_particles=NUM_PARTICLES, multiplier=multiplier, key=key
            )

        return jax.vmap(of_claim)(multipliers)

    return over_seeds(one, len(keys))(models, states, actions, multipliers, keys)


def _windows(
    episodes: Sequence[Rows], horizon: int, *, with_outcomes: bool
) -> tuple[
    Float[Array, "seed window row state"], Float[Array, "seed window time action"], Bool[np.ndarray, "seed window"]
]:
    """States and actions of windows of `horizon` decisions, as many of every seed, and which of them are real."""
    states = [states_of(rows, with_outcomes=with_outcomes) for rows in episodes]
    actions = [np.asarray(rows.action, np.float64) for rows in episodes]
    places = [
        [
            (number, (seed, env, slice(first, first + horizon + 1)))
            for number, rows in enumerate(episodes)
            for env, first in windows_of(np.asarray(rows.is_first)[seed], horizon + 1, horizon)
        ]
        for seed in range(len(states[0]))
    ]
    most = max(1, *map(len, places))
    filler = (0, (0, 0, slice(0, horizon + 1)))
    filled = [own + [filler] * (most - len(own)) for own in places]
    by_seed = [
        jnp.asarray(np.array([[values[number][place] for number, place in own] for own in filled]))
        for values in (states, actions)
    ]
    is_real = np.array([[place < len(own) for place in range(most)] for own in places])
    return by_seed[0], by_seed[1][:, :, 1:], is_real


def planned_promise(agent: Any, learner: Any, state: Any, newest: Newest) -> Promise:
    """The pessimistic cost of the first plan of an episode, for every seed and task, checked as before acting.

    It is the largest cost of fresh particles of the model set, the limit tightened by the margin. One compiled call
    searches for the plans of all seeds and tasks.
    """
    first = jax.tree.map(lambda leaf: jnp.asarray(leaf)[:, :, 0], newest.first_rows())
    costs = np.asarray(_first_plans(agent, learner.believe(state), state.multiplier, first, newest.keys))
    settings, (budget,), num_decisions = agent.settings, agent.spec.budgets, agent.spec.num_decisions
    horizon, is_pessimistic = settings.planning.search.horizon, agent.algorithm.objective.is_pessimistic
    what = "first plan of an episode, against its budget"
    return Promise(
        "first plan of an episode, checked as before acting",
        horizon,
        f"A plan ends after {horizon} decisions, an episode has {num_decisions}. Every decision plans anew, and is "
        "checked for as many; where no plan passes, the one that costs least is executed all the same.",
        tuple(
            tuple(
                Estimate(what, {"task": task}, float(cost), budget) for task, cost in zip(agent.tasks, own, strict=True)
            )
            for own in costs
        ),
        {
            "particles": settings.planning.preflight_particles if is_pessimistic else 1,
            "is_pessimistic": is_pessimistic,
            "confidence_multiplier": np.asarray(state.multiplier),
            "margin": settings.objective.constraint.margin,
        },
    )


@eqx.filter_jit
def _first_plans(
    agent: Any, models: Model, multipliers: Float[Array, "seed state"], first: Rows, keys: Key[Array, " seed"]
) -> Float[Array, "seed task"]:
    """Pessimistic costs of plans from these rows (seed, environment).

    One plan after the other: on a CPU that takes less time than all side by side, whose arrays no cache holds.
    """
    weights = jnp.stack([agent.reward_weights(ActMode(Role.TASK, task)) for task in agent.tasks])
    arrays, static = eqx.partition(models, eqx.is_array)

    def one(inputs: tuple[Any, Array, Rows, PRNGKeyArray]) -> Array:
        own, multiplier, first, key = inputs

        def of_task(weights: Array) -> Array:
            planner = agent.planner(eqx.combine(own, static), multiplier, weights)
            percept = Percept(*map(jnp.asarray, (first.reward, first.costs, first.is_first)))
            decision, _ = planner.act(planner.begin(1, key), planner.encode(jnp.asarray(first.observation)), percept)
            return decision.predicted_cost[0]

        return jax.lax.map(of_task, weights)

    return jax.lax.map(one, (arrays, multipliers, first, keys))

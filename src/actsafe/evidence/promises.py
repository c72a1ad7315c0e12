"""What a run's policy is held to by its own reckoning, and what its episodes came to, by the run's kind."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from actsafe.agents.recipes import VISION_RECIPES
from actsafe.training.run import CHECKPOINT, RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.storage import StorageError

STREAM = 3000
"""The random stream of certified plans; nothing else uses it."""


class Promise(NamedTuple):
    """What a policy promises."""

    basis: str
    """Which plans or dreams were reckoned, and how."""
    estimates: list[dict[str, Any]]
    """Each with `pessimistic_cost` and `budget`, in the same unit."""
    details: dict[str, Any]
    """Particles or members, multipliers, margins."""


class Outcome(NamedTuple):
    """What a row of the ledger says of recorded episodes."""

    constraint: str
    num_over_budget: int
    num_episodes: int


class Reckoning(NamedTuple):
    """How runs of one kind are reckoned."""

    budget: Callable[[Any], Any]
    """Of an episode, or one for every constraint, given the settings; None for the environment's own."""
    promise: Callable[[RunFolder, int], Promise]
    """After the newest episode or epoch, which has this number."""
    outcome: Callable[[Mapping[str, Any]], Outcome]


def gp_promise(folder: RunFolder, newest: int) -> Promise:
    """The pessimistic cost of the first plan of an episode, for every seed and task.

    It is reckoned as the planner's check does before it acts: the largest cost of fresh particles of the model set, the
    limit tightened by the margin.
    """
    trainer = Trainer(folder)
    number, state, model = trainer.believed()
    if number != newest:
        raise StorageError(
            f"{folder.path}: the checkpoint of episode {newest} is truncated or altered, so there is nothing to "
            f"certify. Compute it again: actsafe resume {folder.path}"
        )
    config, budget, estimates = folder.config, trainer.problem.budget, []
    for task in trainer.tasks:
        weights = trainer.agent.task_weights(task)
        start = trainer.programs.start(state, model, weights, jnp.asarray(number), jnp.asarray(STREAM))
        # More decisions than the one looked at, as the program for so many is compiled anyway.
        _, decisions = trainer.programs.advance(state, model, weights, start, trainer.programs.steps)
        costs, is_certified = np.asarray(decisions.pessimistic_cost), np.asarray(decisions.is_certified)
        estimates += [
            {
                "seed": seed,
                "task": task,
                "pessimistic_cost": float(costs[index, 0]),
                "budget": float(budget),
                "is_certified": bool(is_certified[index, 0]),
            }
            for index, seed in enumerate(config.seeds)
        ]
    is_pessimistic = trainer.agent.recipe.is_pessimistic
    return Promise(
        "first plan of an episode, checked as before acting",
        estimates,
        {
            "particles": config.planning.preflight_particles if is_pessimistic else 1,
            "is_pessimistic": is_pessimistic,
            "confidence_multiplier": np.asarray(state.multiplier),
            "margin": config.objective.constraint.margin,
        },
    )


def vision_promise(folder: RunFolder, newest: int) -> Promise:
    """The pessimistic discounted cost return that the last updates dreamt of, against the planner's budget.

    Recorded in the ledger while the newest epoch learned; None, which is not within any budget, where nothing was.
    """
    folder.read_part(newest, CHECKPOINT)
    rows = [row for row in folder.rows("ledger") if row["epoch"] == newest]
    config = folder.config
    return Promise(
        "discounted cost return of dreams, mean over the updates of the newest epoch, as the ledger has it",
        [
            {
                "policy": row["policy"],
                "constraint": row["constraint"],
                "pessimistic_cost": row["predicted_pessimistic_cost_return"],
                "budget": row["planner_budget"],
                "episode_budget": row["budget"],
                "pessimistic_episode_cost": row["predicted_pessimistic_cost"],
            }
            for row in rows
        ],
        {
            "members": config.agent.model.num_members,
            "is_pessimistic": VISION_RECIPES[config.algorithm].is_pessimistic,
            "pessimism": config.agent.uncertainty.pessimism,
        },
    )


def _gp_outcome(row: Mapping[str, Any]) -> Outcome:
    """Of planned episodes: the seed's, number 0, do not count. A cost that is not known is over the budget."""
    is_planned = row["episode"] > 0
    is_within = row["realised_cost"] is not None and row["realised_cost"] <= row["budget"]
    return Outcome("cost", int(is_planned and not is_within), int(is_planned))


def _vision_outcome(row: Mapping[str, Any]) -> Outcome:
    over = (row["share_over_budget"] or 0.0) * row["num_episodes"]
    return Outcome(row["constraint"], round(over), row["num_episodes"])


RECKONINGS: Mapping[str, Reckoning] = {
    "gp": Reckoning(lambda config: config.make_problem().budget, gp_promise, _gp_outcome),
    "vision": Reckoning(lambda config: config.budget, vision_promise, _vision_outcome),
}

"""What the same planner reaches when it knows the true dynamics: the mark that learned models are measured against."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from actsafe.agents.deciding import Decision, Planner
from actsafe.models.base import TrueDynamics
from actsafe.objectives.pessimism import Constraint, Objective
from actsafe.objectives.rewards import Mixture, TaskReward
from actsafe.training.config import Config


def reference_returns(config: Config, num_episodes: int) -> dict[str, Any]:
    """Return, cost and ending of every task under the true dynamics, with the constraint and without it.

    `num_episodes` random streams each; search and constraint are those of `config`.
    """
    rules = {"constrained": config.objective.constraint, "unconstrained": None}
    by_rule = {name: _by_task(config, rule, num_episodes) for name, rule in rules.items()}
    tasks = config.make_problem().tasks
    return {"num_episodes": num_episodes} | {task: {rule: by_rule[rule][task] for rule in rules} for task in tasks}


def _by_task(config: Config, constraint: Constraint | None, num_episodes: int) -> dict[str, dict[str, Any]]:
    problem = config.make_problem()
    model = TrueDynamics(problem)
    rewards = tuple(TaskReward(problem, task) for task in problem.tasks)

    @eqx.filter_jit
    @eqx.filter_vmap(in_axes=(None, 0))
    def episode(weights: jax.Array, key: jax.Array) -> Decision:
        objective = Objective(Mixture(rewards, weights), num_particles=1, is_optimistic=False, constraint=constraint)
        planner = Planner(problem, model, objective, jnp.zeros((problem.state_dim,)), config.planning)
        return planner.advance(planner.begin(key), problem.num_decisions)[1]

    keys = jax.random.split(jax.random.key(0), num_episodes)
    found = {}
    for index, task in enumerate(problem.tasks):
        record = episode(jnp.eye(len(rewards))[index], keys)
        returns = np.sum(np.asarray(record.rewards)[..., index], axis=-1)
        found[task] = {
            "median_return": float(np.median(returns)),
            "returns": returns.tolist(),
            "costs": np.sum(np.asarray(record.cost), axis=-1).tolist(),
            "upright": np.asarray(jax.vmap(problem.is_goal)(record.next_state[:, -1])).tolist(),
        }
    return found

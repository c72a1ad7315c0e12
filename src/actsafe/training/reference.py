"""What the same planner reaches when it knows the true dynamics: the mark that learned models are measured against."""

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actsafe.agents.gp import GPAgent
from actsafe.agents.planner import Planner
from actsafe.models.base import TrueDynamics
from actsafe.objectives.pessimism import Constraint, Objective
from actsafe.objectives.rewards import Mixture, TaskReward
from actsafe.training.collecting import make_collector
from actsafe.training.config import Config
from actsafe.training.episodes import EpisodeOutcome, Episodes


def reference_returns(config: Config, num_episodes: int) -> dict[str, Any] | None:
    """Returns, costs and endings of every task under the true dynamics, with the constraint and without it.

    Search and constraint are those of `config`. None where the agent does not plan, or the dynamics are not known.
    """
    with jax.enable_x64(config.agent.is_double), contextlib.closing(config.make_envs(num_episodes)) as envs:
        agent = config.make_agent(envs)
        if not isinstance(agent, GPAgent) or envs.spec.problem is None:
            return None
        rules = {"constrained": agent.settings.objective.constraint, "unconstrained": None}
        collector = make_collector(envs, 1)
        found: dict[str, dict[str, Any]] = {task: {} for task in agent.tasks}
        for rule, constraint in rules.items():
            for place, task in enumerate(agent.tasks):
                planner = _planner(agent, place, constraint)
                # Every environment has a random stream of its own.
                collector.begin(planner, [0], jax.random.key(0)[None])
                episodes = Episodes(envs.spec)
                episodes.add(collector.collect(planner, agent.problem.num_decisions))
                episodes.add(collector.last_row())
                found[task][rule] = _summary(episodes.outcomes()[0], task)
    return {"num_episodes": num_episodes, "tasks": found}


def _planner(agent: GPAgent, place: int, constraint: Constraint | None) -> Planner:
    """The agent's planner for the task at this place, with the true dynamics; arrays have an axis seed of one."""
    problem = agent.problem
    rewards = Mixture(tuple(TaskReward(problem, task) for task in problem.tasks), jnp.eye(len(problem.tasks))[place])
    objective = Objective(rewards, num_particles=1, is_optimistic=False, constraint=constraint)
    planner = Planner(problem, TrueDynamics(problem), objective, jnp.zeros(problem.state_dim), agent.settings.planning)
    return jax.tree.map(lambda leaf: leaf[None] if isinstance(leaf, jax.Array) else leaf, planner)


def _summary(episodes: list[EpisodeOutcome], task: str) -> dict[str, Any]:
    returns = [episode.returns[task] for episode in episodes]
    return {
        "median_return": float(np.median(returns)),
        "returns": returns,
        "costs": [float(episode.costs[0]) for episode in episodes],
        "goals": sum(bool(episode.is_goal) for episode in episodes),
    }

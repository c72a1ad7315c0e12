"""What the benchmarks plan with: pendulum data, the models under test, planners, and the arithmetic of one plan."""

import contextlib
import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from refactoring import RefactoringGP

from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode
from actsafe.agents.planner import Checked, EpisodeMemory, Planner
from actsafe.data.transitions import Transitions
from actsafe.models.base import Model
from actsafe.models.gp.dynamics import GPSettings, learn
from actsafe.models.gp.kernels import Kernel, SquaredExponential
from actsafe.planning.coloured_noise import coloured_noise
from actsafe.planning.icem import Memory
from actsafe.problems.base import Problem, State
from actsafe.training.config import Config

POSTERIORS = ("exact", "reduced_exact_mean", "reduced")
"""Ours: all data; a subset for the variance; a subset for variance and mean."""

SUBSET_SIZE = 128
"""Rows of the reduced posteriors where the preset's own is exact."""

EXACT = GPSettings(subset_size=None)

REFERENCES = ("refactor_per_call", "refactor_per_prediction")
"""The reference, factoring once per batched call of the model or once per prediction: see refactoring.py."""

LENGTHSCALE = 3.0
"""About what fits to pendulum data give, in units of standardised inputs."""

SMALL = {"num_candidates": 6, "num_elites": 2, "num_iterations": 1, "horizon": 4}
"""A search small enough for the reference that factors in every prediction."""

QUICK = {**SMALL, "horizon": 2}
"""A search for seeing whether a benchmark runs at all."""


@eqx.filter_jit
def random_transitions(problem: Problem, count: int, key: PRNGKeyArray) -> Transitions:
    """`count` transitions of episodes under smooth random actions: the coverage of exploration, without planning it."""
    num_episodes = -(-count // problem.num_decisions)
    action_key, reset_key, step_key = jax.random.split(key, 3)
    shape = (num_episodes, problem.num_decisions)
    actions = jnp.clip(coloured_noise(action_key, *shape, problem.action_dim, 1.0), -1.0, 1.0)

    def step(state: State, inputs: tuple[Array, Array]) -> tuple[State, tuple[State, State]]:
        after = problem.step(state, *inputs).state
        return after, (state, after - state)

    starts = jax.vmap(problem.reset)(jax.random.split(reset_key, num_episodes))
    _, moves = jax.vmap(lambda *start: jax.lax.scan(step, *start))(starts, (actions, jax.random.split(step_key, shape)))
    states, actions, changes = (x.reshape(-1, x.shape[-1])[:count] for x in (moves[0], actions, moves[1]))
    return Transitions(states, actions, changes, jnp.asarray(count, jnp.int32))


def make_kernels(problem: Problem) -> Kernel:
    """Kernels of plausible lengthscales, one per output, stacked; no time depends on their values."""
    lengthscales = jnp.full((problem.state_dim, problem.state_dim + problem.action_dim), LENGTHSCALE)
    return jax.vmap(SquaredExponential)(jnp.log(lengthscales), jnp.zeros(problem.state_dim))


def with_posterior(gp: GPSettings, posterior: str) -> GPSettings:
    """`gp` with the posterior of that name in place of its own, its subset kept; the references are exact."""
    if not posterior.startswith("reduced"):
        return dataclasses.replace(gp, subset_size=None)
    size = SUBSET_SIZE if gp.subset_size is None else gp.subset_size
    return dataclasses.replace(gp, subset_size=size, is_mean_exact=posterior == "reduced_exact_mean")


@eqx.filter_jit
def make_model(problem: Problem, data: Transitions, posterior: str, gp: GPSettings = EXACT) -> Model:
    """The model named in `POSTERIORS` or `REFERENCES`, conditioned on `data`."""
    model = learn(problem, data, make_kernels(problem), with_posterior(gp, posterior))
    if posterior in REFERENCES:
        return RefactoringGP.of(model, data, is_shared=posterior == "refactor_per_call")
    return model


def known_problem(config: Config) -> Problem:
    """The problem that a config is about."""
    problem = config.problem
    if problem is None:
        raise ValueError(f"config.env: {config.env!r} is no problem of ours")
    return problem


def make_planner(config: Config, model: Model) -> Planner:
    """The planner of a run with this config in its expansion phase."""
    with contextlib.closing(config.make_envs()) as envs:
        agent: Any = config.make_agent(envs)
    multiplier = agent.settings.confidence.initial(agent.problem.state_dim)
    return agent.planner(model, multiplier, agent.reward_weights(ActMode(Role.EXPLORATION)))


class Planned(NamedTuple):
    """What is kept of a plan, so that the compiler can drop none of the work."""

    checked: Checked
    best_value: Any
    memory: Memory


def plan_once(planners: Planner, starts: tuple[State, EpisodeMemory]) -> Planned:
    """One plan of every seed: search, pre-flight check."""

    def one(planner: Planner, start: tuple[State, EpisodeMemory]) -> Planned:
        state, memory = start
        checked, found = planner.plan(state, memory.search, memory.spent, memory.key)
        return Planned(checked, found.best_value, found.memory)

    return eqx.filter_vmap(one)(planners, starts)


def start_of(planner: Planner, key: PRNGKeyArray) -> tuple[State, EpisodeMemory]:
    """The state that an episode begins in, and the planner's memory then."""
    reset_key, begin_key = jax.random.split(key)
    return planner.problem.reset(reset_key), jax.tree.map(lambda leaf: leaf[0], planner.begin(1, begin_key))


def planning_case(config: Config, posterior: str, *, num_data: int, num_seeds: int) -> tuple[Planner, Any]:
    """Arguments of `plan_once`: every seed has data, a model and an episode of its own."""
    problem = known_problem(config)
    keys = jax.random.split(jax.random.key(0), num_seeds)
    data = eqx.filter_vmap(lambda key: random_transitions(problem, num_data, key))(keys)
    models = eqx.filter_vmap(lambda data: make_model(problem, data, posterior, config.agent.gp))(data)

    def one(model: Model, key: PRNGKeyArray) -> tuple[Planner, Any]:
        planner = make_planner(config, model)
        return planner, start_of(planner, key)

    return eqx.filter_vmap(one)(models, keys)


def shrink(config: Config, search: dict[str, int], num_particles: int) -> Config:
    """`config` with a smaller search and fewer particles, the rest as it is."""
    agent: Any = config.agent
    planning = dataclasses.replace(
        agent.planning,
        search=dataclasses.replace(agent.planning.search, **search),
        preflight_particles=min(agent.planning.preflight_particles, num_particles),
    )
    objective = dataclasses.replace(agent.objective, num_particles=num_particles)
    return dataclasses.replace(config, agent=dataclasses.replace(agent, planning=planning, objective=objective))


def search_settings(config: Config) -> dict[str, Any]:
    """What the size of a plan depends on."""
    return {
        **dataclasses.asdict(config.agent.planning.search),
        "subset_size": config.agent.gp.subset_size,
        "num_particles": config.agent.objective.num_particles,
        "preflight_particles": config.agent.planning.preflight_particles,
        "predictions_per_plan": predictions_per_plan(config),
    }


def is_own_posterior(config: Config, posterior: str) -> bool:
    """Whether runs with this config use that posterior."""
    own, it = config.agent.gp, with_posterior(config.agent.gp, posterior)
    return own.subset_size == it.subset_size and (it.subset_size is None or own.is_mean_exact == it.is_mean_exact)


def predictions_per_plan(config: Config) -> int:
    """Predictions, mean and std, that one plan of one seed asks for: every step of every particle.

    Those of the mean alone, for the particles' feedback, are in the times but not in this count.
    """
    search = config.agent.planning.search
    plans = sum(search.population(i) for i in range(search.num_iterations)) + 2 + search.num_kept
    checked = 1 + search.num_kept + 3
    return search.horizon * (
        plans * config.agent.objective.num_particles + checked * config.agent.planning.preflight_particles
    )


def calls_per_plan(config: Config) -> int:
    """Batched calls of the model that one plan makes: one per horizon step of each iteration and of the check."""
    search = config.agent.planning.search
    return search.horizon * (search.num_iterations + 1)


def flops_per_prediction(config: Config, posterior: str, num_data: int) -> int:
    """Operations of one prediction as our code writes them: kernel rows, means, and L^-1 k as a full product.

    An exponential counts as one. The references are charged the same, so that their rate is of useful arithmetic.
    """
    problem, settings = known_problem(config), with_posterior(config.agent.gp, posterior)
    subset = num_data if settings.subset_size is None else min(settings.subset_size, num_data)
    rows = num_data if settings.is_mean_exact or settings.subset_size is None else subset
    inputs = problem.state_dim + problem.action_dim
    kernel_row, mean, variance = rows * (3 * inputs + 2), 2 * rows, 2 * subset**2 + 2 * subset
    return problem.state_dim * (kernel_row + mean + variance)


def arithmetic(config: Config, posterior: str, *, num_data: int, num_seeds: int, milliseconds: float) -> dict[str, Any]:
    """The floor beside a measurement: how much one plan must compute, and at what rate it did."""
    predictions = predictions_per_plan(config)
    flops = flops_per_prediction(config, posterior, num_data)
    return {
        "predictions_per_plan": predictions,
        "flops_per_prediction": flops,
        "gflop_per_plan": predictions * flops / 1e9,
        "achieved_gflops": predictions * flops * num_seeds / milliseconds / 1e6,
        "nanoseconds_per_prediction": milliseconds * 1e6 / (predictions * num_seeds),
    }


def growth_exponent(sizes: list[int], times: list[float]) -> float:
    """The slope of log(time) against log(size), least squares."""
    return float(np.polyfit(np.log(sizes), np.log(times), 1)[0])

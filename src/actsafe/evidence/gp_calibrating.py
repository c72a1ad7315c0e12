"""Calibration of Gaussian processes: forecasts of evaluation episodes, which nothing is learned from."""

from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.agents.actsafe import AgentState
from actsafe.evidence.calibration import Claim, Measured
from actsafe.models.gp.dynamics import GPDynamics
from actsafe.objectives.forecasts import forecast_scores
from actsafe.problems.base import Problem
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.settings import ConfigError

FIRST_STREAM = 2000
"""Random streams of these episodes, from here on; training and `actsafe evaluate` use those below."""
NUM_PARTICLES = 128
USUAL_EPISODES, USUAL_HORIZON = 5, 5
MEANINGS = {
    "model": "epistemic std and noise of the process",
    "plans": "epistemic std times the confidence multiplier, and noise: what plans are judged by",
}

Forecast = Callable[[GPDynamics, Array, Array, Array, PRNGKeyArray], Float[Array, "seed window time state"]]


def measure(folder: RunFolder, *, num_episodes: int | None = None, horizon: int | None = None) -> Measured:
    """How far the newest models' forecasts hold on `num_episodes` fresh episodes of every task, all seeds together.

    Two claims: *model* is the process as it is; *plans* has its epistemic std times the confidence multiplier, which is
    the set of models that plans are judged by and that the theory assumes to hold the truth.
    """
    num_episodes = USUAL_EPISODES if num_episodes is None else num_episodes
    trainer = Trainer(folder)
    problem = trainer.problem
    horizon = min(USUAL_HORIZON, problem.num_decisions) if horizon is None else horizon
    if horizon > problem.num_decisions:
        raise ConfigError(
            f"--horizon got {horizon}, and an episode has {problem.num_decisions} decisions; choose fewer"
        )
    number, state, model = trainer.believed()
    forecast = _forecast(problem, horizon)
    multipliers = {"model": jnp.ones_like(state.multiplier), "plans": state.multiplier}
    scores: dict[str, list[np.ndarray]] = {name: [] for name in multipliers}
    for states, actions, keys in _held_out(trainer, number, state, num_episodes):
        for name, multiplier in multipliers.items():
            scores[name].append(np.asarray(forecast(model, states, actions, multiplier, keys)))
    pooled = {name: np.concatenate(parts).reshape(-1, horizon, problem.state_dim) for name, parts in scores.items()}
    return Measured(
        unit_number=number,
        num_episodes=num_episodes * len(trainer.tasks) * len(folder.config.seeds),
        coordinates=problem.state_names,
        claims={name: Claim.of(meaning, pooled[name]) for name, meaning in MEANINGS.items()},
        deciding="plans",
        details={
            "seeds": list(folder.config.seeds),
            "confidence_multiplier": np.asarray(state.multiplier),
            "noise_std": folder.config.gp.noise_std,
            "particles": NUM_PARTICLES,
        },
    )


def _forecast(problem: Problem, horizon: int) -> Forecast:
    """`forecast_scores`, compiled, of every seed."""

    def one(model: GPDynamics, states: Array, actions: Array, multiplier: Array, key: PRNGKeyArray) -> Array:
        return forecast_scores(
            problem,
            model,
            states,
            actions,
            horizon=horizon,
            num_particles=NUM_PARTICLES,
            multiplier=multiplier,
            key=key,
        )

    return eqx.filter_jit(eqx.filter_vmap(one, in_axes=(eqx.if_array(0), 0, 0, 0, 0)))


def _held_out(
    trainer: Trainer, newest: int, state: AgentState, num_episodes: int
) -> Iterator[tuple[Array, Array, PRNGKeyArray]]:
    """States, actions and a key of every seed, of one episode after the other.

    The first is the evaluation that was recorded with the newest episode, where there is one: nothing was learned from
    it either, and on a CPU the planner would take long to make another.
    """
    for episode in range(num_episodes):
        recorded = _recorded(trainer, newest) if episode == 0 else None
        rolls = recorded or trainer.evaluate(trainer.tasks, stream=FIRST_STREAM + episode)
        for task, roll in enumerate(rolls.values()):
            number = FIRST_STREAM + episode * len(rolls) + task
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(state.key, number)
            yield jnp.asarray(roll["states"]), jnp.asarray(roll["actions"]), keys


def _recorded(trainer: Trainer, newest: int) -> dict[str, dict[str, np.ndarray]] | None:
    """An evaluation of every task by the newest models, as the folder has it; None where it has none."""
    if not trainer.config.is_evaluated(newest):
        return None
    arrays = trainer.folder.trajectory(newest)
    return {task: {name: arrays[f"{task}_{name}"] for name in ("states", "actions")} for task in trainer.tasks}

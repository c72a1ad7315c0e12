"""Calibration of world models: rewards and costs of evaluation episodes, forecast without looking."""

import contextlib
import itertools
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.agents.vision import PRECISIONS
from actsafe.data.rows import Rows
from actsafe.evidence.calibration import Claim, Measured
from actsafe.models.networks import cast
from actsafe.models.rssm.world_model import WorldModel
from actsafe.objectives.outcome_forecasts import LIKELIHOOD_STD, outcome_scores
from actsafe.training.epochs import EVALUATION, Standing
from actsafe.training.run import RunFolder
from actsafe.training.settings import ConfigError
from actsafe.training.vision_runner import VisionTrainer

STREAM = EVALUATION + 2
"""The random stream of these episodes; training and `actsafe evaluate` use those before it."""
NUM_SEEN, NUM_PARTICLES, NUM_AT_ONCE = 5, 32, 32
"""Rows that the model sees before it forecasts, particles of a forecast, and forecasts in one compiled call."""
USUAL_EPISODES, USUAL_HORIZON = 20, 15
CLAIMS = {
    "model": (LIKELIHOOD_STD, "spread of the ensemble's dreams, and the unit variance of its likelihood"),
    "dreams": (0.0, "spread of the ensemble's dreams alone: doubt about what is expected, not about what comes"),
}


def measure(folder: RunFolder, *, num_episodes: int | None = None, horizon: int | None = None) -> Measured:
    """How far rewards and costs of fresh episodes of the task's policy lie from what the newest world model dreams.

    The claim *model* decides: it is the predictive distribution that the model was trained with. That of *dreams* is
    how far the ensemble disagrees about expectations; truths that vary about their expectation do not lie within it.
    """
    num_episodes = USUAL_EPISODES if num_episodes is None else num_episodes
    trainer = VisionTrainer(folder)
    with contextlib.closing(trainer.fleet) as fleet:
        longest = fleet.spec.num_decisions + 1 - NUM_SEEN
        horizon = min(USUAL_HORIZON, longest) if horizon is None else horizon
        if not 1 <= horizon <= longest:
            raise ConfigError(
                f"--horizon got {horizon}, and {longest} decisions follow the {NUM_SEEN} rows of an episode that are "
                "seen first; choose at most as many"
            )
        newest, standing = trainer.newest()
        rows = _held_out(trainer, newest, standing, num_episodes)
    model = cast(standing.agent.model.tree, PRECISIONS[folder.config.agent.precision])
    key = jax.random.fold_in(jax.random.key(folder.config.seed), STREAM)
    names = ("reward", *trainer.fleet.spec.cost_names)
    scores = {name: [np.zeros((0, horizon, len(names)))] for name in CLAIMS}
    for number, windows in enumerate(_batches(rows, NUM_SEEN + horizon)):
        for name, (noise_std, _) in CLAIMS.items():
            found = _forecast(model, windows, noise_std, jax.random.fold_in(key, number))
            scores[name].append(np.asarray(found, float))
    return Measured(
        unit_number=newest,
        num_episodes=num_episodes,
        coordinates=names,
        claims={name: Claim.of(meaning, np.concatenate(scores[name])) for name, (_, meaning) in CLAIMS.items()},
        deciding="model",
        details={"seed": folder.config.seed, "seen": NUM_SEEN, "particles": NUM_PARTICLES},
    )


@eqx.filter_jit
def _forecast(model: WorldModel, rows: Rows, noise_std: float, key: PRNGKeyArray) -> Float[Array, "batch time outcome"]:
    return outcome_scores(model, rows, num_seen=NUM_SEEN, num_particles=NUM_PARTICLES, noise_std=noise_std, key=key)


def _held_out(trainer: VisionTrainer, newest: int, standing: Standing, num_episodes: int) -> Rows:
    """Rows (environment, time) of fresh episodes, rewards in the unit that the model learns them in."""
    loop = trainer.loop
    blocks = loop.rollout(standing.agent, loop.ticks_of(num_episodes), epoch=newest, stream=STREAM)
    rows = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *(block.rows() for block in blocks))
    return rows._replace(reward=trainer.config.agent.reward_scale * rows.reward)


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

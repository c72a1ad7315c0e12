"""What `actsafe evaluate` does with runs of Gaussian processes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from actsafe.cli.intervals import mean_with_interval
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.settings import ConfigError, require_known

FIRST_STREAM = 1000
"""Random streams from here on belong to this command; training uses those below."""
USUAL_EPISODES = 5


def evaluate(asked: Any, folder: RunFolder, out: Console) -> None:
    """Print return, cost and ending of the episodes, by task."""
    if asked.video is not None or asked.predict is not None:
        raise ConfigError("--video and --predict are for runs from pixels; `actsafe plot` draws this one's swing-up")
    if asked.draws:
        raise ConfigError(
            "--draws is for runs from pixels; this one plans, and has no policy to draw from: leave it out"
        )
    tasks = list(folder.config.make_problem().tasks)
    if asked.task is not None:
        require_known("task", asked.task, tasks)
    trainer = Trainer(folder)
    newest, _ = trainer.newest()
    num_episodes = USUAL_EPISODES if asked.episodes is None else asked.episodes
    chosen = tasks if asked.task is None else [asked.task]
    found = {task: _rollouts(trainer, task, tasks.index(task), num_episodes) for task in chosen}

    config = folder.config
    if newest < folder.num_committed - 1:
        out.print(f"the newest checkpoint is damaged; this is the agent after episode {newest}", style="yellow")
    out.print(
        f"{config.algorithm} on {config.problem}, after {newest} of "
        f"{config.schedule.num_episodes} episodes; {len(config.seeds)} seed(s) x {num_episodes} episode(s)",
        markup=False,
        soft_wrap=True,
    )
    table = Table("task", "return J_r", "cost J_c", "within budget", "upright")
    for task, rolls in found.items():
        upright = f"{np.mean(rolls.is_upright):.0%}" if task == "swing_up" else ""
        within = f"{np.mean(rolls.costs <= trainer.problem.budget):.0%}"
        table.add_row(task, mean_with_interval(rolls.returns), mean_with_interval(rolls.costs), within, upright)
    out.print(table)
    out.print("mean, and in brackets its 95 % bootstrap interval over seeds x episodes", style="dim")


@dataclasses.dataclass(frozen=True)
class Rollouts:
    """Evaluation episodes of all seeds, [seed, episode]."""

    returns: np.ndarray
    costs: np.ndarray
    is_upright: np.ndarray


def _rollouts(trainer: Trainer, task: str, index: int, num_episodes: int) -> Rollouts:
    rolls = [trainer.evaluate([task], stream=FIRST_STREAM + n)[task] for n in range(num_episodes)]
    ends = jnp.asarray(np.stack([roll["states"][:, -1] for roll in rolls], axis=1))
    return Rollouts(
        np.stack([roll["rewards"][:, :, index].sum(axis=1) for roll in rolls], axis=1),
        np.stack([roll["costs"].sum(axis=1) for roll in rolls], axis=1),
        np.asarray(jax.vmap(jax.vmap(trainer.problem.is_goal))(ends)),
    )

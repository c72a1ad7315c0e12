"""`actsafe evaluate`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np
from rich.table import Table
from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.working import console
from actsafe.experiments.config import ConfigError, require_known
from actsafe.experiments.folder import RunFolder
from actsafe.experiments.runner import Trainer

FIRST_STREAM = 1000
"""Random streams from here on belong to this command; training uses those below."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Try what a run has learned on its tasks, in fresh episodes.

    Nothing is learned from them and the run folder is not changed.
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    task: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: all)")] = None
    """swing_up or keep_down."""
    episodes: Annotated[int, arg(metavar="N")] = 5
    """Episodes per seed and task, each with random numbers of its own."""

    def run(self, arguments: Sequence[str]) -> int:
        """Print return, cost and ending of the episodes."""
        if self.episodes < 1:
            raise ConfigError(f"--episodes must be at least 1, got {self.episodes}")
        folder = RunFolder.open(self.folder)
        tasks = list(folder.config.make_problem().tasks)
        if self.task is not None:
            require_known("task", self.task, tasks)
        jax_setup.prepare()
        trainer = Trainer(folder)
        newest, _ = trainer.newest()
        chosen = tasks if self.task is None else [self.task]
        found = {task: _rollouts(trainer, task, tasks.index(task), self.episodes) for task in chosen}

        out = console()
        config = folder.config
        if newest < folder.num_committed - 1:
            out.print(f"the newest checkpoint is damaged; this is the agent after episode {newest}", style="yellow")
        out.print(
            f"{config.algorithm} on {config.problem}, after {newest} of "
            f"{config.schedule.num_episodes} episodes; {len(config.seeds)} seed(s) x {self.episodes} episode(s)",
            markup=False,
            soft_wrap=True,
        )
        table = Table("task", "return J_r", "cost J_c", "within budget", "upright")
        for task, rolls in found.items():
            upright = f"{np.mean(rolls.is_upright):.0%}" if task == "swing_up" else ""
            within = f"{np.mean(rolls.costs <= trainer.problem.budget):.0%}"
            table.add_row(task, _mean(rolls.returns), _mean(rolls.costs), within, upright)
        out.print(table)
        out.print("mean, and in brackets its 95 % bootstrap interval over seeds x episodes", style="dim")
        return 0


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


def _mean(values: np.ndarray) -> str:
    low, high = bootstrap_interval(values.ravel())
    return f"{np.mean(values):.2f} [{low:.2f}, {high:.2f}]" if values.size > 1 else f"{np.mean(values):.2f}"


def bootstrap_interval(values: np.ndarray, *, share: float = 0.95, num_draws: int = 10_000) -> tuple[float, float]:
    """Bounds that hold `share` of the means of resampled `values`."""
    draws = np.random.default_rng(0).choice(values, (num_draws, len(values)))
    low, high = np.quantile(draws.mean(axis=1), [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)

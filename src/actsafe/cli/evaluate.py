"""`actsafe evaluate`."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import equinox as eqx
import jax
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional, arg

from actsafe.agents.algorithms import Role, label
from actsafe.agents.base import ActMode
from actsafe.agents.safe_set.canary import SEED
from actsafe.cli import jax_setup
from actsafe.cli.options import Flag, Whole, given
from actsafe.cli.tables import plain_table
from actsafe.cli.video import require_free, save, writer_for
from actsafe.cli.working import console, say_calibration
from actsafe.data.rows import Rows
from actsafe.evidence.ledger import is_over
from actsafe.report.statistics import mean, stratified_bootstrap
from actsafe.training.episodes import EpisodeOutcome
from actsafe.training.loop import EVALUATION, Loop, Rollout, TrainState
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.settings import ConfigError, require_at_least, require_known
from actsafe.training.sweep import open_runs

FEWEST_EPISODES = 5
FRAMES_PER_SECOND = 25
NUM_SEEN, NUM_PREDICTED = 5, 45
"""Observations that the world model sees, and those that it then predicts."""


@dataclasses.dataclass(frozen=True)
class Evaluate:
    """Try what a run has learned on its tasks, in fresh episodes.

    Nothing is learned from them and the run folder is not changed.
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder, or a sweep's: then every run is tried, and names of videos end in the seed."""
    task: Annotated[str | None, given("NAME", "all")] = None
    """One of the run's tasks."""
    episodes: Annotated[Whole | None, given("N", "as in training, at least 5")] = None
    """Episodes per seed and task, each with random numbers of its own."""
    draws: Flag = False
    """Act by draws from the policy, as in training, and not by its medians; for policies that are drawn from."""
    video: Annotated[Path | None, given("FILE", "none")] = None
    """A video of the first episode: .gif, .webp, .png (animated) or .mp4."""
    predict: Annotated[Path | None, given("FILE", "none")] = None
    """A video of what happened above what the model had predicted, without looking; for models of images."""
    size: Annotated[Whole, arg(metavar="PIXELS")] = 256
    """Width and height of the video, where the environment can be drawn larger than the agent sees it."""
    overwrite: Flag = False
    """Replace video files that are there."""
    uncalibrated: Flag = False
    """Act even if the run is asked to be safe and `actsafe calibrate` found its model overconfident."""

    def run(self, arguments: Sequence[str]) -> int:
        """Print what the episodes came to."""
        require_at_least(1, self, "episodes", prefix="--")
        require_at_least(16, self, "size", prefix="--")
        folders = open_runs(self.folder)
        jax_setup.prepare()
        for folder in folders:
            say_calibration(folder, is_allowed=self.uncalibrated)
            (self if len(folders) == 1 else self._of_seed(folder.config.seeds[0]))._evaluate(folder, console())
        return 0

    def _of_seed(self, seed: int) -> "Evaluate":
        """The same, with files that are this seed's own."""
        named = {
            name: path.with_stem(f"{path.stem}-seed-{seed}")
            for name in ("video", "predict")
            if (path := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **named)

    def _evaluate(self, folder: RunFolder, out: Console) -> None:
        for path in filter(None, (self.video, self.predict)):
            writer_for(path)
            require_free(path, self.overwrite)
        trainer = Trainer(folder)
        loop, agent = trainer.loop, trainer.agent
        with contextlib.closing(loop.envs), agent.precision():
            if self.task is not None:
                require_known("task", self.task, agent.tasks)
            if self.draws and not agent.is_drawn:
                why = "draws as it is" if agent.ticks_per_deployment else "plans, and has no policy to draw from"
                raise ConfigError(f"--draws: this run's agent {why}; leave it out")
            if self.predict is not None and loop.config.observation != "pixels":
                raise ConfigError("--predict: this run learns from state vectors, which cannot be shown; leave it out")
            film = None if self.video is None else _film(loop, self.size)
            newest, state = trainer.newest()
            if newest < folder.num_committed - 1:
                out.print(f"the newest checkpoint is damaged; this is the agent after epoch {newest}", style="yellow")
            tasks = [self.task] if self.task is not None else list(agent.tasks)
            num_episodes = self.episodes or max(FEWEST_EPISODES, folder.config.evaluation_episodes)
            found = {
                task: loop.evaluate(state, task, num_episodes, epoch=newest, is_greedy=not self.draws)[1]
                for task in tasks
            }
            how = f", {'draws of the policy' if self.draws else 'greedy'}" if agent.is_drawn else ""
            how = ", as deployed" if agent.ticks_per_deployment else how
            config, seeds = folder.config, folder.config.seeds
            out.print(
                f"{label(config.algorithm)} on {config.env}, seed{'s'[: len(seeds) > 1]} {', '.join(map(str, seeds))}, "
                f"after {newest} of {config.num_units} epochs ({int(state.num_steps):,} steps); "
                f"{len(seeds)} seed(s) x {num_episodes} episode(s){how}"
            )
            out.print(outcome_table(found, folder, is_certifying=agent.is_certifying), soft_wrap=False)
            out.print("mean, and in brackets its 95 % bootstrap interval over seeds x episodes", style="dim")
            mode = ActMode(Role.TASK, tasks[0], not self.draws)
            if film is not None and self.video is not None:
                _write(film(state, mode, newest), self.video, out)
            if self.predict is not None:
                _write(_predicted(loop, state, mode, newest), self.predict, out)


def outcome_table(found: dict[str, list[list[EpisodeOutcome]]], folder: RunFolder, *, is_certifying: bool) -> Table:
    """A row per task: means over its episodes of all seeds."""
    spec = folder.spec
    table = plain_table()
    pairs = list(zip(spec.cost_names, spec.budgets, strict=True))
    columns = ["task", "return", *(f"{name}\n(budget {budget:g})" for name, budget in pairs), "over\nbudget"]
    all_outcomes = {task: [outcome for seed in by_seed for outcome in seed] for task, by_seed in found.items()}
    has_goal = any(outcome.is_goal is not None for own in all_outcomes.values() for outcome in own)
    is_guarded = any(outcome.level is not None for own in all_outcomes.values() for outcome in own)
    is_certifying = is_certifying and not is_guarded
    columns += [*(["ended\nat goal"] if has_goal else []), *(["no plan\ncertified", "fall-\nbacks"] * is_certifying)]
    columns += ["begun\nby S_0", "taken\nover"] * is_guarded
    for column in columns:
        table.add_column(column, justify="left" if column == "task" else "right")
    for task, outcomes in all_outcomes.items():
        costs = np.array([outcome.costs for outcome in outcomes])
        over = sum(any(map(is_over, outcome.costs, spec.budgets)) for outcome in outcomes)
        num_decisions = sum(outcome.num_decisions for outcome in outcomes)
        cells = [
            mean_with_interval(np.array([outcome.returns[task] for outcome in outcomes])),
            *(mean_with_interval(costs[:, number]) for number in range(costs.shape[1])),
            f"{over} of {len(outcomes)}",
        ]
        if has_goal:
            cells.append(f"{sum(bool(outcome.is_goal) for outcome in outcomes)} of {len(outcomes)}")
        if is_certifying:
            cells.append(f"{sum(outcome.num_uncertified for outcome in outcomes)} of {num_decisions}")
            cells.append(f"{sum(outcome.num_fallbacks for outcome in outcomes)}")
        if is_guarded:
            cells.append(f"{sum(outcome.level == SEED for outcome in outcomes)}")
            cells.append(f"{sum(outcome.num_taken_over > 0 for outcome in outcomes)}")
        table.add_row(task, *cells, style="red" if over else None)
    return table


def mean_with_interval(values: np.ndarray) -> str:
    """The mean and, of several values, its 95 % bootstrap interval in brackets."""
    found = stratified_bootstrap([values], of=mean)
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]" if values.size > 1 else f"{found.value:.2f}"


def _film(loop: Loop, size: int) -> Any:
    """A function that gives an episode of the first environment as pictures, or `ConfigError` where there are none."""
    # What is drawn from does not depend on how large it is drawn: the eye of other environments can look at it.
    if loop.config.observation != "pixels":
        raise ConfigError("--video: this run learns from state vectors, which cannot be shown; leave it out")
    larger = dataclasses.replace(loop.config, image_size=size, num_samples=4, num_envs=1).make_envs()
    larger.close()
    draw = eqx.filter_jit(lambda view: larger.observe(jax.tree.map(lambda leaf: leaf[:1], view))[0])

    def episode(state: TrainState, mode: ActMode, epoch: int) -> list[Image.Image]:
        frames: list[np.ndarray] = []
        for block in loop.rollout(state, mode, loop.envs.spec.num_decisions + 1, epoch=epoch, stream=EVALUATION):
            for tick in range(block.reward.shape[2]):
                if frames and block.is_first[0, 0, tick]:
                    return _images(frames, size)
                frames.append(np.asarray(draw(block.view(tick))))
        return _images(frames, size)

    return episode


def _predicted(loop: Loop, state: TrainState, mode: ActMode, epoch: int) -> list[Image.Image]:
    """What happened (above) and what the model had predicted (below), an environment beside the other."""
    num_ticks = min(NUM_SEEN + NUM_PREDICTED, loop.envs.spec.num_decisions)
    blocks = tuple(loop.rollout(state, mode, num_ticks, epoch=epoch, stream=EVALUATION))
    rows = Rows(*(field[0, :4] for field in Rollout(blocks).rows))
    own = jax.tree.map(lambda leaf: leaf[0], state.agent)
    key = jax.random.key(loop.config.seeds[0])
    guessed = loop.agent.predict_video(own, rows, min(NUM_SEEN, num_ticks - 1), key)
    both = np.concatenate([np.concatenate(list(video), axis=2) for video in (rows.observation, guessed)], axis=1)
    scale = max(1, 128 // rows.observation.shape[2])
    return [
        picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
        for picture in map(Image.fromarray, both)
    ]


def _images(frames: Sequence[np.ndarray], size: int) -> list[Image.Image]:
    pictures = [Image.fromarray(frame) for frame in frames]
    return [each if each.width >= size else each.resize((size, size), Image.Resampling.NEAREST) for each in pictures]


def _write(frames: Sequence[Image.Image], path: Path, out: Console) -> None:
    size = save(frames, FRAMES_PER_SECOND, path, writer_for(path))
    out.print(f"video    {path}  ({len(frames)} frames, {size / 1e6:.2g} MB)")

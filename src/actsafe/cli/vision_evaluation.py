"""What `actsafe evaluate` does with runs from pixels: returns, costs, and videos."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from actsafe.agents.recipes import VISION_RECIPES
from actsafe.cli.intervals import mean_with_interval
from actsafe.cli.video import require_free, save, writer_for
from actsafe.data.rows import Rows
from actsafe.models.rssm.world_model import predict_video
from actsafe.training.collecting import Way
from actsafe.training.epochs import DRAWN, EVALUATED, EVALUATION, Loop, Standing
from actsafe.training.run import RunFolder
from actsafe.training.settings import ConfigError
from actsafe.training.vision_runner import VisionTrainer

STREAM = EVALUATION + 1
"""The random stream of this command; training uses those before it."""
USUAL_EPISODES = 50
FRAMES_PER_SECOND = 25
NUM_SEEN, NUM_PREDICTED = 5, 45
"""Observations that the world model sees, and those that it then predicts."""


def evaluate(asked: Any, folder: RunFolder, out: Console) -> None:
    """Print return and costs of fresh episodes of the task's policy; write the videos asked for."""
    if asked.task is not None:
        raise ConfigError(
            f"--task got {asked.task}; a run from pixels has the one task it was trained on: leave it out"
        )
    for path in filter(None, (asked.video, asked.predict)):
        writer_for(path)
        require_free(path, asked.overwrite)
    trainer = VisionTrainer(folder)
    with contextlib.closing(trainer.fleet):
        newest, standing = trainer.newest()
        if newest < folder.num_committed - 1:
            out.print(f"the newest checkpoint is damaged; this is the agent after epoch {newest}", style="yellow")
        num_episodes = USUAL_EPISODES if asked.episodes is None else asked.episodes
        way = DRAWN if asked.draws else EVALUATED
        _print_outcomes(trainer, newest, standing, num_episodes, way, out)
        if asked.video is not None:
            _write(_watched(trainer.loop, newest, standing, asked.size, way), asked.video, out)
        if asked.predict is not None:
            _write(_predicted(trainer.loop, newest, standing, way), asked.predict, out)


def _print_outcomes(
    trainer: VisionTrainer, newest: int, standing: Standing, num_episodes: int, way: Way, out: Console
) -> None:
    config, fleet = trainer.config, trainer.fleet
    outcomes = trainer.loop.evaluate(standing.agent, num_episodes, epoch=newest, stream=STREAM, way=way)
    out.print(
        f"{VISION_RECIPES[config.algorithm].label} on {config.environment}, seed {config.seed}, after {newest} of "
        f"{config.num_units} epochs ({int(standing.num_steps):,} steps); {len(outcomes)} episode(s), "
        + ("greedy" if way.is_greedy else "draws of the policy"),
        markup=False,
        soft_wrap=True,
    )
    table = Table("return J_r", *(f"{name} J_c" for name in fleet.spec.cost_names), "budget", "within budget")
    costs = np.array([outcome.costs for outcome in outcomes])
    is_within = np.all(costs <= np.array(fleet.spec.budgets)[None], axis=1)
    table.add_row(
        mean_with_interval(np.array([outcome.reward for outcome in outcomes])),
        *(mean_with_interval(costs[:, number]) for number in range(costs.shape[1])),
        ", ".join(f"{budget:g}" for budget in fleet.spec.budgets),
        f"{np.mean(is_within):.0%}",
    )
    out.print(table)
    out.print("mean, and in brackets its 95 % bootstrap interval over episodes", style="dim")


def _watched(loop: Loop, epoch: int, standing: Standing, size: int, way: Way) -> list[Image.Image]:
    """An episode of the first environment as the agent sees it, drawn again at `size` where that is possible."""
    blocks = loop.rollout(standing.agent, loop.fleet.spec.num_decisions + 1, epoch=epoch, stream=STREAM, way=way)
    draw = _large_eye(loop, size)
    frames: list[np.ndarray] = []
    for block in blocks:
        for tick in range(block.reward.shape[1]):
            if frames and block.is_first[0, tick]:
                return _images(frames, size)
            frames.append(np.asarray(draw(block.view(tick))))
    return _images(frames, size)


def _large_eye(loop: Loop, size: int) -> Any:
    """From what a fleet hands on to the first environment's picture."""
    if loop.config.observation != "pixels":
        raise ConfigError("--video: this run learns from state vectors, which cannot be shown; leave it out")
    # What is drawn from does not depend on how large it is drawn: another fleet's eye can look at it.
    larger = dataclasses.replace(loop.config, image_size=size, num_samples=4, num_envs=1).make_envs()
    larger.close()
    return eqx.filter_jit(lambda view: larger.observe(jax.tree.map(lambda leaf: leaf[:1], view))[0])


def _predicted(loop: Loop, epoch: int, standing: Standing, way: Way) -> list[Image.Image]:
    """What happened (above) and what the world model had predicted (below), an environment beside the other."""
    if loop.config.observation != "pixels":
        raise ConfigError("--predict: this run learns from state vectors, which cannot be shown; leave it out")
    num_ticks = min(NUM_SEEN + NUM_PREDICTED, loop.fleet.spec.num_decisions)
    blocks = list(loop.rollout(standing.agent, num_ticks, epoch=epoch, stream=STREAM, way=way))
    rows = jax.tree.map(lambda *parts: jnp.concatenate(parts, axis=1), *(block.rows() for block in blocks))
    rows = Rows(*(field[:4] for field in rows))
    key = jax.random.key(loop.config.seed)
    shown = eqx.filter_jit(predict_video)(standing.agent.model.tree, rows, min(NUM_SEEN, num_ticks - 1), key)
    guessed = np.clip(np.round((np.asarray(shown) + 0.5) * 255.0), 0, 255).astype(np.uint8)
    happened = np.asarray(rows.observation)
    both = np.concatenate([np.concatenate(list(video), axis=2) for video in (happened, guessed)], axis=1)
    scale = max(1, 128 // happened.shape[2])
    return [
        picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
        for picture in map(Image.fromarray, both)
    ]


def _images(frames: Sequence[np.ndarray], size: int) -> list[Image.Image]:
    pictures = [Image.fromarray(frame) for frame in frames]
    return [each if each.width >= size else each.resize((size, size), Image.Resampling.NEAREST) for each in pictures]


def _write(frames: Sequence[Image.Image], path: Path, out: Console) -> None:
    size = save(frames, FRAMES_PER_SECOND, path, writer_for(path))
    out.print(f"video    {path}  ({len(frames)} frames, {size / 1e6:.2g} MB)", markup=False, soft_wrap=True)

"""Recorded episodes: what an environment showed, paid and cost, as a run's folder keeps it."""

import itertools
from typing import NamedTuple

import numpy as np

from actsafe.data.rows import episode_spans
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError


class Episode(NamedTuple):
    """One recorded episode of one environment; the first row is what it began with."""

    observations: np.ndarray
    """[time, ...]."""
    costs: np.ndarray
    """[time, constraint]."""
    rewards: np.ndarray
    """[time]."""


def has_trajectories(folder: RunFolder) -> bool:
    """Whether the rows of every epoch are kept; else those of the newest are, for the agent to learn from."""
    return not folder.config.agent.replay_rows


def episodes_of(folder: RunFolder, number: int, task: str = "") -> list[list[Episode]]:
    """By environment, those of all seeds one after the other: the episodes of an epoch, or of a task's evaluation after
    it. `StorageError` where they are not recorded as they should be."""
    prefix = f"{task}/" if task else ""
    if has_trajectories(folder):
        arrays = folder.trajectory(number)
        found = {name.removeprefix(prefix): each for name, each in arrays.items() if name.startswith(prefix)}
        found = {name: each.reshape(-1, *each.shape[2:]) for name, each in found.items() if each.ndim >= 3}
    else:
        found = folder.read_rows(number)._asdict()
    first = found.get("is_first", np.zeros((0, 0)))
    shapes = {"observation": folder.spec.observation_shape, "costs": (len(folder.spec.cost_names),), "reward": ()}
    for name, shape in {**shapes, "is_first": ()}.items():
        got = found.get(name)
        if got is None or got.shape != (*first.shape[:2], *shape) or got.dtype.kind not in "fiub" or not got.size:
            said = "nothing" if got is None else f"{got.dtype}{list(got.shape)}"
            raise StorageError(
                f"epoch {number} of {folder.path} has {said} for {prefix}{name}, expected numbers [environment, time, "
                f"{', '.join(map(str, shape))}]; restore it from a copy, or train anew"
            )
    wanted = [found[name] for name in shapes]
    return [
        [Episode(*(array[env, span] for array in wanted)) for span in episode_spans(is_first)]
        for env, is_first in enumerate(first)
    ]


def learned_from(folder: RunFolder) -> list[list[Episode]]:
    """By environment, those of all seeds one after the other: the episodes of all epochs."""
    by_epoch = [episodes_of(folder, number) for number in range(1, folder.num_committed)]
    return [list(itertools.chain(*of_env)) for of_env in zip(*by_epoch, strict=True)]

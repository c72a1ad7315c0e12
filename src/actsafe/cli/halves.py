"""The two halves of ActSafe, Gaussian processes and world models: how the commands treat the runs of each."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from actsafe.cli import gp_evaluation, gp_tables, pictures, vision_evaluation, vision_pictures, vision_tables
from actsafe.training.epochs import ticks_per_epoch
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.sweep import require_different
from actsafe.training.vision_config import VisionConfig
from actsafe.training.vision_runner import VisionTrainer


class Half(NamedTuple):
    """How runs of one kind are treated."""

    is_double: bool
    """Whether they compute in double precision."""
    changes: Mapping[str, str]
    """The entry of the settings that an option of `actsafe train` changes; it refuses others."""
    seeds_of_runs: Callable[[tuple[int, ...]], Sequence[Any]]
    """What `--seeds` changes that entry to, in each run that is then made."""
    check: Callable[[Any], None]
    """Raises `ConfigError` for settings that only show on a closer look that they cannot be run."""
    trainer: Callable[[RunFolder], Trainer | VisionTrainer]
    print_run: Callable[[RunFolder, Console], Any]
    """What a run found, for people."""
    evaluate: Callable[[Any, RunFolder, Console], None]
    """What `actsafe evaluate` does, given its options."""
    draw: Callable[[Any, Sequence[RunFolder], Path], list[Path]]
    """What `actsafe plot` does, given its options: the files that it wrote into a folder."""


def _one_each(seeds: tuple[int, ...]) -> Sequence[int]:
    require_different(seeds)
    return seeds


def _make_once(config: VisionConfig) -> None:
    """Make the environments and forget them."""
    with contextlib.closing(config.make_envs()) as fleet:
        ticks_per_epoch(config, fleet)


HALVES: Mapping[str, Half] = {
    "gp": Half(
        is_double=True,
        changes={
            "problem": "problem",
            "algorithm": "algorithm",
            "seeds": "seeds",
            "budget": "budget",
            "episodes": "schedule.num_expansion",
            "confidence": "confidence.kind",
            "multiplier": "confidence.value",
            "process_noise": "process_noise_std",
            "evaluate_every": "evaluate_every",
        },
        seeds_of_runs=lambda seeds: [seeds],
        check=lambda config: None,
        trainer=Trainer,
        print_run=gp_tables.print_run,
        evaluate=gp_evaluation.evaluate,
        draw=pictures.draw,
    ),
    "vision": Half(
        is_double=False,
        changes={
            "problem": "environment",
            "algorithm": "algorithm",
            "seeds": "seed",
            "budget": "budget",
            "steps": "schedule.total",
            "evaluate_every": "evaluate_every",
        },
        seeds_of_runs=_one_each,
        check=_make_once,
        trainer=VisionTrainer,
        print_run=vision_tables.print_run,
        evaluate=vision_evaluation.evaluate,
        draw=vision_pictures.draw,
    ),
}

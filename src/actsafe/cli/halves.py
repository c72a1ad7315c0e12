"""The two halves of ActSafe, Gaussian processes and world models: how the commands treat the runs of each."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from actsafe.cli import gp_evaluation, pictures, report, vision_evaluation, vision_pictures, vision_report
from actsafe.experiments.epochs import ticks_per_epoch
from actsafe.experiments.folder import RunFolder
from actsafe.experiments.runner import Trainer
from actsafe.experiments.settings import ConfigError
from actsafe.experiments.vision_config import VisionConfig
from actsafe.experiments.vision_runner import VisionTrainer


class Change(NamedTuple):
    """What an option of `actsafe train` changes."""

    path: str
    """An entry of the settings."""
    convert: Callable[[Any], Any] = lambda value: value


class Half(NamedTuple):
    """How runs of one kind are treated."""

    is_double: bool
    """Whether they compute in double precision."""
    changes: Mapping[str, Change]
    """By option of `actsafe train`; it refuses others."""
    check: Callable[[Any], None]
    """Raises `ConfigError` for settings that only show on a closer look that they cannot be run."""
    trainer: Callable[[RunFolder], Trainer | VisionTrainer]
    print_run: Callable[[RunFolder, Console], Any]
    """What a run found, for people."""
    evaluate: Callable[[Any, RunFolder, Console], None]
    """What `actsafe evaluate` does, given its options."""
    draw: Callable[[Any, Sequence[RunFolder], Path], list[Path]]
    """What `actsafe plot` does, given its options: the files that it wrote into a folder."""


def _only(seeds: Sequence[int]) -> int:
    if len(seeds) != 1:
        raise ConfigError(
            f"--seeds got {list(seeds)}; expected one number, as a run from pixels has one seed: start a run for each"
        )
    return seeds[0]


def _make_once(config: VisionConfig) -> None:
    """Make the environments and forget them."""
    with contextlib.closing(config.make_fleet()) as fleet:
        ticks_per_epoch(config, fleet)


HALVES: Mapping[str, Half] = {
    "gp": Half(
        is_double=True,
        changes={
            "problem": Change("problem"),
            "algorithm": Change("algorithm"),
            "seeds": Change("seeds"),
            "budget": Change("budget"),
            "episodes": Change("schedule.num_expansion"),
            "confidence": Change("confidence.kind"),
            "multiplier": Change("confidence.value"),
            "process_noise": Change("process_noise_std"),
            "evaluate_every": Change("evaluate_every"),
        },
        check=lambda config: None,
        trainer=Trainer,
        print_run=report.print_run,
        evaluate=gp_evaluation.evaluate,
        draw=pictures.draw,
    ),
    "vision": Half(
        is_double=False,
        changes={
            "problem": Change("environment"),
            "algorithm": Change("algorithm"),
            "seeds": Change("seed", _only),
            "budget": Change("budget"),
            "steps": Change("schedule.total"),
            "evaluate_every": Change("evaluate_every"),
        },
        check=_make_once,
        trainer=VisionTrainer,
        print_run=vision_report.print_run,
        evaluate=vision_evaluation.evaluate,
        draw=vision_pictures.draw,
    ),
}

"""What the commands that compute share: carry a run to its end, with progress, and stop cleanly when asked to."""

import itertools
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from actsafe.cli.progress import shown
from actsafe.cli.stopping import Stopped, StopRequests
from actsafe.evidence.calibration import require_calibrated
from actsafe.problems.cores import num_cores
from actsafe.training import provenance
from actsafe.training.loggers import logging
from actsafe.training.recording import duration
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.storage import StorageError

LONG = 3600.0
"""Seconds from which on it is said before that a run takes so long."""


def console() -> Console:
    """Where results are printed, lines as they are; 100 columns wide where no terminal says otherwise."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console(highlight=False, markup=False, soft_wrap=True, width=None if is_terminal else 100)


def carry_on(
    trainer: Trainer,
    arguments: Sequence[str],
    *,
    to_go_on: str | None = None,
    log: Sequence[str] = (),
    is_uncalibrated_allowed: bool = False,
) -> None:
    """Do what is left of a run. `arguments` are what was typed, `to_go_on` what to type after a stop.

    `log` names where metrics go beside the run folder. A run that is asked to be safe and has a model known to be
    overconfident is refused unless that is allowed.
    """
    folder = trainer.folder
    if not folder.is_finished:
        say_calibration(folder, is_allowed=is_uncalibrated_allowed)
    for notice in (trainer.notice, long_notice(trainer)):
        if notice:
            console().print(notice)
    with (
        logging(log, folder) as note,
        StopRequests(is_patient=True) as requests,
        shown(trainer, console(), f"{folder.config.algorithm:<7}") as display,
    ):

        def on_steps(count: int) -> None:
            display.steps(count)
            requests.check()

        def on_epoch(rows: list[dict[str, Any]]) -> None:
            display.epoch(rows)
            note(rows)

        trainer.loop.on_steps, trainer.on_epoch = on_steps, on_epoch
        try:
            trainer.run(provenance.command_line(arguments))
            requests.check()
        except Stopped as stop:
            command = to_go_on or f"actsafe resume {shlex.quote(str(folder.path))}"
            raise Stopped(
                stop.signal_number,
                f"stopped: {folder.progress} are kept in {folder.path}. Go on with: {command}",
            ) from None


def long_notice(trainer: Trainer) -> str:
    """What is said before a run that takes hours at least, on a CPU; else nothing."""
    if jax.default_backend() != "cpu" or trainer.folder.is_finished:
        return ""
    epochs_left = trainer.config.num_units - trainer.folder.num_done
    num_operations = trainer.agent.operations(epochs_left * trainer.loop.num_ticks * trainer.loop.steps_per_tick)
    seconds = num_operations * len(trainer.config.seeds) / _operations_per_second()
    seconds *= 1 + trainer.config.agent.is_double
    if seconds < LONG:
        return ""
    return (
        f"learning takes about {duration(seconds)} or more on this CPU, and is for an accelerator; for a try: "
        f"{trainer.config.agent.for_a_try}"
    )


def _operations_per_second() -> float:
    """How fast all cores multiply matrices that fit into their caches."""
    matrix, times = np.ones((512, 512), np.float32), []
    for _ in range(3):
        started = time.perf_counter()
        np.matmul(matrix, matrix)
        times.append(time.perf_counter() - started)
    # The linear algebra library has one thread here.
    return num_cores() * 2.0 * 512**3 / min(times)


def say_calibration(folder: RunFolder, *, is_allowed: bool) -> None:
    """Print what is known of the model's calibration, before it acts, or raise where it may not act on it."""
    notice = require_calibrated(folder, is_allowed=is_allowed)
    if notice:
        console().print(notice)


def new_folder(base: Path, first: int = 1) -> Path:
    """A folder BASE-N that was not there before, made here so that no other process takes it."""
    for number in itertools.count(first):
        path = base.with_name(f"{base.name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise StorageError(f"{path} cannot be made ({error.strerror}); name another folder with --out") from error
        return path
    raise AssertionError("counting does not end")

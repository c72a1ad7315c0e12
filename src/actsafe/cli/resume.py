"""`actsafe resume`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.options import Flag, Jobs, Log
from actsafe.cli.sweep import carry_on_all, stay_off_devices
from actsafe.cli.tables import print_run
from actsafe.cli.working import carry_on, console
from actsafe.evidence.calibration import require_calibrated
from actsafe.training.loggers import require_loggers
from actsafe.training.run import RunFolder
from actsafe.training.runner import Trainer
from actsafe.training.settings import require_at_least
from actsafe.training.sweep import SweepFolder, is_sweep


@dataclasses.dataclass(frozen=True)
class Resume:
    """Go on with a run exactly where it was stopped.

    Of a sweep, a folder with a run for each of several seeds, with every run that is not at its end.
    """

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder, or a sweep's."""
    log: Log = ()
    """Where metrics go beside the run folder: tensorboard, wandb."""
    jobs: Jobs = None
    """How many seeds of a sweep run at once; they share cores, memory and the GPU."""
    uncalibrated: Flag = False
    """Go on even if the run is asked to be safe and `actsafe calibrate` found its model overconfident."""

    def run(self, arguments: Sequence[str]) -> int:
        """Do what is left of the run, and say what was found."""
        require_at_least(1, self, "jobs", prefix="--")
        require_loggers(self.log)
        folder = SweepFolder.open(self.folder) if is_sweep(self.folder) else RunFolder.open(self.folder)
        if isinstance(folder, SweepFolder):
            for run in folder.unfinished.values():
                require_calibrated(run, is_allowed=self.uncalibrated)
            stay_off_devices()
        jax_setup.prepare()
        path, out = folder.path, console()
        if not folder.is_finished:
            out.print(f"going on with {path}: {folder.progress} are done")
        elif isinstance(folder, SweepFolder) or folder.is_newest_whole:
            out.print(f"{path} is finished; nothing is left to do")
        else:
            out.print(f"{path} is finished, but its newest epoch is damaged and is computed again")
        if isinstance(folder, SweepFolder):
            return carry_on_all(folder, jobs=self.jobs, log=self.log, is_uncalibrated_allowed=self.uncalibrated)
        carry_on(Trainer(folder), arguments, log=self.log, is_uncalibrated_allowed=self.uncalibrated)
        out.print()
        print_run(folder, out)
        return 0

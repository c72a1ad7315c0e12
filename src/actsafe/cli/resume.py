"""`actsafe resume`."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from actsafe.cli import jax_setup
from actsafe.cli.halves import HALVES
from actsafe.cli.options import Log
from actsafe.cli.working import carry_on, console
from actsafe.experiments.folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Resume:
    """Go on with a run exactly where it was stopped."""

    folder: Annotated[Positional[Path], arg(metavar="RUN")]
    """The run's folder."""
    log: Log = ()
    """Where metrics go beside the run folder: tensorboard, wandb."""

    def run(self, arguments: Sequence[str]) -> int:
        """Do what is left of the run, and say what was found."""
        folder = RunFolder.open(self.folder)
        half = HALVES[folder.kind]
        jax_setup.prepare(is_double=half.is_double)
        out = console()
        if folder.is_finished:
            out.print(f"{folder.path} is finished; nothing is left to do", markup=False, soft_wrap=True)
        else:
            config, done = folder.config, max(folder.num_committed - 1, 0)
            out.print(
                f"going on with {folder.path}: {done} of {config.num_units} {config.unit}s are done",
                markup=False,
                soft_wrap=True,
            )
        carry_on(folder, arguments, label=folder.config.algorithm, log=self.log)
        out.print()
        half.print_run(folder, out)
        return 0

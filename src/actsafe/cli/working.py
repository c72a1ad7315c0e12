"""What the commands that compute share: carry a run to its end, with progress, and stop cleanly when asked to."""

import itertools
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from actsafe.cli.progress import shown
from actsafe.cli.stopping import Stopped, StopRequests
from actsafe.experiments import provenance
from actsafe.experiments.folder import RunFolder
from actsafe.experiments.runner import Trainer
from actsafe.experiments.storage import StorageError


def console() -> Console:
    """Where results are printed; 100 columns wide where no terminal says otherwise."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 100)


def carry_on(folder: RunFolder, arguments: Sequence[str], *, label: str, to_go_on: str | None = None) -> None:
    """Do what is left of a run. `arguments` are what was typed, `to_go_on` what to type after a stop."""
    trainer = Trainer(folder)
    with StopRequests() as requests, shown(trainer, console(), label) as display:

        def on_decisions(count: int) -> None:
            display.decisions(count)
            requests.check()

        trainer.on_decisions, trainer.on_episode = on_decisions, display.episode
        try:
            trainer.run(provenance.command_line(arguments))
            requests.check()
        except Stopped as stop:
            planned = folder.config.schedule.num_episodes
            kept = max(folder.num_committed - 1, 0)
            command = to_go_on or f"actsafe resume {shlex.quote(str(folder.path))}"
            raise Stopped(
                stop.signal_number,
                f"stopped: {kept} of {planned} episodes are kept in {folder.path}. Go on with: {command}",
            ) from None


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

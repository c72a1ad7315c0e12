"""What `train` and `resume` do with seeds that cannot share a program: a process for each, watched by this one."""

import contextlib
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.progress import Progress, TextColumn

from actsafe.cli.processes import Processes, Task, actsafe_command, hanging_up_stops
from actsafe.cli.progress import Pace, bar
from actsafe.cli.stopping import Stopped, StopRequests, complain
from actsafe.cli.tables import print_run
from actsafe.cli.working import carry_on, console
from actsafe.training import provenance
from actsafe.training.config import Config
from actsafe.training.recording import described, duration
from actsafe.training.run import CONFIG, RunFolder, require_free
from actsafe.training.runner import Trainer, start
from actsafe.training.storage import StorageError, size_text
from actsafe.training.sweep import SweepFolder, is_sweep, require_disk

LOG = "log.txt"
"""Of a seed's process, in its run folder."""
AS_ASKED = (0, 128 + signal.SIGTERM, -signal.SIGTERM)
"""Exit codes of processes that were told to stop: done all the same, stopped by themselves, not yet able to."""


def stay_off_devices() -> None:
    """Let JAX use the CPU in this process, before it uses anything: the GPU is for those who compute."""
    jax.config.update("jax_platforms", "cpu")


def new_sweep(path: Path, configs: Sequence[Config], command: str) -> SweepFolder:
    """A new folder with a run for each config, once it is known that such a run can be made."""
    require_free(path)
    trainer = start(path / "seed-N", configs[0], is_trial=True)
    trainer.loop.envs.close()
    require_disk(path, len(configs), trainer.disk_bytes)
    return SweepFolder.create(path, configs, trainer.folder.spec, command=command)


def trained(
    path: Path,
    config: Config,
    arguments: Sequence[str],
    *,
    to_go_on: str | None = None,
    jobs: int | None = None,
    log: Sequence[str] = (),
) -> tuple[list[RunFolder], int]:
    """The runs of these settings in `path`, and the exit code: begun, continued, or left alone where they are finished.

    `to_go_on` is what to type after a stop.
    """
    configs = config.programs
    heading = f"training {config.algorithm} on {config.env}"
    if len(configs) > 1:
        command = provenance.command_line(arguments)
        sweep = SweepFolder.open(path) if is_sweep(path) else new_sweep(path, configs, command)
        runs = list(sweep.runs.values())
        if sweep.is_finished:
            return runs, 0
        console().print(f"{heading}, seeds {sweep.listed}, in {path}")
        return runs, carry_on_all(sweep, jobs=jobs, log=log)
    folder = RunFolder.open(path) if (path / CONFIG).is_file() else None
    if folder is not None and folder.is_finished:
        return [folder], 0
    trainer = start(path, config) if folder is None else Trainer(folder)
    console().print(f"{heading} in {path}")
    carry_on(trainer, arguments, to_go_on=to_go_on, log=log)
    return [trainer.folder], 0


def carry_on_all(
    sweep: SweepFolder, *, jobs: int | None, log: Sequence[str], is_uncalibrated_allowed: bool = False
) -> int:
    """The exit code after doing what is left of every seed, 1 where some failed; what all found is printed.

    `jobs` bounds how many work at once (None: all), `log` names where metrics go beside the run folders.
    """
    out, left = console(), sweep.unfinished
    options = (*(("--log", *log) if log else ()), *(("--uncalibrated",) if is_uncalibrated_allowed else ()))
    tasks = {seed: Task(actsafe_command("resume", run.path, *options), run.path / LOG) for seed, run in left.items()}
    failed = _work(sweep, tasks, jobs or len(tasks), out) if tasks else {}
    is_damaged = False
    for seed, run in sweep.runs.items():
        out.print(f"\nseed {seed}")
        try:
            print_run(run, out)
        except StorageError as error:  # One seed's records are no reason to keep quiet about the others'.
            is_damaged = True
            out.print(str(error), style="red")
    _tell_of(failed, tasks)
    if failed:
        complain(f"error: seed {', '.join(map(str, failed))} of {sweep.listed} failed. Once mended: {_go_on(sweep)}")
    return 1 if failed or is_damaged else 0


def _work(sweep: SweepFolder, tasks: Mapping[int, Task], num_at_once: int, out: Console) -> dict[int, int]:
    """The exit codes of the seeds that failed, by seed."""
    processes = Processes(tasks, num_at_once)
    with sweep.locked(), StopRequests(is_patient=True) as requests, hanging_up_stops():
        trainer = Trainer(sweep.first)  # Never run: it knows what a run needs.
        trainer.loop.envs.close()
        require_disk(sweep.path, len(sweep.runs), trainer.disk_bytes)
        out.print(f"checkpoints need up to {size_text(len(sweep.runs) * trainer.disk_bytes)} on the disk, of all seeds")
        with watched(sweep, out) as look:

            def look_and_listen() -> None:
                look()
                requests.check()

            try:
                processes.work(look_and_listen)
            except Stopped as stop:
                _tell_of({seed: code for seed, code in processes.exit_codes.items() if code not in AS_ASKED}, tasks)
                kept = ", ".join(f"{run.progress} of seed {seed}" for seed, run in sweep.runs.items())
                message = f"stopped: {kept} are kept in {sweep.path}. Go on with: {_go_on(sweep)}"
                raise Stopped(stop.signal_number, message) from None
    return {seed: code for seed, code in processes.exit_codes.items() if code != 0}


def _go_on(sweep: SweepFolder) -> str:
    return f"actsafe resume {shlex.quote(str(sweep.path))}"


def _tell_of(failed: Mapping[int, int], tasks: Mapping[int, Task]) -> None:
    for seed, code in failed.items():
        ending = f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"
        log = tasks[seed].log
        complain(f"seed {seed} failed ({ending}); the end of {log}:\n{tasks[seed].last_words()}")


@contextlib.contextmanager
def watched(sweep: SweepFolder, out: Console) -> Iterator[Callable[[], None]]:
    """A context with a function that looks at the run folders: a line per epoch, and on a terminal a bar for all."""
    columns = (TextColumn("{task.completed} of {task.total} epochs"), TextColumn("{task.fields[left]}"))
    with bar(out, *columns) as progress:
        yield _Watch(sweep, out, progress).look


class _Watch:
    """Sees what the processes have committed: they need not tell."""

    def __init__(self, sweep: SweepFolder, out: Console, progress: Progress | None) -> None:
        self._runs, self._out, self._progress = sweep.runs, out, progress
        self._config = sweep.first.config
        self._seen = {seed: run.num_done for seed, run in sweep.runs.items()}
        self._started, self._begun = time.monotonic(), sum(self._seen.values())
        self._total = self._config.num_units * len(sweep.runs)
        self._pace = Pace(self._begun, len(sweep.runs))
        if progress is not None:
            title = f"{self._config.algorithm}  seeds {sweep.listed}"
            self._bar = progress.add_task(title, total=self._total, completed=self._begun, left="")

    def look(self) -> None:
        """Show the epochs that are new."""
        for seed, run in self._runs.items():
            # Less than before: a process has set a damaged epoch aside, and computes it again.
            self._seen[seed] = min(self._seen[seed], run.num_done)
            # An epoch that is set aside this very moment cannot be read; the next look will do.
            with contextlib.suppress(StorageError):
                for row in _rows(run, self._seen[seed]):
                    self._seen[seed] += 1
                    self._pace.mark(sum(self._seen.values()))
                    self._show(seed, row)
        if self._progress is not None:
            self._progress.update(self._bar, completed=sum(self._seen.values()), left=self._left())

    def _show(self, seed: int, row: Mapping[str, Any]) -> None:
        width = max(len(str(known)) for known in self._runs)
        parts = [
            f"seed {seed:<{width}}  epoch {row['epoch']} of {self._config.num_units}",
            described([row], self._config),
            *([self._left()] if self._progress is None else []),
        ]
        self._out.print("  ".join(parts), soft_wrap=True, highlight=False)

    def _left(self) -> str:
        done = sum(self._seen.values())
        if done == self._total:
            return f"all done in {duration(time.monotonic() - self._started)}"
        if done <= self._begun or self._pace.speed <= 0:
            return "first epochs under way"
        return f"{duration(self._pace.seconds_left(self._total))} left for all"


def _rows(run: RunFolder, seen: int) -> list[dict[str, Any]]:
    """Metrics of the epochs after the first `seen`, each with what it took."""
    if run.num_done <= seen:
        return []
    metrics, timing = [row for row in run.rows("metrics") if row["epoch"]], run.timing()[1:]
    return [{**row, "timing": seconds} for row, seconds in zip(metrics, timing, strict=False)][seen:]

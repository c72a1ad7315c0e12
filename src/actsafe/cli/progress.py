"""How far a run is: a bar on a terminal, a line per epoch anywhere else."""

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from actsafe.training.recording import described, duration
from actsafe.training.runner import Trainer


class Pace:
    """How fast work goes on of late.

    What comes first is compiled first: the first mark counts only until there is another, or, of `num_side_by_side`
    that work at the same time, until each may have had one.
    """

    LATE = 5
    """Marks that are looked back, of each that works."""

    def __init__(self, done: int = 0, num_side_by_side: int = 1) -> None:
        self._marks, self._beginning = [(time.monotonic(), done)], num_side_by_side

    def mark(self, done: int) -> None:
        """So much is done by now."""
        self._marks.append((time.monotonic(), done))

    @property
    def speed(self) -> float:
        """What is done in a second; 0 before the first mark."""
        number = len(self._marks) - 1
        since = max(0, number - self.LATE * self._beginning)
        if since < self._beginning < number:
            since = self._beginning
        (then, before), (now, done) = self._marks[since], self._marks[-1]
        return (done - before) / max(now - then, 1e-9)

    def seconds_left(self, total: int) -> float:
        """Until `total` is done."""
        last, done = self._marks[-1]
        return max(0.0, (total - done) / max(self.speed, 1e-9) - (time.monotonic() - last))


@contextlib.contextmanager
def bar(console: Console, *columns: ProgressColumn) -> Iterator[Progress | None]:
    """A context with a bar and these columns beside it.

    None where no bar can be drawn over the one before: in a file, and in a notebook, which keeps every one.
    """
    if not console.is_terminal or "JPY_PARENT_PID" in os.environ:
        yield None
        return
    with Progress(TextColumn("{task.description}"), BarColumn(bar_width=None), *columns, console=console) as progress:
        yield progress


@contextlib.contextmanager
def shown(trainer: Trainer, console: Console, label: str) -> Iterator["Display"]:
    """A context in which progress of `trainer` is shown."""
    columns = (TextColumn("{task.percentage:3.0f}%"), _Rate(), TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
    with bar(console, *columns) as progress:
        yield Display(trainer, console, label, progress)


class _Rate(ProgressColumn):
    """What is done in a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("compiling" if speed is None else f"{speed:.{1 if speed < 100 else 0}f} steps/s")


class Display:
    """What is told how the work goes on."""

    def __init__(self, trainer: Trainer, console: Console, label: str, progress: Progress | None) -> None:
        self._config, self._console, self._label, self._progress = trainer.config, console, label, progress
        self._started, self._done, self._pace = time.monotonic(), 0, Pace()
        begun = trainer.folder.num_committed
        self._total = trainer.num_steps_from(begun)
        if progress is not None:
            self._task = progress.add_task(self._title(begun), total=self._total * len(self._config.seeds), note="")

    def _title(self, number: int) -> str:
        config = self._config
        return f"{self._label}  epoch {min(max(number, 1), config.num_units)} of {config.num_units}"

    def steps(self, count: int) -> None:
        """Simulator steps of every seed were done."""
        self._done += count
        if self._progress is not None:
            self._progress.update(self._task, advance=count * len(self._config.seeds))

    def epoch(self, rows: list[dict[str, Any]]) -> None:
        """An epoch was committed; its metrics, one row per seed."""
        config, number = self._config, rows[0]["epoch"]
        came = described(rows, config) if number else ""
        if self._progress is not None:
            self._progress.update(self._task, description=self._title(number + 1), note=f"last {came}" if came else "")
        elif number:
            self._pace.mark(self._done)
            line = [self._title(number), came, f"{self._pace.speed * len(config.seeds):.1f} steps/s"]
            if self._done >= self._total:
                line.append(f"done in {duration(time.monotonic() - self._started)}")
            else:
                line.append(f"{duration(self._pace.seconds_left(self._total))} left")
            self._console.print("  ".join(line), soft_wrap=True, highlight=False)

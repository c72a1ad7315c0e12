"""How far a run is: a bar on a terminal, a line per episode (or epoch) anywhere else."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from actsafe.training.runner import Trainer
from actsafe.training.vision_runner import VisionTrainer

AnyTrainer = Trainer | VisionTrainer


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


class Display(Protocol):
    """What is told how the work goes on."""

    def decisions(self, count: int) -> None:
        """So many of what the trainer counts were done."""

    def episode(self, rows: list[dict[str, Any]]) -> None:
        """An episode, or epoch, was committed; its metrics, one row per seed."""


@contextlib.contextmanager
def shown(trainer: AnyTrainer, console: Console, label: str) -> Iterator[Display]:
    """A context in which progress of `trainer` is shown."""
    if not console.is_terminal:
        yield _Lines(trainer, console, label)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:3.0f}%"),
        _Rate(trainer.progress_unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bar(trainer, progress, label)


class _Rate(ProgressColumn):
    """What is done in a second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("compiling" if speed is None else f"{speed:.{1 if speed < 100 else 0}f} {self._unit}/s")


class _Bar:
    def __init__(self, trainer: AnyTrainer, progress: Progress, label: str) -> None:
        self._trainer, self._progress, self._label = trainer, progress, label
        begun = trainer.folder.num_committed
        total = trainer.num_decisions_from(begun) * trainer.progress_scale
        self._task = progress.add_task(self._title(begun), total=total, note="")

    def _title(self, committed: int) -> str:
        config = self._trainer.config
        return f"{self._label}  {config.unit} {min(max(committed, 1), config.num_units)} of {config.num_units}"

    def decisions(self, count: int) -> None:
        self._progress.update(self._task, advance=count * self._trainer.progress_scale)

    def episode(self, rows: list[dict[str, Any]]) -> None:
        number = rows[0][self._trainer.config.unit]
        note = f"last {self._trainer.describe(rows)}" if number else ""
        self._progress.update(self._task, description=self._title(number + 1), note=note)


class _Lines:
    def __init__(self, trainer: AnyTrainer, console: Console, label: str) -> None:
        self._trainer, self._console, self._label = trainer, console, label
        self._started, self._done, self._pace = time.monotonic(), 0, Pace()
        self._total = trainer.num_decisions_from(trainer.folder.num_committed)

    def decisions(self, count: int) -> None:
        self._done += count

    def episode(self, rows: list[dict[str, Any]]) -> None:
        config = self._trainer.config
        number = rows[0][config.unit]
        if number == 0:
            return
        self._pace.mark(self._done)
        is_over, elapsed = self._done >= self._total, time.monotonic() - self._started
        parts = [
            f"{self._label}  {config.unit} {number} of {config.num_units}",
            self._trainer.describe(rows),
            f"{self._pace.speed * self._trainer.progress_scale:.1f} {self._trainer.progress_unit}/s",
            f"done in {duration(elapsed)}" if is_over else f"{duration(self._pace.seconds_left(self._total))} left",
        ]
        self._console.print("  ".join(parts), soft_wrap=True, highlight=False)


def duration(seconds: float) -> str:
    """`seconds` for people."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"

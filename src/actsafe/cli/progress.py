"""How far a run is: a bar on a terminal, a line per episode anywhere else."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from actsafe.experiments.runner import Trainer


class Display(Protocol):
    """What is told how the work goes on."""

    def decisions(self, count: int) -> None:
        """So many decisions were made, of every seed."""

    def episode(self, rows: list[dict[str, Any]]) -> None:
        """An episode was committed; its metrics, one row per seed."""


@contextlib.contextmanager
def shown(trainer: Trainer, console: Console, label: str) -> Iterator[Display]:
    """A context in which progress of `trainer` is shown."""
    if not console.is_terminal:
        yield _Lines(trainer, console, label)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:3.0f}%"),
        _Rate(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as progress:
        yield _Bar(trainer, progress, label)


class _Rate(ProgressColumn):
    """Decisions per second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("compiling" if speed is None else f"{speed:.1f} decisions/s")


class _Bar:
    def __init__(self, trainer: Trainer, progress: Progress, label: str) -> None:
        self._num_seeds = len(trainer.config.seeds)
        self._num_episodes = trainer.config.schedule.num_episodes
        self._label, self._progress = label, progress
        begun = trainer.folder.num_committed
        total = trainer.num_decisions_from(begun) * self._num_seeds
        self._task = progress.add_task(self._title(begun), total=total, note="")

    def _title(self, committed: int) -> str:
        return f"{self._label}  episode {min(max(committed, 1), self._num_episodes)} of {self._num_episodes}"

    def decisions(self, count: int) -> None:
        self._progress.update(self._task, advance=count * self._num_seeds)

    def episode(self, rows: list[dict[str, Any]]) -> None:
        number = rows[0]["episode"]
        note = f"last cost {largest_cost(rows):.3g}" if number else ""
        self._progress.update(self._task, description=self._title(number + 1), note=note)


class _Lines:
    def __init__(self, trainer: Trainer, console: Console, label: str) -> None:
        self._trainer, self._console, self._label = trainer, console, label
        self._started, self._done = time.monotonic(), 0
        self._total = trainer.num_decisions_from(trainer.folder.num_committed)

    def decisions(self, count: int) -> None:
        self._done += count

    def episode(self, rows: list[dict[str, Any]]) -> None:
        if rows[0]["episode"] == 0:
            return
        elapsed = time.monotonic() - self._started
        left = (self._total - self._done) * elapsed / max(self._done, 1)
        rate = self._done * len(rows) / max(elapsed, 1e-9)
        parts = [
            f"{self._label}  episode {rows[0]['episode']} of {self._trainer.config.schedule.num_episodes}",
            f"cost {largest_cost(rows):.3g}",
            f"{rate:.1f} decisions/s",
            f"{duration(left)} left" if left > 0 else f"done in {duration(elapsed)}",
        ]
        self._console.print("  ".join(parts), soft_wrap=True, highlight=False)


def largest_cost(rows: list[dict[str, Any]]) -> float:
    """The largest exploration cost over seeds."""
    return max(float(row["exploration_cost"]) for row in rows)


def duration(seconds: float) -> str:
    """`seconds` for people."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"

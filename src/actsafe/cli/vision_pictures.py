"""From run folders to picture files: runs from pixels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actsafe.cli.pictures import write
from actsafe.figures.vision import VisionRun, learning_curves, promises
from actsafe.training.run import RunFolder
from actsafe.training.settings import ConfigError
from actsafe.training.storage import StorageError


def draw(asked: Any, folders: Sequence[RunFolder], target: Path) -> list[Path]:
    """The pictures that `actsafe plot` made: learning curves of all runs together, promise and reality of each."""
    subjects = sorted({folder.config.subject for folder in folders})
    if len(subjects) > 1:
        raise ConfigError(f"got runs of {' and '.join(subjects)}; expected one environment: plot them one at a time")
    if asked.seed is not None:
        folders = [folder for folder in folders if folder.config.seed == asked.seed]
        if not folders:
            raise ConfigError(f"--seed got {asked.seed}; expected the seed of one of the runs: leave it away for all")
    return draw_all(folders, target, asked.kind)


def draw_all(folders: Sequence[RunFolder], target: Path, kind: str = "png") -> list[Path]:
    """The same for all of these runs, which are of one environment."""
    runs = []
    for folder in folders:
        metrics = folder.rows("metrics")
        if not metrics:
            raise StorageError(f"{folder.path} has no epoch to draw yet. Go on with it: actsafe resume {folder.path}")
        runs.append(VisionRun(folder.config.algorithm, folder.config.seed, metrics, folder.rows("ledger")))
    figures = {"learning_curves": learning_curves(runs)}
    for run in runs:
        ending = "" if len(runs) == 1 else f"_{run.algorithm}_{run.seed}"
        figures[f"ledger{ending}"] = promises(run)
    return [write(figure, target / f"{name}.{kind}") for name, figure in figures.items()]

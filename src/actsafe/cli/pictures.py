"""From run folders to picture files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from actsafe.cli.gp_tables import DRAWABLE
from actsafe.figures import style
from actsafe.figures.ledger import ledger_figure
from actsafe.figures.phase_plane import phase_plane
from actsafe.figures.summary import summary
from actsafe.figures.swing_up import swing_up_strip
from actsafe.training.config import ConfigError
from actsafe.training.results import entries
from actsafe.training.run import RunFolder
from actsafe.training.storage import StorageError


def draw(asked: Any, folders: Sequence[RunFolder], target: Path) -> list[Path]:
    """The pictures that `actsafe plot` made of runs of Gaussian processes."""
    require_drawable(folders)
    algorithms = [folder.config.algorithm for folder in folders]
    if len(set(algorithms)) < len(algorithms):
        raise ConfigError(
            f"got more than one run of the same algorithm ({', '.join(algorithms)}); expected different ones, "
            "as they are drawn by algorithm: plot them one at a time"
        )
    figures = {"phase_plane": exploration(folders, asked.seed), "summary": performance(folders)}
    for folder in folders:
        ending = "" if len(folders) == 1 else f"_{folder.config.algorithm}"
        figures[f"ledger{ending}"] = ledger(folder)
        strip = swing_up(folder, asked.seed)
        if strip is not None:
            figures[f"swing_up{ending}"] = strip
    return [write(figure, target / f"{name}.{asked.kind}") for name, figure in figures.items()]


def require_drawable(folders: Sequence[RunFolder]) -> str:
    """The one problem of all `folders`, if figures can be drawn of it."""
    problems = sorted({folder.config.problem for folder in folders})
    if len(problems) > 1:
        raise ConfigError(f"got runs of {' and '.join(problems)}; expected one problem: plot them one at a time")
    if problems[0] not in DRAWABLE:
        raise ConfigError(
            f"no figure can draw the problem {problems[0]!r}; expected one of {', '.join(DRAWABLE)}: "
            "add a view of it to figures/coordinates.py"
        )
    empty = [folder.path for folder in folders if folder.num_committed < 2]
    if empty:
        raise StorageError(
            f"{empty[0]} has no exploration episode to draw yet. Go on with it: actsafe resume {empty[0]}"
        )
    return problems[0]


def exploration(folders: Sequence[RunFolder], seed: int | None = None) -> Figure:
    """The state planes of one seed of every algorithm; by default each run's first."""
    trajectories, costs = {}, {}
    for folder in folders:
        index = _seed_index(folder, seed)
        numbers = range(1, folder.num_committed)
        episodes = [folder.trajectory(number) for number in numbers]
        trajectories[folder.config.algorithm] = [episode["states"][index] for episode in episodes]
        costs[folder.config.algorithm] = [float(np.sum(episode["costs"][index])) for episode in episodes]
    return phase_plane(require_drawable(folders), trajectories, costs)


def performance(folders: Sequence[RunFolder], reference_return: float | None = None) -> Figure:
    """Return and cost over the episodes, all seeds."""
    runs = [run for folder in folders for run in entries(folder)]
    return summary(require_drawable(folders), runs, reference_return=reference_return)


def swing_up(folder: RunFolder, seed: int | None = None) -> Figure | None:
    """The last swing-up that was evaluated, or None where none was."""
    index = _seed_index(folder, seed)
    for number in range(folder.num_committed - 1, 0, -1):
        if folder.config.is_evaluated(number):
            arrays = folder.trajectory(number)
            return swing_up_strip(
                folder.config.problem, arrays["swing_up_states"][index], arrays["swing_up_costs"][index]
            )
    return None


def ledger(folder: RunFolder) -> Figure:
    """Promised and realised cost, all seeds."""
    rows = [row for row in folder.rows("ledger") if row["episode"] > 0]
    return ledger_figure(rows, coordinate_names=folder.config.make_problem().state_names)


def write(figure: Figure, path: Path) -> Path:
    """Where the picture is now."""
    try:
        return style.save(figure, path)
    except OSError as error:
        raise StorageError(
            f"the picture {path} could not be written ({error.strerror}); what was there before is untouched"
        ) from error


def _seed_index(folder: RunFolder, seed: int | None) -> int:
    seeds = folder.config.seeds
    if seed is not None and seed not in seeds:
        raise ConfigError(f"{folder.path} has no seed {seed}; expected one of {', '.join(map(str, seeds))}")
    return 0 if seed is None else seeds.index(seed)

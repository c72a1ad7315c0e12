"""The figures of runs, from their folders or from a results file: which there are goes by what the runs have."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from actsafe.figures.coordinates import problem_of, view_of
from actsafe.figures.ledger import ledger_figure
from actsafe.figures.phase_plane import phase_plane
from actsafe.figures.states import state_coordinates
from actsafe.figures.style import in_order
from actsafe.figures.summary import summary
from actsafe.figures.swing_up import TASK, swing_up_strip
from actsafe.training import results
from actsafe.training.run import RunFolder
from actsafe.training.settings import ConfigError
from actsafe.training.storage import StorageError
from actsafe.training.trajectories import episodes_of, has_trajectories, learned_from


def figures_of_runs(
    folders: Sequence[RunFolder], *, seed: int | None = None, reference: Mapping[str, Any] | None = None
) -> dict[str, Figure]:
    """By name, all figures of runs in one environment; trajectories are those of one seed, by default the first.

    `reference` is that of a results file.
    """
    empty = [folder.path for folder in folders if folder.num_committed < 2]
    if empty:
        raise StorageError(f"{empty[0]} has no epoch to draw yet. Go on with it: actsafe resume {empty[0]}")
    runs = [run for folder in folders for run in results.entries(folder)]
    results.require_one_subject(runs, "Plot them one at a time")
    told = [(run["algorithm"], run["seed"]) for run in runs]
    twice = [f"{name}, seed {number}" for name, number in dict.fromkeys(told) if told.count((name, number)) > 1]
    if twice:
        raise ConfigError(f"got more than one run of the same algorithm and seed ({'; '.join(twice)}); plot them apart")
    drawn = {**exploration(folders, seed), **_of_entries(runs, reference, problem_names(folders[0]))}
    strips = {name: swing_up(folder, seed) for name, folder in _by_algorithm(folders, seed).items()}
    return drawn | {_name(TASK, name, strips): each for name, each in strips.items() if each is not None}


def figures_of_results(path: Path) -> dict[str, Figure]:
    """By name, the figures that a results file has the numbers for: trajectories are in run folders alone."""
    content = results.read(path)
    if not any(run["epochs"] for run in content["runs"]):
        raise StorageError(f"{path} has no epoch to draw. Name the results file of runs that have begun")
    return _of_entries(content["runs"], content["reference"])


def _of_entries(
    runs: Sequence[Mapping[str, Any]], reference: Mapping[str, Any] | None, names: Sequence[str] | None = None
) -> dict[str, Figure]:
    """The summary of all runs, and a ledger for every algorithm."""
    grouped = {name: [r for r in runs if r["algorithm"] == name] for name in in_order(r["algorithm"] for r in runs)}
    even = [{**run, "epochs": run["epochs"][: _shortest(own)]} for own in grouped.values() for run in own]
    ledgers = {
        _name("ledger", name, grouped): ledger_figure(own, coordinate_names=names) for name, own in grouped.items()
    }
    return {"summary": summary([run for run in even if run["epochs"]], reference=reference), **ledgers}


def _shortest(runs: Sequence[Mapping[str, Any]]) -> int:
    """How far all of the runs have come that have begun: one that is behind is not compared with the end of others."""
    return min((len(run["epochs"]) for run in runs if run["epochs"]), default=0)


def _name(what: str, algorithm: str, of: Mapping[str, Any]) -> str:
    return what if len(of) == 1 else f"{what}_{algorithm.rpartition(':')[2]}"


def problem_names(folder: RunFolder) -> Sequence[str] | None:
    """Of the state's coordinates, where the environment is a problem."""
    problem = problem_of(folder.config)
    return None if problem is None else problem.state_names


def exploration(folders: Sequence[RunFolder], seed: int | None = None) -> dict[str, Figure]:
    """Where one seed of every algorithm went: in the plane that the problem declares, or by coordinate.

    Empty where runs keep no trajectories, as they do not of images or with a replay.
    """
    found = {
        name: learned_from(folder)[_first_env(folder, seed)]
        for name, folder in _by_algorithm(folders, seed).items()
        if has_trajectories(folder)
    }
    trajectories = {name: [each.observations for each in episodes] for name, episodes in found.items() if episodes}
    if not trajectories:
        return {}
    problem = problem_of(folders[0].config)
    if problem is not None and view_of(problem) is not None:
        costs = {name: [float(np.sum(each.costs[1:])) for each in found[name]] for name in trajectories}
        return {"phase_plane": phase_plane(problem, trajectories, costs)}
    dim = folders[0].spec.observation_shape[-1]
    names = [f"observation {n}" for n in range(dim)] if problem is None else problem.state_names
    return {"states": state_coordinates(names, trajectories)}


def swing_up(folder: RunFolder, seed: int | None = None) -> Figure | None:
    """The last swing-up that was evaluated; None where none was, or where the problem has no rod."""
    problem = problem_of(folder.config)
    view = view_of(problem)
    if problem is None or view is None or view.plane.base is None or TASK not in folder.spec.tasks:
        return None
    evaluated = [number for number in range(1, folder.num_committed) if folder.config.is_evaluated(number)]
    if not evaluated or not has_trajectories(folder):
        return None
    *_, last = episodes_of(folder, evaluated[-1], TASK)[_first_env(folder, seed)]
    return swing_up_strip(problem, last.observations, last.costs[1:].sum(axis=-1))


def _by_algorithm(folders: Sequence[RunFolder], seed: int | None) -> dict[str, RunFolder]:
    """Of every algorithm the first run that has the seed."""
    chosen: dict[str, RunFolder] = {}
    for folder in folders:
        if seed is None or seed in folder.config.seeds:
            chosen.setdefault(folder.config.algorithm, folder)
    if not chosen:
        known = sorted({each for folder in folders for each in folder.config.seeds})
        raise ConfigError(f"the runs have no seed {seed}; expected one of {', '.join(map(str, known))}")
    return chosen


def _first_env(folder: RunFolder, seed: int | None) -> int:
    """The first environment of a seed, by default the first, among those of all."""
    return 0 if seed is None else folder.config.seeds.index(seed) * folder.config.num_envs

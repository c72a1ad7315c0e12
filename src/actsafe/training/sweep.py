"""A sweep: a run for each of several seeds, in a folder that says so.

    sweep.json             the seeds, the command that asked for them, schema version
    seed-0/, seed-1/ ...   run folders, each as it would have been made alone

A sweep has no state of its own: what is done of it is what is done of its runs.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from actsafe.envs.spec import EnvSpec
from actsafe.training.config import Config
from actsafe.training.locking import locked
from actsafe.training.run import CONFIG, SWEEP, RunFolder, require_free
from actsafe.training.storage import StorageError, read_json, require_room, write_json

SCHEMA_VERSION = 1


@dataclasses.dataclass(frozen=True)
class SweepFolder:
    """The runs of a sweep, by seed."""

    path: Path
    runs: Mapping[int, RunFolder]

    @classmethod
    def create(cls, path: Path, configs: Sequence[Config], spec: EnvSpec, *, command: str) -> "SweepFolder":
        """A new folder with a run for each config, all in such environments; an existing one is never touched."""
        by_seed = {seed: config for config in configs for seed in config.seeds}
        require_free(path)
        runs = {seed: RunFolder.create(path / f"seed-{seed}", config, spec) for seed, config in by_seed.items()}
        # Last, so that a folder which says that it is a sweep has all its runs.
        write_json(path / SWEEP, {"schema": SCHEMA_VERSION, "seeds": list(runs), "command": command})
        return cls(path, runs)

    @classmethod
    def open(cls, path: Path) -> "SweepFolder":
        """The folder of an earlier sweep; one that has lost a run, or has been given another's, is refused."""
        seeds = _read_seeds(path)
        runs = {seed: _open_run(path, seed) for seed in seeds}
        first = runs[seeds[0]]
        for seed, run in runs.items():
            _require_kin(run, first, seed)
        there = {file.parent.name for file in path.glob(f"seed-*/{CONFIG}")}
        unlisted = sorted(there - {run.path.name for run in runs.values()})
        if unlisted:
            raise StorageError(
                f"{path / SWEEP} lists the seeds {', '.join(map(str, seeds))}, and beside them there is "
                f"{', '.join(unlisted)}. Move it elsewhere or, if it belongs to them, add its seed to the list"
            )
        return cls(path, runs)

    @property
    def first(self) -> RunFolder:
        """Its first run, whose settings are those of every run but for the seed."""
        return next(iter(self.runs.values()))

    @property
    def unfinished(self) -> dict[int, RunFolder]:
        """The runs that are not at their end."""
        return {seed: run for seed, run in self.runs.items() if not run.is_finished}

    @property
    def progress(self) -> str:
        """How many seeds are done, for people."""
        return f"{len(self.runs) - len(self.unfinished)} of {len(self.runs)} seeds"

    @property
    def is_finished(self) -> bool:
        """Whether every run is at its end."""
        return not self.unfinished

    @property
    def listed(self) -> str:
        """Its seeds, for people."""
        return ", ".join(map(str, self.runs))

    def locked(self) -> AbstractContextManager[Any]:
        """A context in which no other process works on all of this sweep; each run has a lock of its own besides."""
        return locked(self.path / SWEEP)


def require_disk(path: Path, num_runs: int, bytes_per_run: int) -> None:
    """Raise where the disk is too small for the checkpoints of all runs; each by itself looks at its own only."""
    advice = "ask for fewer seeds, or set a smaller agent.replay_capacity"
    require_room(path, bytes_per_run * num_runs, of=f"these {num_runs} seeds", advice=advice)


def is_sweep(path: Path) -> bool:
    """Whether a folder says that it is a sweep."""
    return (path / SWEEP).is_file()


def open_runs(path: Path) -> list[RunFolder]:
    """The run in a folder, or all runs of a sweep."""
    return list(SweepFolder.open(path).runs.values()) if is_sweep(path) else [RunFolder.open(path)]


def _read_seeds(path: Path) -> list[int]:
    content = read_json(path / SWEEP)
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, int) or not isinstance(seeds := content.get("seeds"), list):
        raise StorageError(f"{path / SWEEP} was not written by actsafe: it lacks a schema number or a list of seeds")
    if schema > SCHEMA_VERSION:
        raise StorageError(
            f"{path} has schema {schema}, and this actsafe reads up to {SCHEMA_VERSION}. The sweep is left as it is; "
            "install a newer actsafe to work with it"
        )
    if not all(type(seed) is int and seed >= 0 for seed in seeds):
        raise StorageError(f"{path / SWEEP}: seeds must be whole numbers of at least 0, got {seeds}")
    if not seeds or len(set(seeds)) < len(seeds):
        raise StorageError(f"{path / SWEEP}: seeds must be one or more different numbers, got {seeds}")
    return seeds


def _open_run(path: Path, seed: int) -> RunFolder:
    folder = path / f"seed-{seed}"
    if not (folder / CONFIG).is_file():
        raise StorageError(
            f"{path / SWEEP} lists the seed {seed}, and {folder} is missing or no run folder. Put it back from a copy "
            "or, to do without it, take its seed off that list"
        )
    return RunFolder.open(folder)


def _require_kin(run: RunFolder, first: RunFolder, seed: int) -> None:
    """Raise unless `run` is of this seed, and otherwise as the sweep's first."""
    wanted, there = {**first.config.to_json(), "seeds": [seed]}, run.config.to_json()
    different = ", ".join(name for name in {**wanted, **there} if wanted.get(name) != there.get(name))
    if different:
        raise StorageError(
            f"{run.path} holds a run that does not belong there ({different} differs); expected seed {seed} and "
            f"otherwise the settings of {first.path}. Put the right folder in its place"
        )

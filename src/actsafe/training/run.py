"""A run folder: config, one committed folder per episode, and the readable files made from them.

    config.json            every setting, schema version, the kind of run
    provenance.json        which command on which machine computed which episodes
    metrics.jsonl          a line per episode and seed
    ledger.jsonl           the safety ledger: a line per episode and seed
    episodes/0003/         written in one step: metrics, ledger, trajectory, timing, checkpoint

An episode counts once its folder has its final name. The two .jsonl files are made from the episode folders, so they
can have neither a gap nor a repeat, whenever the program was stopped. Runs from pixels have epochs where this says
episodes; otherwise their folders are alike.
"""

import contextlib
import dataclasses
import itertools
import json
import shutil
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from actsafe.envs.spec import EnvSpec
from actsafe.training.config import Config
from actsafe.training.settings import ConfigError
from actsafe.training.storage import (
    StorageError,
    arrays_to_bytes,
    bytes_to_arrays,
    finite,
    locked,
    read_json,
    write_folder,
    write_json,
    write_json_lines,
    write_new,
)
from actsafe.training.stores import OrbaxFolder, flatten, unflatten

SCHEMA_VERSION = 2
CHECKPOINT, CHECKPOINTS_KEPT = "checkpoint", 2

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class UnitRecord:
    """What one epoch leaves behind, all seeds."""

    metrics: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    trajectory: dict[str, np.ndarray]
    timing: dict[str, float]


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path, config: Config, spec: EnvSpec) -> None:
        self.path = path
        self.config = config
        self.spec = spec
        """Of the environments, so that nobody has to make them to know it. It has no problem."""
        self._store = OrbaxFolder()

    @classmethod
    def create(cls, path: Path, config: Config, spec: EnvSpec) -> "RunFolder":
        """A new folder; an existing one is never touched."""
        if path.exists() and (not path.is_dir() or not _is_blank(path)):
            go_on = f", or go on with it: actsafe resume {path}" if (path / "config.json").is_file() else ""
            raise StorageError(f"{path} exists already and is left as it is. Choose another folder{go_on}")
        content = {"schema": SCHEMA_VERSION, "config": config.to_json(), "spec": spec.to_json()}
        write_json(path / "config.json", content)
        return cls(path, config, spec)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The folder of an earlier run."""
        if not (path / "config.json").is_file():
            found = "it has no config.json" if path.exists() else "there is nothing of that name"
            raise StorageError(
                f"{path} is not a run folder: {found}. Name one that `actsafe train` made, or start one there"
            )
        content = read_json(path / "config.json")
        schema = content.get("schema") if isinstance(content, dict) else None
        if not isinstance(schema, int) or "config" not in content:
            raise StorageError(
                f"{path / 'config.json'} was not written by actsafe: it lacks a schema number or a config"
            )
        if schema < SCHEMA_VERSION:
            raise StorageError(
                f"{path} was made by actsafe 0.1 (schema {schema}), whose checkpoints this one does not read. It is left "
                "as it is: go on with it by pip install 'actsafe<0.2', or train its settings anew in another folder"
            )
        if schema > SCHEMA_VERSION:
            raise StorageError(
                f"{path} has schema {schema}, and this actsafe reads {SCHEMA_VERSION}. The run is left as it is; "
                "install a newer actsafe to work with it"
            )
        try:
            return cls(path, Config.from_json(content["config"]), EnvSpec.from_json(content["spec"]))
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path / 'config.json'} cannot be used: {error}") from error

    def require_same(self, config: Config) -> None:
        """Raise `ConfigError` unless the run has these settings."""
        if self.config != config:
            wanted, there = config.to_json(), self.config.to_json()
            different = ", ".join(name for name in wanted if wanted[name] != there.get(name))
            raise ConfigError(
                f"{self.path} holds a run with other settings ({different} differ) and is left as it is. Choose another "
                "folder, or ask for the same settings again"
            )

    @property
    def num_committed(self) -> int:
        """Episodes that are committed, the seed (episode 0) included."""
        count = 0
        while (self._unit_path(count) / "metrics.json").is_file():
            count += 1
        return count

    @property
    def is_finished(self) -> bool:
        """Whether every episode of the schedule is committed."""
        return self.num_committed > self.config.num_units

    def locked(self) -> contextlib.AbstractContextManager[None]:
        """A context in which no other process works on this run."""
        return locked(self.path / "config.json")

    def sessions(self) -> list[dict[str, Any]]:
        """Which command on which machine worked on the run, from which episode on; in the order of time."""
        path = self.path / "provenance.json"
        return read_json(path) if path.is_file() else []

    def add_session(self, session: dict[str, Any]) -> None:
        """Record that a process takes the run up; one that only repeats the last entry is not recorded again."""
        sessions = self.sessions()
        if not sessions or sessions[-1] != session:
            write_json(self.path / "provenance.json", [*sessions, session])

    def commit(self, number: int, episode: UnitRecord, state: Any, **parts: Any) -> None:
        """Add an episode and the agent's state after it, in one step; then bring the readable files up to date.

        `parts` are further pytrees, to be had back with `read_part` for as long as the config's `parts_kept` says.
        """
        files = {
            "metrics.json": _json_bytes(episode.metrics),
            "ledger.json": _json_bytes(episode.ledger),
            "timing.json": _json_bytes(episode.timing),
        }
        if episode.trajectory:
            files["trajectory.npz"] = arrays_to_bytes(episode.trajectory)

        def fill(folder: Path) -> None:
            arrays = {name: flatten(part) for name, part in {CHECKPOINT: state, **parts}.items()}
            with ThreadPoolExecutor(len(arrays), "writing") as writers:
                checksums = writers.map(lambda name: self._store.write(folder / name, arrays[name]), arrays)
                for name, checksum in zip(arrays, checksums, strict=True):
                    manifest = {"schema": SCHEMA_VERSION, "config": self.config.digest, "sha256": checksum}
                    write_new(folder / f"{name}.json", _json_bytes(manifest))

        write_folder(self._unit_path(number), files, fill)
        self.refresh()

    def refresh(self) -> None:
        """Make the two .jsonl files anew from the committed episodes; clear old checkpoints and interrupted writes."""
        for leftover in self.path.glob(f"{self._units}/.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for leftover in self.path.glob(".*.json*.*"):
            leftover.unlink(missing_ok=True)
        for name, num_kept in {CHECKPOINT: CHECKPOINTS_KEPT, **self.config.parts_kept(self._num_ticks)}.items():
            for number in range(self.num_committed - num_kept):
                self._store.remove(self._unit_path(number) / name)
                (self._unit_path(number) / f"{name}.json").unlink(missing_ok=True)
        write_json_lines(self.path / "metrics.jsonl", self.rows("metrics"))
        write_json_lines(self.path / "ledger.jsonl", self.rows("ledger"))

    def rows(self, what: str) -> list[dict[str, Any]]:
        """The rows of "metrics" or "ledger" over all committed episodes."""
        rows: list[dict[str, Any]] = []
        for number in range(self.num_committed):
            rows += read_json(self._unit_path(number) / f"{what}.json")
        return rows

    def timing(self) -> list[dict[str, float]]:
        """Seconds spent on each committed episode."""
        return [read_json(self._unit_path(number) / "timing.json") for number in range(self.num_committed)]

    def trajectory(self, number: int) -> dict[str, np.ndarray]:
        """Arrays of one episode: states (seed, time, state) and so on."""
        path = self._unit_path(number) / "trajectory.npz"
        try:
            return bytes_to_arrays(path.read_bytes())
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
            raise StorageError(f"{path} cannot be read ({error}); restore it from a copy, or train anew") from error

    def restore(self, like: Any, *, to_go_on: bool = False) -> tuple[int, Any]:
        """The number of the newest episode whose checkpoint is sound, and the state after it, shaped as `like`.

        With `to_go_on`, episodes with a damaged checkpoint are set aside (renamed, not deleted), to be computed again.
        """
        return self.newest_sound(lambda number: unflatten(self.read_part(number, CHECKPOINT), like), to_go_on=to_go_on)

    def newest_sound(self, read: Callable[[int], T], *, to_go_on: bool = False) -> tuple[int, T]:
        """As `restore`, with whatever `read` makes of an episode, which raises `StorageError` where it is damaged."""
        newest = self.num_committed - 1
        if newest < 0:
            raise StorageError(
                f"{self.path} has no committed {self.config.unit}, so there is no data and no model yet. "
                f"Compute some first: actsafe resume {self.path}"
            )
        problems = []
        for number in range(newest, max(newest - CHECKPOINTS_KEPT, -1), -1):
            try:
                found = read(number)
            except StorageError as error:
                problems.append(str(error))
                continue
            for damaged in range(number + 1, newest + 1 if to_go_on else 0):
                self._set_aside(damaged)
            return number, found
        raise StorageError(
            f"{self.path} has no sound checkpoint left: {'; '.join(problems)}. Its metrics, ledger and trajectories "
            "are untouched and can still be plotted; to go on, restore the folder from a copy, or train anew elsewhere"
        )

    def read_part(self, number: int, name: str) -> dict[str, np.ndarray]:
        """The arrays that were committed with an episode under this name; `StorageError` where they are damaged."""
        path = self._unit_path(number) / name
        manifest = read_json(path.with_name(f"{name}.json"))
        if not isinstance(manifest, dict):
            raise StorageError(f"{path}.json is damaged")
        arrays = self._store.read(path, manifest.get("sha256"))
        if manifest.get("config") != self.config.digest:
            raise StorageError(f"{path} belongs to other settings than {self.path / 'config.json'}")
        return arrays

    @property
    def _num_ticks(self) -> int:
        """Rows of an environment in an epoch."""
        return self.config.schedule.episodes_per_epoch * (self.spec.num_decisions + 1)

    @property
    def _units(self) -> str:
        return f"{self.config.unit}s"

    def _unit_path(self, number: int) -> Path:
        return self.path / self._units / f"{number:04d}"

    def _set_aside(self, number: int) -> None:
        folder = self._unit_path(number)
        names = (f"damaged-{folder.name}-{n}" for n in itertools.count(1))
        folder.rename(next(target for name in names if not (target := folder.with_name(name)).exists()))


def _is_blank(path: Path) -> bool:
    """Whether a folder is empty but for what a start that was cut off may have left."""
    return all(entry.name.startswith(".config.json.") for entry in path.iterdir())


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(finite(value), indent=1) + "\n").encode()

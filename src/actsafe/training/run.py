"""A run folder: config, one committed folder per epoch, and the readable files made from them.

    config.json            every setting, the environments' description, schema version
    provenance.json        which command on which machine computed which epochs
    metrics.jsonl          a line per epoch and seed
    ledger.jsonl           the safety ledger: a line per epoch, seed and constraint
    epochs/0003/           what one epoch left, with checksums (see epochs.py)

An epoch counts once its folder has its final name. The two .jsonl files are made from the epochs' folders, so that they
can have neither a gap nor a repeat, whenever the program was stopped. A damaged newest epoch is set aside and computed
again when the run goes on.

The name in `config.env` may be that of a module, which is imported when a run goes on or is evaluated: do so only with
run folders from people whose code you would run.
"""

import contextlib
import functools
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import actsafe
from actsafe.data.rows import RowLayout, Rows
from actsafe.envs.spec import EnvSpec
from actsafe.evidence.ledger import LedgerRow
from actsafe.training.config import ROWS, Config
from actsafe.training.epochs import SCHEMA_VERSION, EpochFolder, UnitRecord, is_rows
from actsafe.training.locking import locked
from actsafe.training.settings import ConfigError, digest
from actsafe.training.storage import (
    StorageError,
    clear_interrupted,
    json_text,
    read_json,
    write_first,
    write_json,
    write_json_lines,
)

CONFIG, SWEEP = "config.json", "sweep.json"
"""What says that a folder is a run, or has a run for each of several seeds."""
UNITS = "epochs"
CHECKPOINT, CHECKPOINTS_KEPT = "checkpoint", 2
T = TypeVar("T")


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path, config: Config, spec: EnvSpec) -> None:
        self.path = path
        self.config = config
        self.spec = spec
        """Of the environments, so that nobody has to make them to know it. It has no problem."""
        self._is_held: Callable[[], bool] | None = None
        """Where this process works on the run, whether it still has it to itself."""

    @classmethod
    def create(cls, path: Path, config: Config, spec: EnvSpec) -> "RunFolder":
        """A new folder; an existing one is never touched, and of several that make it at once one succeeds."""
        folder, is_ours = cls(path, config, spec), not path.exists()
        require_free(path)
        try:
            folder._units.mkdir(parents=True, exist_ok=True)
            content = {"schema": SCHEMA_VERSION, **folder._content}
            write_first(path / CONFIG, json_text(content).encode())
        except FileExistsError as error:
            raise _taken(path) from error
        except BaseException as error:
            with contextlib.suppress(OSError):
                folder._units.rmdir()
                if is_ours:
                    path.rmdir()
            if isinstance(error, OSError):
                raise StorageError(f"{path} cannot be made ({error.strerror}); choose another folder") from error
            raise
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The folder of an earlier run."""
        require_run(path)
        content = read_json(path / CONFIG)
        schema = content.get("schema") if isinstance(content, dict) else None
        if type(schema) is not int or "config" not in content:
            raise StorageError(
                f"{path / 'config.json'} was not written by actsafe: it lacks a schema number or a config"
            )
        if schema < SCHEMA_VERSION:
            raise StorageError(
                f"{path} was made by actsafe 0.1 (schema {schema}), and this is {actsafe.__version__}, which reads "
                f"schema {SCHEMA_VERSION} only. It is left as it is: go on with it in an environment that has actsafe "
                "0.1, or train anew in another folder with `actsafe train`"
            )
        if schema > SCHEMA_VERSION:
            raise StorageError(
                f"{path} has schema {schema}, and this actsafe reads {SCHEMA_VERSION}. The run is left as it is; "
                "install a newer actsafe to work with it"
            )
        try:
            return cls(path, Config.from_json(content["config"]), EnvSpec.from_json(content["spec"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{path / 'config.json'} cannot be used: {error}") from error

    def require_same(self, config: Config) -> None:
        """Raise `ConfigError` unless the run has these settings."""
        if self.config != config:
            wanted, there = config.to_json(), self.config.to_json()
            different = ", ".join(name for name in wanted if wanted[name] != there.get(name))
            raise ConfigError(
                f"{self.path} holds a run with other settings ({different} differ) and is left as it is. Choose "
                "another folder, or ask for the same settings again"
            )

    @property
    def num_committed(self) -> int:
        """Epochs that are committed, what comes before the first (number 0) included."""
        return next(number for number in itertools.count() if not self._unit(number).path.exists())

    @property
    def num_done(self) -> int:
        """The same without what comes before the first."""
        return max(self.num_committed - 1, 0)

    @property
    def progress(self) -> str:
        """How many epochs are done, for people."""
        return f"{self.num_done} of {self.config.num_units} epochs"

    @property
    def is_finished(self) -> bool:
        """Whether every epoch of the schedule is committed."""
        return self.num_committed > self.config.num_units

    @property
    def is_newest_whole(self) -> bool:
        """Whether all files of the newest epoch are as they were written: one that is not is computed again."""
        try:
            self._unit(self.num_committed - 1).require_whole(with_parts=True)
        except StorageError:
            return False
        return True

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """A context in which no other process works on this run."""
        with locked(self.path / CONFIG) as self._is_held:
            yield
        self._is_held = None

    def sessions(self) -> list[dict[str, Any]]:
        """Which command on which machine worked on the run, from which epoch on; in the order of time."""
        path = self.path / "provenance.json"
        sessions = read_json(path) if path.is_file() else []
        if not is_rows(sessions) or not all(isinstance(each.get("machine"), dict) for each in sessions):
            raise StorageError(f"{path} is damaged (it is no list of sessions); restore it from a copy, or delete it")
        return sessions

    def add_session(self, session: dict[str, Any]) -> None:
        """Record that a process takes the run up; one that only repeats the last entry is not recorded again."""
        sessions = self.sessions()
        if not sessions or sessions[-1] != session:
            write_json(self.path / "provenance.json", [*sessions, session])

    def commit(self, number: int, unit: UnitRecord, state: Any, **parts: Any) -> None:
        """Add an epoch and the train state after it, in one step; then bring the readable files up to date.

        `parts` are further pytrees, to be had back with `read_part` for as long as the config's `parts_kept` says.
        """
        if self._is_held is not None and not self._is_held():
            raise StorageError(
                f"{self.path} was moved, deleted or replaced while this process worked on it; epoch {number} was not "
                "kept; go on where the run is now: actsafe resume FOLDER"
            )
        self._unit(number).write(unit, {CHECKPOINT: state, **parts})
        self.refresh()

    def refresh(self) -> None:
        """Make the two .jsonl files anew from the committed epochs; clear old checkpoints and interrupted writes."""
        self._require_own()
        clear_interrupted(self.path)
        clear_interrupted(self._units)
        for name, num_kept in {CHECKPOINT: CHECKPOINTS_KEPT, **self.config.parts_kept(self._num_ticks)}.items():
            for number in range(self.num_committed - num_kept):
                shutil.rmtree(self._unit(number).path / name, ignore_errors=True)
        write_json_lines(self.path / "metrics.jsonl", self.rows("metrics"))
        write_json_lines(self.path / "ledger.jsonl", self.rows("ledger"))

    def rows(self, what: str) -> list[dict[str, Any]]:
        """The rows of "metrics" or "ledger" over all committed epochs."""
        return [row for number in range(self.num_committed) for row in self._unit(number).rows(what)]

    def ledger(self) -> list[LedgerRow]:
        """The safety ledger of all committed epochs: a row per epoch, seed and constraint."""
        return [LedgerRow.from_json(row) for row in self.rows("ledger")]

    def timing(self) -> list[dict[str, float]]:
        """Seconds spent on each committed epoch."""
        return [self._unit(number).timing() for number in range(self.num_committed)]

    def trajectory(self, number: int) -> dict[str, np.ndarray]:
        """Arrays of one epoch (seed, environment, time, ...): rows, what was said of decisions, evaluations."""
        return self._unit(number).trajectory()

    def restore(self, like: Any, *, to_go_on: bool = False) -> tuple[int, Any]:
        """The number of the newest epoch whose files are sound, and the train state after it, shaped as `like`.

        With `to_go_on`, newer epochs are set aside (renamed, not deleted), to be computed again.
        """
        return self.newest_sound(lambda number: self.read_part(number, CHECKPOINT, like), to_go_on=to_go_on)

    def newest_sound(self, read: Callable[[int], T], *, to_go_on: bool = False) -> tuple[int, T]:
        """As `restore`, with whatever `read` makes of an epoch, which raises `StorageError` where it is damaged."""
        if to_go_on:
            self._require_own()
        newest = self.num_committed - 1
        if newest < 0:
            raise StorageError(
                f"{self.path} has no committed epoch, so there is no data and no model yet. Compute some first: "
                f"actsafe resume {self.path}"
            )
        problems = []
        for number in range(newest, max(newest - CHECKPOINTS_KEPT, -1), -1):
            try:
                self._unit(number).require_whole()
                found = read(number)
            except StorageError as error:
                problems.append(str(error).partition("; restore")[0])
                continue
            for folder in self._units.glob("[0-9]*") if to_go_on else ():
                if folder.name.isdecimal() and int(folder.name) > number:
                    _set_aside(folder)
            return number, found
        raise StorageError(
            f"{self.path} has no sound checkpoint left: {'; '.join(problems)}. Its metrics, ledger and trajectories "
            "are untouched and can still be plotted; to go on, restore the folder from a copy, or train anew elsewhere"
        )

    def read_part(self, number: int, name: str, like: Any) -> Any:
        """The pytree that was committed with an epoch under this name, shaped as `like`, or `StorageError`."""
        return self._unit(number).read_part(name, like)

    def read_rows(self, number: int) -> Rows:
        """What an epoch added to the buffer (environment, time), the environments of a seed after each other."""
        spec, config = self.spec, self.config
        layout = RowLayout(
            len(config.seeds) * config.num_envs,
            min(self._num_ticks, config.rows_per_env),
            spec.observation_shape,
            np.uint8 if len(spec.observation_shape) == 3 else np.float32,
            spec.action_dim,
            len(spec.cost_names),
        )
        return Rows(*map(np.asarray, self.read_part(number, ROWS, layout.zeros(np))))

    @functools.cached_property
    def _content(self) -> dict[str, Any]:
        """What config.json says, on which every epoch rests."""
        return json.loads(json_text({"config": self.config.to_json(), "spec": self.spec.to_json()}))

    @functools.cached_property
    def _digest(self) -> str:
        return digest(self._content)

    @property
    def _num_ticks(self) -> int:
        """Rows of an environment in an epoch."""
        return self.config.schedule.episodes_per_epoch * (self.spec.num_decisions + 1)

    @property
    def _units(self) -> Path:
        return self.path / UNITS

    def _unit(self, number: int) -> EpochFolder:
        budgets = dict(zip(self.spec.cost_names, self.spec.budgets, strict=True))
        return EpochFolder(self._units / f"{number:04d}", self._digest, budgets)

    def _require_own(self) -> None:
        """Raise unless the epochs are in the run folder itself: what a link leads to is not ours to delete."""
        linked = [path for path in (self._units, *self._units.glob("[0-9]*")) if path.is_symlink()]
        if linked:
            raise StorageError(
                f"{linked[0]} is a link, and actsafe works only on folders of its own. Nothing was changed; put the "
                "folder itself in its place, or link the whole run folder"
            )


def require_run(path: Path) -> None:
    """Raise `StorageError` unless the folder is a run."""
    if not (path / CONFIG).is_file():
        found = f"it has no {CONFIG}" if path.exists() else "there is nothing of that name"
        raise StorageError(
            f"{path} is not a run folder: {found}. Name one that `actsafe train` made, or start one there"
        )


def require_free(path: Path) -> None:
    """Raise `StorageError` where there is something already."""
    if path.exists() and not (path.is_dir() and _is_blank(path)):
        raise _taken(path)


def _is_blank(path: Path) -> bool:
    """Whether a folder is empty but for what a start that was cut off may have left."""
    clear_interrupted(path, of=CONFIG, age=60.0)
    units = path / UNITS
    others = [entry for entry in path.iterdir() if not entry.name.startswith(f".{CONFIG}.")]
    return others in ([], [units]) and not (units.exists() and any(units.iterdir()))


def _taken(path: Path) -> StorageError:
    is_begun = any((path / name).is_file() for name in (CONFIG, SWEEP))
    go_on = f", or go on with it: actsafe resume {path}" if is_begun else ""
    return StorageError(f"{path} exists already and is left as it is. Choose another folder{go_on}")


def _set_aside(folder: Path) -> None:
    names = (f"damaged-{folder.name}-{n}" for n in itertools.count(1))
    folder.rename(next(target for name in names if not (target := folder.with_name(name)).exists()))

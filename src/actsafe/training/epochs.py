"""The folder of a committed epoch, written in one step.

    epochs/0003/           metrics, ledger, trajectory, timing, checkpoint, rows, and
        manifest.json      the SHA-256 of each of these files, and a hash of what config.json says

Every file is compared with the manifest when it is read.
"""

import dataclasses
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np

from actsafe.evidence.ledger import LedgerRow
from actsafe.training.storage import (
    StorageError,
    arrays_to_bytes,
    bytes_to_arrays,
    file_sha256,
    json_text,
    read_json,
    write_folder,
    write_new,
)
from actsafe.training.stores import read_arrays, write_arrays

SCHEMA_VERSION = 2
"""Of run folders."""
MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class UnitRecord:
    """What one epoch leaves behind, all seeds."""

    metrics: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    trajectory: dict[str, np.ndarray]
    timing: dict[str, float]


@dataclasses.dataclass(frozen=True)
class EpochFolder:
    """The files of one epoch, of a run whose config.json has this digest and these budgets by constraint."""

    path: Path
    digest: str
    budgets: Mapping[str, float]

    def write(self, unit: UnitRecord, trees: Mapping[str, Any]) -> None:
        """Make the folder with the record and the pytrees, each of these in a folder of its own."""
        files = {"metrics.json": unit.metrics, "ledger.json": unit.ledger, "timing.json": unit.timing}

        def fill(folder: Path) -> None:
            for name, content in files.items():
                write_new(folder / name, json_text(content).encode())
            if unit.trajectory:
                write_new(folder / "trajectory.npz", arrays_to_bytes(unit.trajectory))
            with ThreadPoolExecutor(len(trees), "writing") as writers:
                list(writers.map(lambda name: write_arrays(folder / name, trees[name]), trees))
            written = sorted(file for file in folder.rglob("*") if file.is_file())
            hashes = {file.relative_to(folder).as_posix(): file_sha256(file) for file in written}
            manifest = {"schema": SCHEMA_VERSION, "config": self.digest, "sha256": hashes}
            write_new(folder / MANIFEST, json_text(manifest).encode())

        write_folder(self.path, fill)

    def rows(self, what: str) -> list[dict[str, Any]]:
        """The rows of "metrics" or "ledger"; those of the ledger have the budgets of the environments."""
        path, rows = self.path / f"{what}.json", self._json(f"{what}.json", list)
        if not is_rows(rows):
            raise _damaged(path, "it is no list of rows")
        for row in rows if what == "ledger" else ():
            try:
                LedgerRow.from_json(row)
            except (TypeError, ValueError) as error:
                raise _damaged(path, str(error)) from error
            if row["budget"] != (expected := self.budgets.get(row["constraint"])):
                raise _damaged(path, f"{row['constraint']} has the budget {row['budget']}, config.json has {expected}")
        return rows

    def timing(self) -> dict[str, float]:
        """Seconds spent on the epoch."""
        return self._json("timing.json", dict)

    def trajectory(self) -> dict[str, np.ndarray]:
        """The arrays that were recorded."""
        path = self.checked("trajectory.npz")
        try:
            return bytes_to_arrays(path.read_bytes())
        except (OSError, ValueError) as error:
            raise StorageError(f"{path} cannot be read ({error}); restore it from a copy, or train anew") from error

    def read_part(self, name: str, like: Any) -> Any:
        """The pytree that was written under this name, shaped as `like`."""
        files = [file for file in self._hashes() if file.startswith(f"{name}/")]
        if not files:
            raise StorageError(f"{self.path / MANIFEST} has no checksums of {name}")
        for file in files:
            self.checked(file)
        return read_arrays(self.path / name, like)

    def require_whole(self, *, with_parts: bool = False) -> None:
        """Raise `StorageError` unless metrics, ledger, timing and trajectory are as they were written, and with
        `with_parts` all other files too."""
        for what in ("metrics", "ledger"):
            self.rows(what)
        self.timing()
        for name in self._hashes():
            if with_parts or name == "trajectory.npz":
                self.checked(name)

    def checked(self, name: str) -> Path:
        """The path of a file, which is below the folder and as it was written, or `StorageError`."""
        path, expected, parts = self.path / name, self._hashes().get(name), PureWindowsPath(name)
        if parts.anchor or ".." in parts.parts:
            raise _damaged(self.path / MANIFEST, f"{name} is not below the folder")
        try:
            is_own = path.resolve() == self.path.resolve() / name and stat.S_ISREG(path.lstat().st_mode)
            found = file_sha256(path) if is_own else None
        except OSError as error:
            raise _damaged(path, f"cannot be read: {error.strerror}") from error
        if found is None:
            raise _damaged(path, "it is no regular file of the epoch's folder")
        if found != expected:
            raise _damaged(path, "truncated or altered: its checksum does not match")
        return path

    def _json(self, name: str, kind: type) -> Any:
        """The content of a file, which is of this kind."""
        path = self.checked(name)
        content = read_json(path)
        if not isinstance(content, kind):
            raise _damaged(path, f"expected a {kind.__name__}")
        return content

    def _hashes(self) -> Mapping[str, str]:
        """The SHA-256 of every file, by its name within the folder."""
        path = self.path / MANIFEST
        manifest = read_json(path)
        hashes = manifest.get("sha256") if isinstance(manifest, dict) else None
        if not isinstance(hashes, dict):
            raise _damaged(path, "it has no checksums")
        if manifest.get("config") != self.digest:
            raise StorageError(f"{self.path} belongs to other settings than {self.path.parents[1] / 'config.json'}")
        return hashes


def is_rows(value: Any) -> bool:
    """Whether a value read from JSON is a list of objects."""
    return isinstance(value, list) and all(isinstance(row, dict) for row in value)


def _damaged(path: Path, reason: str) -> StorageError:
    return StorageError(
        f"{path} is damaged ({reason}); restore it from a copy. If it is of the newest epoch, `actsafe resume` "
        "computes that again"
    )

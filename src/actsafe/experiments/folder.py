"""A run folder: config, one committed folder per episode, and the readable files made from them.

    config.json            every setting, schema version
    provenance.json        which command on which machine computed which episodes
    metrics.jsonl          a line per episode and seed
    ledger.jsonl           the safety ledger: a line per episode and seed
    episodes/0003/         written in one step: metrics, ledger, trajectory, timing, checkpoint

An episode counts once its folder has its final name. The two .jsonl files are made from the episode folders, so they
can have neither a gap nor a repeat, whenever the program was stopped.
"""

import contextlib
import dataclasses
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from actsafe.experiments.config import SCHEMA_VERSION, Config, ConfigError
from actsafe.experiments.storage import (
    StorageError,
    arrays_to_bytes,
    bytes_to_arrays,
    finite,
    locked,
    read_json,
    sha256,
    write_folder,
    write_json,
    write_json_lines,
)

CHECKPOINTS_KEPT = 2


@dataclasses.dataclass(frozen=True)
class Episode:
    """What one episode leaves behind, all seeds."""

    metrics: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    trajectory: dict[str, np.ndarray]
    timing: dict[str, float]


class RunFolder:
    """The files of one run."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self.config = config

    @classmethod
    def create(cls, path: Path, config: Config) -> "RunFolder":
        """A new folder; an existing one is never touched."""
        if path.exists() and (not path.is_dir() or not _is_blank(path)):
            go_on = f", or go on with it: actsafe resume {path}" if (path / "config.json").is_file() else ""
            raise StorageError(f"{path} exists already and is left as it is. Choose another folder{go_on}")
        write_json(path / "config.json", {"schema": SCHEMA_VERSION, "config": config.to_json()})
        return cls(path, config)

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
        if schema > SCHEMA_VERSION:
            raise StorageError(
                f"{path} has schema {schema}, and this actsafe reads up to {SCHEMA_VERSION}. The run is left as it is; "
                "install a newer actsafe to work with it"
            )
        try:
            return cls(path, Config.from_json(content["config"]))
        except ConfigError as error:
            raise StorageError(f"{path / 'config.json'} cannot be used: {error}") from error

    @property
    def num_committed(self) -> int:
        """Episodes that are committed, the seed (episode 0) included."""
        count = 0
        while (self._episode_path(count) / "metrics.json").is_file():
            count += 1
        return count

    @property
    def is_finished(self) -> bool:
        """Whether every episode of the schedule is committed."""
        return self.num_committed > self.config.schedule.num_episodes

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

    def commit(self, number: int, episode: Episode, state: Any) -> None:
        """Add an episode and the agent's state after it, in one step; then bring the readable files up to date."""
        arrays = arrays_to_bytes(_flatten(state))
        manifest = {"schema": SCHEMA_VERSION, "config": self.config.digest, "sha256": sha256(arrays)}
        files = {
            "metrics.json": _json_bytes(episode.metrics),
            "ledger.json": _json_bytes(episode.ledger),
            "timing.json": _json_bytes(episode.timing),
            "trajectory.npz": arrays_to_bytes(episode.trajectory),
            "checkpoint.npz": arrays,
            "checkpoint.json": _json_bytes(manifest),
        }
        write_folder(self._episode_path(number), files)
        self.refresh()

    def refresh(self) -> None:
        """Make the two .jsonl files anew from the committed episodes; clear old checkpoints and interrupted writes."""
        for leftover in self.path.glob("episodes/.*"):
            shutil.rmtree(leftover, ignore_errors=True)
        for leftover in self.path.glob(".*.json*.*"):
            leftover.unlink(missing_ok=True)
        for number in range(self.num_committed - CHECKPOINTS_KEPT):
            for name in ("checkpoint.npz", "checkpoint.json"):
                (self._episode_path(number) / name).unlink(missing_ok=True)
        write_json_lines(self.path / "metrics.jsonl", self.rows("metrics"))
        write_json_lines(self.path / "ledger.jsonl", self.rows("ledger"))

    def rows(self, what: str) -> list[dict[str, Any]]:
        """The rows of "metrics" or "ledger" over all committed episodes."""
        rows: list[dict[str, Any]] = []
        for number in range(self.num_committed):
            rows += read_json(self._episode_path(number) / f"{what}.json")
        return rows

    def timing(self) -> list[dict[str, float]]:
        """Seconds spent on each committed episode."""
        return [read_json(self._episode_path(number) / "timing.json") for number in range(self.num_committed)]

    def trajectory(self, number: int) -> dict[str, np.ndarray]:
        """Arrays of one episode: states (seed, time, state) and so on."""
        path = self._episode_path(number) / "trajectory.npz"
        try:
            return bytes_to_arrays(path.read_bytes())
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise StorageError(f"{path} cannot be read ({error})") from error

    def restore(self, like: Any, *, to_go_on: bool = False) -> tuple[int, Any]:
        """The number of the newest episode whose checkpoint is sound, and the state after it, shaped as `like`.

        With `to_go_on`, episodes with a damaged checkpoint are set aside (renamed, not deleted), to be computed again.
        """
        newest = self.num_committed - 1
        if newest < 0:
            raise StorageError(
                f"{self.path} has no committed episode, so there is no data and no model yet. "
                f"Compute some first: actsafe resume {self.path}"
            )
        problems = []
        for number in range(newest, max(newest - CHECKPOINTS_KEPT, -1), -1):
            try:
                state = self._read_checkpoint(number, like)
            except StorageError as error:
                problems.append(str(error))
                continue
            for damaged in range(number + 1, newest + 1 if to_go_on else 0):
                self._set_aside(damaged)
            return number, state
        raise StorageError(
            f"{self.path} has no sound checkpoint left: {'; '.join(problems)}. Its metrics, ledger and trajectories "
            "are untouched and can still be plotted; to go on, restore the folder from a copy, or train anew elsewhere"
        )

    def _read_checkpoint(self, number: int, like: Any) -> Any:
        folder = self._episode_path(number)
        try:
            manifest, content = read_json(folder / "checkpoint.json"), (folder / "checkpoint.npz").read_bytes()
        except OSError as error:
            raise StorageError(f"{folder / 'checkpoint.npz'} cannot be read ({error.strerror})") from error
        if not isinstance(manifest, dict):
            raise StorageError(f"{folder / 'checkpoint.json'} is damaged")
        if manifest.get("sha256") != sha256(content):
            raise StorageError(f"{folder / 'checkpoint.npz'} is truncated or altered: its checksum does not match")
        if manifest.get("config") != self.config.digest:
            raise StorageError(
                f"{folder / 'checkpoint.npz'} belongs to other settings than {self.path / 'config.json'}"
            )
        return _unflatten(bytes_to_arrays(content), like)

    def _episode_path(self, number: int) -> Path:
        return self.path / "episodes" / f"{number:04d}"

    def _set_aside(self, number: int) -> None:
        folder = self._episode_path(number)
        names = (f"damaged-{folder.name}-{n}" for n in itertools.count(1))
        folder.rename(next(target for name in names if not (target := folder.with_name(name)).exists()))


def _is_blank(path: Path) -> bool:
    """Whether a folder is empty but for what a start that was cut off may have left."""
    return all(entry.name.startswith(".config.json.") for entry in path.iterdir())


def _json_bytes(value: Any) -> bytes:
    return (json.dumps(finite(value), indent=1) + "\n").encode()


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _flatten(tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path): np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for path, leaf in leaves
    }


def _unflatten(arrays: dict[str, np.ndarray], like: Any) -> Any:
    def pick(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path)
        expected = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        got = arrays.get(name)
        if got is None or got.shape != expected.shape or got.dtype != expected.dtype:
            found = "nothing" if got is None else f"{got.dtype}{got.shape}"
            raise StorageError(f"the checkpoint has {found} for {name}, expected {expected.dtype}{expected.shape}")
        return jax.random.wrap_key_data(jnp.asarray(got)) if _is_key(leaf) else jnp.asarray(got)

    return jax.tree_util.tree_map_with_path(pick, like)

"""The shell around the loop: epochs one after the other, each committed and reported."""

import contextlib
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

import actsafe
from actsafe.data.rows import Rows
from actsafe.training import provenance
from actsafe.training.config import ROWS, Config
from actsafe.training.errors import ProblemError, UserError
from actsafe.training.loop import Loop, TrainState, make_loop
from actsafe.training.recording import ledger_of, metrics_rows
from actsafe.training.run import CHECKPOINT, CHECKPOINTS_KEPT, CONFIG, RunFolder, UnitRecord, require_free
from actsafe.training.storage import require_room, size_text


class Trainer:
    """Carries a run from where its folder stands to its end.

    What is committed with an epoch is the train state after it and the rows that it added to the buffer. So every epoch
    costs the same to commit however full the buffer is, and a run that was stopped goes on from its last epoch; on a
    CPU with as many cores it is, bit for bit, the run that was not stopped.
    """

    def __init__(
        self,
        folder: RunFolder,
        *,
        on_epoch: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
        loop: Loop | None = None,
    ) -> None:
        self.folder = folder
        self.config: Config = folder.config
        self.on_epoch = on_epoch
        self.loop = make_loop(self.config) if loop is None else loop
        self.agent = self.loop.agent

    @property
    def notice(self) -> str:
        """What is said before the run starts; empty for small runs."""
        disk = f"checkpoints need up to {size_text(self.disk_bytes)} on the disk" if self.disk_bytes > 2**26 else ""
        cores = "" if self.folder.is_finished else provenance.changed_cores(self.folder.sessions())
        return "\n".join(filter(None, (disk, cores)))

    def num_steps_from(self, epoch: int) -> int:
        """Simulator steps left from this epoch on, evaluations included, of one seed: what a progress bar counts."""
        config, loop = self.config, self.loop
        evaluated = len(self.agent.tasks) * loop.ticks_of(config.evaluation_episodes)
        left = range(max(epoch, 1), config.num_units + 1)
        return sum(loop.num_ticks + evaluated * config.is_evaluated(n) for n in left) * loop.steps_per_tick

    def run(self, command: str | None = None) -> None:
        """Do all epochs that are not committed yet; `command` is what the record says was typed."""
        with self.folder.locked(), contextlib.closing(self.loop.envs), self.agent.precision():
            command = provenance.command_line() if command is None else command
            if not self.folder.is_finished:
                self.require_room()
                self.folder.add_session(provenance.session(command, self.folder.num_committed))
            if self.folder.num_committed == 0:
                self._seed()
            number, (state, buffer) = self.folder.newest_sound(self._read, to_go_on=True)
            self.folder.refresh()
            for epoch in range(number + 1, self.config.num_units + 1):
                state, buffer = self._epoch(epoch, state, buffer)

    def require_room(self) -> None:
        """Raise `StorageError` where the disk is too small for the checkpoints."""
        require_room(self.folder.path, self.disk_bytes, of="this run", advice="or set a smaller agent.replay_capacity")

    def newest(self) -> tuple[int, TrainState]:
        """The newest epoch with a sound checkpoint, and the train state after it; the folder is not changed."""
        with self.agent.precision():
            return self.folder.restore(self._shapes)

    @property
    def disk_bytes(self) -> int:
        """What checkpoints take at most: the agent a few times, and the rows of the epochs that fill the buffer."""
        arrays = (leaf for leaf in jax.tree.leaves(self._shapes) if isinstance(leaf, jax.ShapeDtypeStruct))
        agent = sum(_nbytes(leaf) for leaf in arrays)
        kept = self.config.parts_kept(self.loop.num_ticks).get(ROWS, 0)
        rows = min(kept, self.config.num_units) * self.loop.num_ticks
        layout = self.loop.layout._replace(capacity=max(1, rows))
        return (CHECKPOINTS_KEPT + 1) * agent + (layout.nbytes if kept else 0)

    def _seed(self) -> None:
        """Commit what comes before the first epoch: decisions of S_0 where the schedule has some, else nothing."""
        state, buffer = self.loop.begin(), None
        if self.config.schedule.seed_decisions:
            self._epoch(0, state, buffer)
        else:
            self.folder.commit(0, UnitRecord([], [], {}, {"seconds": 0.0}), state)

    def _epoch(self, number: int, state: TrainState, buffer: Any) -> tuple[TrainState, Any]:
        epoch = self.loop.epoch(number, state, buffer)
        seconds = epoch.seconds["train_seconds"]
        timing = {
            **epoch.seconds,
            "steps_per_second": epoch.num_steps / seconds,
            "updates_per_second": epoch.num_updates / seconds,
            "process_seconds": time.perf_counter() - actsafe.STARTED,
        }
        metrics = metrics_rows(epoch, self.agent, self.config.seeds)
        ledger = [row.to_json() for row in ledger_of(epoch, self.agent, self.config.seeds)]
        parts = {ROWS: _latest(epoch.buffer, self.loop.num_ticks)} if number and epoch.buffer is not None else {}
        self.folder.commit(number, UnitRecord(metrics, ledger, epoch.trajectory, timing), epoch.train_state, **parts)
        self.on_epoch([{**row, "timing": timing} for row in metrics])
        return epoch.train_state, epoch.buffer

    @functools.cached_property
    def _shapes(self) -> TrainState:
        """Of the train state."""
        with self.agent.precision():
            return eqx.filter_eval_shape(self.loop.begin)

    def _read(self, number: int) -> tuple[TrainState, Any]:
        """The train state after an epoch and the buffer, from the disk."""
        state = self.folder.read_part(number, CHECKPOINT, self._shapes)
        buffer = self.loop.make_buffer()
        if buffer is None:
            return state, None
        first = max(1, number - -(-self.config.rows_per_env // self.loop.num_ticks) + 1)
        for epoch in range(first, number + 1):
            buffer = buffer.append(self.folder.read_rows(epoch))
        return state, buffer


def _nbytes(leaf: jax.ShapeDtypeStruct) -> int:
    is_key = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return leaf.size * (8 if is_key else leaf.dtype.itemsize)


def _latest(buffer: Any, num_ticks: int) -> Rows:
    """The last ticks (environment, time) that a buffer was given, or all that it holds."""
    count = min(num_ticks, buffer.capacity)
    ticks = (int(buffer.position) - count + np.arange(count)) % buffer.capacity
    return jax.tree.map(lambda store: np.asarray(store[:, ticks]), buffer.rows)


def start(path: Path, config: Config, *, is_trial: bool = False, **callbacks: Any) -> Trainer:
    """The trainer of a new run in `path`: the environments take a step, memory and disk are enough.

    The folder is made last, so that a run that is refused leaves none. One that `is_trial` is not made at all.
    """
    loop = make_loop(config)
    try:
        trainer = Trainer(RunFolder(path, config, loop.envs.spec), loop=loop, **callbacks)
        require_free(path)
        require_sound(loop)
        trainer.require_room()
        if not is_trial:
            RunFolder.create(path, config, loop.envs.spec)
    except BaseException:
        loop.envs.close()
        raise
    return trainer


def require_sound(loop: Loop) -> None:
    """Raise `ProblemError` unless the environments take a step, and MemoryError unless there is room for the buffer."""
    envs = loop.envs
    with loop.agent.precision():
        try:
            envs.reset(0)
            envs.step(np.zeros((envs.num_envs, envs.spec.action_dim)))
        except ValueError as error:
            raise error if isinstance(error, UserError) else ProblemError(str(error)) from error
        loop.make_buffer()


def train(path: Path, config: Config, *, command: str | None = None, **callbacks: Any) -> RunFolder:
    """A run in `path`, from where it stands to its end: a new one, or one of the same settings that was stopped."""
    if not (path / CONFIG).is_file():
        trainer = start(path, config, **callbacks)
    else:
        folder = RunFolder.open(path)
        folder.require_same(config)
        trainer = Trainer(folder, **callbacks)
    trainer.run(command)
    return trainer.folder


def resume(path: Path, *, command: str | None = None, **callbacks: Any) -> RunFolder:
    """An earlier run, carried on to its end exactly as if it had never stopped."""
    folder = RunFolder.open(path)
    Trainer(folder, **callbacks).run(command)
    return folder

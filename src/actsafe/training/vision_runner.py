"""The shell around the vision agent: epochs one after the other, each committed and reported."""

import contextlib
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import actsafe
from actsafe.agents.handover import may_take_over
from actsafe.agents.phases import Phase
from actsafe.data.replay import make_replay
from actsafe.data.rows import RowLayout, Rows
from actsafe.training import provenance
from actsafe.training.epochs import AnyReplay, Epoch, Loop, Standing
from actsafe.training.recording import Outcome, constraint_columns, ledger_rows, means
from actsafe.training.run import CHECKPOINT, CHECKPOINTS_KEPT, Episode, RunFolder
from actsafe.training.storage import require_room, size_text
from actsafe.training.stores import unflatten
from actsafe.training.vision_config import ROWS, VisionConfig


class VisionTrainer:
    """Carries a run from where its folder stands to its end.

    What is committed with an epoch is the agent after it and the rows that it added. So every epoch costs the same to
    commit however full the replay is, and a run that was stopped goes on from its last epoch; on the CPU it is, bit
    for bit, the run that was not stopped.
    """

    progress_unit = "steps"
    """What `on_decisions` counts: simulator steps of all environments."""
    progress_scale = 1

    def __init__(
        self,
        folder: RunFolder,
        *,
        on_decisions: Callable[[int], None] = lambda n: None,
        on_episode: Callable[[list[dict[str, Any]]], None] = lambda rows: None,
    ) -> None:
        self.folder = folder
        self.config: VisionConfig = folder.config
        self.on_decisions, self.on_episode = on_decisions, on_episode
        self.fleet = self.config.make_envs()
        self.agent = self.config.make_agent(self.fleet)
        self.loop = Loop(self.config, self.fleet, self.agent)
        self.loop.on_steps = self._count

    @property
    def notice(self) -> str:
        """What is said before the run starts."""
        return f"checkpoints need up to {size_text(self.disk_bytes)} on the disk"

    def _count(self, num_steps: int) -> None:
        self.on_decisions(num_steps)

    def describe(self, rows: list[dict[str, Any]]) -> str:
        """What an epoch came to, in a few words; its metrics, in one row."""
        (row,) = rows
        parts = [row["phase"].replace("_", "-")]
        if row["episodes"]:
            parts.append(f"return {row['return']:.3g}")
            parts += [f"{name} {value:.3g}" for name, value in row["costs"].items()]
        if "timing" in row:
            parts.append(f"{row['timing']['updates_per_second']:.3g} updates/s")
        return "  ".join(parts)

    def num_decisions_from(self, epoch: int) -> int:
        """Simulator steps left from this epoch on, evaluations included: what a progress bar counts."""
        config, loop = self.config, self.loop
        evaluated = loop.ticks_of(config.evaluation_episodes)
        left = range(max(epoch, 1), config.num_units + 1)
        return sum(loop.num_ticks + evaluated * config.is_evaluated(n) for n in left) * loop.steps_per_tick

    def run(self, command: str | None = None) -> None:
        """Do all epochs that are not committed yet; `command` is what the record says was typed."""
        with self.folder.locked(), contextlib.closing(self.fleet):
            command = provenance.command_line() if command is None else command
            if not self.folder.is_finished:
                self.require_disk()
                self.folder.add_session(provenance.session(command, self.folder.num_committed, self.config.unit))
            if self.folder.num_committed == 0:
                self.folder.commit(0, Episode([], [], {}, {"seconds": 0.0}), eqx.filter_jit(self._beginning)())
            number, (standing, replay) = self.folder.newest_sound(self._read, to_go_on=True)
            self.folder.refresh()
            for epoch in range(number + 1, self.config.num_units + 1):
                standing, replay = self._epoch(epoch, standing, replay)

    def newest(self) -> tuple[int, Standing]:
        """The newest epoch with a sound checkpoint, and where the run stood after it; the folder is not changed."""
        return self.folder.restore(self._shapes)

    @property
    def disk_bytes(self) -> int:
        """What checkpoints take at most: the agent a few times, and the rows of the epochs that fill the replay."""
        num_epochs = min(self.config.parts_kept[ROWS], self.config.num_units)
        arrays = (leaf for leaf in jax.tree.leaves(self._shapes) if isinstance(leaf, jax.ShapeDtypeStruct))
        agent = sum(leaf.size * leaf.dtype.itemsize for leaf in arrays)
        return (CHECKPOINTS_KEPT + 1) * agent + self._layout(num_epochs * self.loop.num_ticks).nbytes

    def require_disk(self) -> None:
        """Raise where the disk is too small for what is still to be written, before anything is computed."""
        require_room(self.folder.path, self.disk_bytes, of="this run", advice="or set a smaller replay_capacity")

    def _epoch(self, number: int, standing: Standing, replay: AnyReplay) -> tuple[Standing, AnyReplay]:
        started = time.perf_counter()
        epoch = self.loop.epoch(number, standing, replay, self._phase(number))
        evaluated = None
        if self.config.is_evaluated(number):
            evaluated = self.loop.evaluate(epoch.standing.agent, self.config.evaluation_episodes, epoch=number)
        seconds = time.perf_counter() - started
        timing = {
            "seconds": seconds,
            "train_seconds": epoch.seconds,
            "evaluate_seconds": seconds - epoch.seconds,
            "steps_per_second": epoch.num_steps / epoch.seconds,
            "updates_per_second": epoch.num_updates / epoch.seconds,
            "process_seconds": time.perf_counter() - actsafe.STARTED,
        }
        metrics = [self._metrics(number, epoch, evaluated)]
        record = Episode(metrics, self._ledger(number, epoch), {}, timing)
        self.folder.commit(number, record, epoch.standing, **{ROWS: _latest(epoch.replay, self.loop.num_ticks)})
        self.on_episode([{**metrics[0], "timing": timing}])
        return epoch.standing, epoch.replay

    def _phase(self, number: int) -> Phase:
        """The schedule's, but that the expansion goes on until the task's policy may take over."""
        phase = self.config.phase(number)
        if phase is not Phase.EXPLOITATION or not self.config.is_handover_checked:
            return phase
        before = self.folder.rows("metrics")[: number - 1]
        has_taken_over = any(row["phase"] == phase.value for row in before)
        learned = before[-1]["learning"] if before else {}
        return phase if has_taken_over or may_take_over(self.agent, learned) else Phase.EXPANSION

    def _metrics(self, number: int, epoch: Epoch, evaluated: Sequence[Outcome] | None) -> dict[str, Any]:
        names = self.fleet.spec.cost_names
        return {
            **self._heading(number, epoch),
            "steps": int(epoch.standing.num_steps),
            "updates": int(epoch.standing.num_updates),
            "skipped_updates": int(epoch.standing.agent.num_skipped),
            **means(epoch.outcomes, names),
            **(means(evaluated, names, "evaluation_") if evaluated is not None else {}),
            "learning": dict(epoch.learned),
        }

    def _ledger(self, number: int, epoch: Epoch) -> list[dict[str, Any]]:
        policy = self.agent.recipe.policy(epoch.phase)
        columns = constraint_columns(self.agent, self.fleet.spec.cost_names, policy, epoch.learned)
        return ledger_rows(self._heading(number, epoch), epoch.outcomes, columns)

    def _heading(self, number: int, epoch: Epoch) -> dict[str, Any]:
        return {"epoch": number, "seed": self.config.seed, "phase": epoch.phase.value}

    def _beginning(self) -> Standing:
        """Where a run stands that has not begun."""
        agent = self.agent.init(jax.random.fold_in(jax.random.key(self.config.seed), 0))
        return Standing(agent, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    @functools.cached_property
    def _shapes(self) -> Standing:
        """Of where a run stands."""
        return eqx.filter_eval_shape(self._beginning)

    def _read(self, number: int) -> tuple[Standing, AnyReplay]:
        """Where the run stood after an epoch, from the disk."""
        standing = unflatten(self.folder.read_part(number, CHECKPOINT), self._shapes)
        replay = make_replay(*self._layout(self.config.rows_per_env))
        first = max(1, number - -(-self.config.rows_per_env // self.loop.num_ticks) + 1)
        for epoch in range(first, number + 1):
            arrays = self.folder.read_part(epoch, ROWS)
            replay = replay.append(Rows(*(arrays[f".{name}"] for name in Rows._fields)))
        return standing, replay

    def _layout(self, rows_per_env: int) -> RowLayout:
        fleet = self.fleet
        shape = (
            fleet.spec.observation_shape,
            fleet.observation_dtype,
            fleet.spec.action_dim,
            len(fleet.spec.cost_names),
        )
        return RowLayout(fleet.num_envs, rows_per_env, *shape)


def _latest(replay: AnyReplay, num_ticks: int) -> Rows:
    """The last ticks (environment, time) that a replay was given, or all that it holds."""
    count = min(num_ticks, replay.capacity)
    ticks = (int(replay.position) - count + np.arange(count)) % replay.capacity
    return jax.tree.map(lambda store: np.asarray(store[:, ticks]), replay.rows)

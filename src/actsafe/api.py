"""The front door: train, look at a run, load its policy and act. The command line wraps the same functions."""

import base64
import contextlib
import dataclasses
import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from actsafe.agents.algorithms import Role
from actsafe.agents.base import ActMode, Agent, Decision
from actsafe.envs.spec import TimeStep
from actsafe.evidence import calibration, certificate
from actsafe.evidence import verify as verification
from actsafe.evidence.ledger import LedgerRow, Violations, violations
from actsafe.figures.drawing import figures_of_runs
from actsafe.report.findings import find
from actsafe.report.page import page
from actsafe.training import runner
from actsafe.training.collecting import Decider
from actsafe.training.config import Config
from actsafe.training.loop import EVALUATION, TrainState, first_state, make_loop, rollout_keys
from actsafe.training.recording import described, duration, evaluation
from actsafe.training.results import entries
from actsafe.training.run import RunFolder
from actsafe.training.settings import ConfigError, require_known
from actsafe.training.storage import write_text
from actsafe.training.sweep import open_runs

AnyPath = str | os.PathLike[str]


class Ledger(NamedTuple):
    """What was allowed, what was predicted, and what came."""

    rows: list[LedgerRow]
    """One per epoch, seed and constraint."""

    @property
    def violations(self) -> list[Violations]:
        """By constraint, the episodes over the budget of all that the agent answers for, with an exact interval."""
        return violations(self.rows)


class Run:
    """A run, finished or not, read from its folder; that of a sweep has a run for each seed."""

    def __init__(self, path: AnyPath) -> None:
        self.path = Path(path)
        self.folders: Sequence[RunFolder] = open_runs(self.path)

    @property
    def config(self) -> Config:
        """Its settings; of a sweep those of the first run."""
        return self.folders[0].config

    @property
    def is_finished(self) -> bool:
        """Whether every epoch of the schedule is done."""
        return all(folder.is_finished for folder in self.folders)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A row per epoch and seed, as in metrics.jsonl."""
        return [row for folder in self.folders for row in folder.rows("metrics")]

    @property
    def ledger(self) -> Ledger:
        """The safety ledger of every seed."""
        return Ledger([row for folder in self.folders for row in folder.ledger()])

    @property
    def results(self) -> list[dict[str, Any]]:
        """An entry per seed, as in the files of results/."""
        return [entry for folder in self.folders for entry in entries(folder)]

    def figures(self, *, seed: int | None = None) -> "Figures":
        """By name, what `actsafe plot` draws; trajectories are those of one seed, by default the first."""
        return Figures(figures_of_runs(self.folders, seed=seed))

    def report(self, path: AnyPath | None = None) -> Path:
        """The page that was written about the run, by default report.html in its folder."""
        target = self.path / "report.html" if path is None else Path(path)
        write_text(target, page([find(folder) for folder in self.folders]))
        return target

    def __repr__(self) -> str:
        config, seeds = self.config, [seed for folder in self.folders for seed in folder.config.seeds]
        progress = min(self.folders, key=lambda folder: folder.num_done).progress
        return f"Run({str(self.path)!r}: {config.algorithm} on {config.env}, seeds {seeds}, {progress})"


class Figures(dict[str, Figure]):
    """Matplotlib figures by name. A notebook shows all of them."""

    def _repr_html_(self) -> str:
        return "\n".join(f"<figure>{_png(each)}<figcaption>{name}</figcaption></figure>" for name, each in self.items())


def _png(figure: Figure) -> str:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=80)
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}">'


def train(
    config: Config, path: AnyPath, *, seed: int | None = None, seeds: Sequence[int] | None = None, progress: bool = True
) -> Run:
    """The run in `path`, carried to its end: a new one, or one of the same settings that goes on where it was stopped.

    `seed` or `seeds` replace those of the config. Several seeds are one program where that can be; use `actsafe train`
    for the others, which have a process each. With `progress` a line is printed after every epoch.
    """
    if seed is not None and seeds is not None:
        raise ConfigError(f"got seed={seed} and seeds={list(seeds)}; expected one of the two")
    if seed is not None or seeds is not None:
        config = dataclasses.replace(config, seeds=(seed,) if seeds is None else tuple(seeds))
    # What is not of its kind is said now, as the command line would.
    config = Config.from_json(config.to_json())
    if len(config.seeds) > 1 and not config.is_one_program:
        raise ConfigError(
            f"seeds: got {list(config.seeds)}, but several seeds of this agent in {config.env} do not share a program; "
            "train one after the other, each in a folder of its own, or side by side with `actsafe train --seeds`"
        )
    runner.train(Path(path), config, on_epoch=_told(config, progress))
    return Run(path)


def resume(path: AnyPath, *, progress: bool = True) -> Run:
    """An earlier run, or every run of a sweep, carried on to its end exactly as if it had never stopped."""
    for folder in open_runs(Path(path)):
        runner.resume(folder.path, on_epoch=_told(folder.config, progress))
    return Run(path)


def _told(config: Config, progress: bool) -> Callable[[list[dict[str, Any]]], None]:
    """What prints a line after every epoch, or nothing."""

    def on_epoch(rows: list[dict[str, Any]]) -> None:
        number = rows[0]["epoch"]
        left = duration((config.num_units - number) * rows[0]["timing"]["seconds"])
        print(f"epoch {number} of {config.num_units}  {described(rows, config)}  about {left} left", flush=True)

    return on_epoch if progress else lambda rows: None


class PolicyMemory(NamedTuple):
    """What a policy remembers."""

    inner: Any
    is_new: bool
    """The next observation is the first of an episode."""
    is_one: bool
    """There is one environment, without an axis."""


class TrainedPolicy:
    """What a run has learned to do for one task, to act with in a loop of one's own; `load` makes it.

        memory = policy.begin()
        decision, memory = policy.act(observation, memory)

    Observations and decisions are of one environment. After `begin(num_envs)` they have a leading axis environment.
    """

    def __init__(self, config: Config, agent: Agent, state: TrainState, epoch: int, task: str, is_greedy: bool) -> None:
        """`state` is of one seed, with the leading axis."""
        self.config, self.spec, self.task, self.is_greedy = config, agent.spec, task, is_greedy
        self.epoch, self.state = epoch, state
        self._agent = agent
        with agent.precision():
            self._policy = agent.learner(config.num_envs, 1).policy(state.agent, ActMode(Role.TASK, task, is_greedy))
        self._deciders: dict[int, Decider] = {}

    def _decider(self, num_envs: int) -> Decider:
        """The compiled decision function for `num_envs` environments, the same as the loop's."""
        if num_envs not in self._deciders:
            self._deciders[num_envs] = Decider(jnp.asarray, num_envs, 1, is_shared=not self.spec.is_compiled)
        return self._deciders[num_envs]

    @property
    def stream(self) -> int:
        """The random stream of this task's evaluations."""
        return EVALUATION + self._agent.tasks.index(self.task)

    def begin(self, num_envs: int | None = None, *, key: Any = None) -> PolicyMemory:
        """The memory before the first observation, with the random stream of all decisions that follow.

        `key` is a `jax.random.key`. By default it is that of `evaluate` for this task, so that the actions are those of
        `evaluate` where there are as many environments as in the run.
        """
        with self._agent.precision():
            keys = rollout_keys(self.state, self.epoch, self.stream) if key is None else jnp.asarray(key)[None]
            return PolicyMemory(self._decider(num_envs or 1).begin(self._policy, keys), True, num_envs is None)

    def act(
        self,
        observation: npt.ArrayLike,
        memory: PolicyMemory,
        *,
        reward: npt.ArrayLike | None = None,
        costs: npt.ArrayLike | None = None,
        is_first: npt.ArrayLike | None = None,
    ) -> tuple[Decision, PolicyMemory]:
        """A decision and the memory after it; `decision.action` is in the environment's own range, shape and type.

        `reward` and `costs` (one for each constraint) are what the last action brought. A planner counts costs against
        the budget, and needs them where they do not follow from the observation. `is_first` says that a new episode
        begins with this observation; by default the first one after `begin` does.
        """
        spec = self.spec
        seen = np.asarray(observation)
        seen = seen[None] if memory.is_one else seen
        if seen.shape[1:] != spec.observation_shape or not np.all(np.isfinite(seen)):
            raise ValueError(
                f"observation: got an array of shape {np.shape(observation)}, expected finite numbers of shape "
                f"{spec.observation_shape}" + ("" if memory.is_one else " for every environment")
            )
        num_envs, dtype = len(seen), "float64" if spec.observation_dtype == "float64" else "float32"
        begins = np.broadcast_to(memory.is_new if is_first is None else np.asarray(is_first), (num_envs,))
        with self._agent.precision():
            received, paid = self._outcome(seen, reward, costs, begins)
            time_step = TimeStep(
                seen.astype(spec.observation_dtype),
                received.astype(dtype),
                paid.astype(dtype),
                begins,
                np.zeros(num_envs, bool),
            )
            _, decision, inner = self._decider(num_envs).decide(self._policy, memory.inner, time_step)
        said = jax.tree.map(lambda leaf: np.asarray(leaf)[0], decision)
        action = spec.own_actions(np.clip(said.action.astype(np.float64), -1.0, 1.0))
        decision = said._replace(action=action)
        if memory.is_one:
            decision = jax.tree.map(lambda leaf: leaf[0], decision)
        return decision, PolicyMemory(inner, False, memory.is_one)

    def _outcome(
        self, seen: np.ndarray, reward: npt.ArrayLike | None, costs: npt.ArrayLike | None, begins: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Reward and costs of every environment; what is not said is 0 where nothing depends on it."""
        names, problem = self.spec.cost_names, self.spec.problem
        is_needed = self._agent.is_certifying and not np.all(begins)
        # Costs that are summed between decisions do not follow from what is seen after them.
        is_known = problem is not None and not problem.is_summed
        wanted = ("reward", "costs") if self._agent.predicts_reward else ("costs",)
        given = {"reward": reward, "costs": costs}
        if is_needed and not is_known and any(given[name] is None for name in wanted):
            raise ValueError(
                f"act() got {' and '.join(f'{name} {given[name]}' for name in wanted)}, but this policy keeps to what "
                f"is left of its budget; expected {' and '.join(f'{name}=...' for name in wanted)}, with the costs of "
                f"{list(names)}, as the last step brought them"
            )
        if costs is None and is_needed and problem is not None:
            costs = np.asarray(jax.vmap(problem.cost)(jnp.asarray(seen)))[:, None]
        received = np.broadcast_to(0.0 if reward is None else reward, begins.shape)
        paid = np.broadcast_to(0.0 if costs is None else costs, (len(begins), len(names)))
        return np.where(begins, 0.0, received), np.where(begins[:, None], 0.0, paid)


def load(
    run: "Run | AnyPath", *, seed: int | None = None, task: str | None = None, is_greedy: bool = True
) -> TrainedPolicy:
    """The newest policy of a run, for one of its seeds and tasks (by default the first of each).

    No environment is made, and none of its code is needed but for a `Problem` of one's own, whose reward and cost a
    planner knows. With `is_greedy` actions are medians of the policy, as in evaluations, else draws from it.
    """
    folders = (run if isinstance(run, Run) else Run(run)).folders
    seeds = {number: folder for folder in folders for number in folder.config.seeds}
    seed = next(iter(seeds)) if seed is None else seed
    require_known("seed", str(seed), map(str, seeds))
    folder = seeds[seed]
    agent, epoch, state = _restored(folder)
    place = folder.config.seeds.index(seed)
    state = jax.tree.map(lambda leaf: leaf[place : place + 1] if np.ndim(leaf) else leaf, state)
    task = agent.spec.task if task is None else task
    require_known("task", task, agent.tasks)
    return TrainedPolicy(dataclasses.replace(folder.config, seeds=(seed,)), agent, state, epoch, task, is_greedy)


def _restored(folder: RunFolder) -> tuple[Agent, int, TrainState]:
    """The agent of a run, and what deciding needs of its newest train state."""
    config, agent = folder.config, folder.config.make_agent(folder.spec)
    with agent.precision():
        learner = agent.learner(config.num_envs, len(config.seeds))
        shapes = eqx.filter_eval_shape(lambda: first_state(learner, config.seeds))
        epoch, state = folder.restore(shapes)
    return agent, epoch, state._replace(agent=agent.acting_part(state.agent))


def evaluate(
    run: "TrainedPolicy | Run | AnyPath", *, episodes: int = 50, task: str | None = None
) -> list[dict[str, Any]]:
    """Fresh episodes from which nothing is learned: a row per seed and task, with means and counts.

    Of a policy, for its seed and task; of a run, for all of its seeds and tasks, or one task.
    """
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes}")
    if isinstance(run, TrainedPolicy):
        return _evaluated(run.config, run.epoch, run.state, [run.task], episodes, is_greedy=run.is_greedy)
    rows: list[dict[str, Any]] = []
    for folder in (run if isinstance(run, Run) else Run(run)).folders:
        agent, epoch, state = _restored(folder)
        if task is not None:
            require_known("task", task, agent.tasks)
        rows += _evaluated(folder.config, epoch, state, agent.tasks if task is None else [task], episodes)
    return rows


def _evaluated(
    config: Config, epoch: int, state: TrainState, tasks: Sequence[str], episodes: int, *, is_greedy: bool = True
) -> list[dict[str, Any]]:
    loop, rows = make_loop(config), []
    with contextlib.closing(loop.envs):
        for task in tasks:
            _, found = loop.evaluate(state, task, episodes, epoch=epoch, is_greedy=is_greedy)
            for seed, outcomes in zip(config.seeds, found, strict=True):
                rows.append({"seed": seed, "task": task, **evaluation(outcomes, loop.agent, task)})
    return rows


def calibrate(run: "Run | AnyPath", *, episodes: int | None = None, horizon: int | None = None) -> dict[str, Any]:
    """What fresh episodes say of whether the model knows how wrong it is; written into the run's folder too."""
    folder = _one_folder(run)
    with folder.locked():
        return calibration.record(folder, calibration.measure(folder, num_episodes=episodes, horizon=horizon))


def certify(run: "Run | AnyPath") -> dict[str, Any]:
    """What the policy promises, what that rests on and what it does not promise; written into the run's folder too."""
    return certificate.write_certificate(_one_folder(run))[1]


def verify(run: "Run | AnyPath", claimed: AnyPath | None = None) -> list[str]:
    """The fields in which a certificate, by default the one in the run's folder, differs from its run."""
    folder = _one_folder(run)
    path = folder.path / certificate.CERTIFICATE if claimed is None else Path(claimed)
    return verification.differences(verification.read_certificate(path), folder.path)


def _one_folder(run: "Run | AnyPath") -> RunFolder:
    folders = (run if isinstance(run, Run) else Run(run)).folders
    if len(folders) > 1:
        raise ConfigError(f"got a folder of {len(folders)} runs; expected one of them, such as {folders[0].path}")
    return folders[0]

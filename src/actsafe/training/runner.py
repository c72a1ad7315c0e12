"""The shell around the agent: episodes one after the other, each checked, committed and reported."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from actsafe.agents.actsafe import Agent, AgentState
from actsafe.agents.deciding import Decision, EpisodeState
from actsafe.agents.phases import Phase
from actsafe.models.gp.dynamics import GPDynamics
from actsafe.objectives.scores import coverage
from actsafe.training import provenance
from actsafe.training.config import Config
from actsafe.training.errors import UserError
from actsafe.training.run import Episode, RunFolder

EXPLORATION = 0
"""Random stream of an episode's exploration; task k is evaluated with stream 1 + k."""

Count = Int[Array, ""]
OnDecisions = Callable[[int], None]
OnEpisode = Callable[[list[dict[str, Any]]], None]


class ProblemError(UserError, RuntimeError):
    """The problem returned something that no constrained MDP may return."""


class Programs:
    """The compiled programs of a run, batched over seeds. Each is compiled once per shape of the data."""

    def __init__(self, agent: Agent, config: Config) -> None:
        steps, window = config.decisions_per_call, config_window(config) * agent.problem.num_decisions

        def begin(key: Any, capacity: int) -> tuple[AgentState, Decision]:
            return agent.begin(key, num_seed_decisions=config.schedule.num_seed_decisions, capacity=capacity)

        def start(state: AgentState, model: GPDynamics, weights: Any, episode: Count, stream: Count) -> EpisodeState:
            key = jax.random.fold_in(jax.random.fold_in(state.key, episode), stream)
            return agent.planner(model, state.multiplier, weights).begin(key)

        def advance(state: AgentState, model: GPDynamics, weights: Any, episode: EpisodeState, count: int):
            return agent.planner(model, state.multiplier, weights).advance(episode, count)

        def coverages(state: AgentState, rows: Any):
            recent = (jnp.arange(state.scores.shape[0]) >= state.data.count - rows)[:, None] & state.is_evidence
            return jax.vmap(coverage, in_axes=(1, 1, 0))(state.scores, recent, state.multiplier)

        by_seed = eqx.if_array(0)
        self.steps = steps
        self.begin = eqx.filter_jit(lambda keys, capacity: jax.vmap(lambda k: begin(k, capacity))(keys))
        self.believe = eqx.filter_jit(lambda state, n: eqx.filter_vmap(lambda s: agent.believe(s, n))(state))
        self.start = eqx.filter_jit(eqx.filter_vmap(start, in_axes=(by_seed, by_seed, None, None, None)))
        self.advance = eqx.filter_jit(
            lambda state, model, weights, episode, count: eqx.filter_vmap(
                lambda s, m, e: advance(s, m, weights, e, count)
            )(state, model, episode)
        )
        self.absorb = eqx.filter_jit(
            lambda state, model, record, n: eqx.filter_vmap(lambda s, m, r: agent.absorb(s, m, r, n))(
                state, model, record
            )
        )
        self.recalibrate = eqx.filter_jit(eqx.filter_vmap(lambda s, m: agent.recalibrate(s, m, window)))
        self.coverages = eqx.filter_jit(eqx.filter_vmap(coverages, in_axes=(by_seed, None)))


class Trainer:
    """Carries a run from where its folder stands to its end."""

    progress_unit = "decisions"
    """What `on_decisions` counts, of one seed."""
    notice = ""
    """What is said before the run starts."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        on_decisions: OnDecisions = lambda n: None,
        on_episode: OnEpisode = lambda rows: None,
    ) -> None:
        self.folder = folder
        self.config = folder.config
        self.agent = self.config.make_agent()
        self.problem = self.agent.problem
        self.programs = Programs(self.agent, self.config)
        self.on_decisions = on_decisions
        self.on_episode = on_episode
        self.tasks = list(self.problem.tasks)

    @property
    def progress_scale(self) -> int:
        """Seeds, which are computed side by side."""
        return len(self.config.seeds)

    def describe(self, rows: list[dict[str, Any]]) -> str:
        """What an episode came to, in a few words; its metrics, one row per seed."""
        return f"cost {max(float(row['exploration_cost']) for row in rows):.3g}"

    @property
    def num_rows(self) -> int:
        """Rows that hold all data of the run, as a multiple of the capacity step."""
        schedule = self.config.schedule
        return self._capacity(schedule.num_seed_decisions + schedule.num_episodes * self.problem.num_decisions)

    def num_decisions_from(self, episode: int) -> int:
        """Decisions left from this planned episode on, evaluations included: what a progress bar counts."""
        left = range(max(episode, 1), self.config.schedule.num_episodes + 1)
        return sum(self.problem.num_decisions * (1 + len(self.tasks) * self.config.is_evaluated(n)) for n in left)

    def run(self, command: str | None = None) -> None:
        """Do all episodes that are not committed yet; `command` is what the record says was typed."""
        with self.folder.locked():
            command = provenance.command_line() if command is None else command
            if not self.folder.is_finished:
                self.folder.add_session(provenance.session(command, self.folder.num_committed))
            if self.folder.num_committed == 0:
                self._seed()
            number, state = self.folder.restore(self._begin()[0], to_go_on=True)
            self.folder.refresh()
            for episode in range(number + 1, self.config.schedule.num_episodes + 1):
                state = self._episode(episode, state)

    def newest(self) -> tuple[int, AgentState]:
        """The newest episode with a sound checkpoint, and the agent after it; the folder is not changed."""
        return self.folder.restore(self._begin()[0])

    def believed(self) -> tuple[int, AgentState, GPDynamics]:
        """As `newest`, with the models that the agents believe in."""
        number, state = self.newest()
        return number, state, self.programs.believe(state, self._capacity_at(number))

    def evaluate(self, tasks: list[str], *, stream: int = 1000) -> dict[str, dict[str, np.ndarray]]:
        """Zero-shot episodes of every seed's newest model, one per task; `stream` picks the random numbers."""
        number, state, model = self.believed()
        return {task: _as_arrays(self._evaluate(state, model, number, task, stream)) for task in tasks}

    def _begin(self) -> tuple[AgentState, Decision]:
        keys = jnp.stack([jax.random.key(seed) for seed in self.config.seeds])
        return self.programs.begin(keys, self.num_rows)

    def _seed(self) -> None:
        started = time.perf_counter()
        state, record = self._begin()
        self._require_sane(record, "the seed policy (zero input)")
        spent = np.sum(np.asarray(record.cost), axis=-1)
        if np.any(spent > self.problem.budget):
            raise ProblemError(
                f"the safe seed policy (zero input) is not safe here: it cost {spent.max():g}, and the budget is "
                f"{self.problem.budget:g}. Raise the budget, or start the problem where zero input is safe"
            )
        self._commit(0, Phase.SEED, state, state, record, {}, time.perf_counter() - started)

    def _episode(self, number: int, state: AgentState) -> AgentState:
        started = time.perf_counter()
        phase = self.config.schedule.phase(number)
        model = self.programs.believe(state, self._capacity_at(number - 1))
        record = self._roll(state, model, self.agent.phase_weights(phase), number, EXPLORATION)
        self._require_sane(record, f"episode {number}")
        explored = time.perf_counter()

        planned = state
        state = self.programs.absorb(state, model, record, self._capacity_at(number))
        model = self.programs.believe(state, self._capacity_at(number))
        state = self.programs.recalibrate(state, model)
        jax.block_until_ready(state.multiplier)
        learned = time.perf_counter()

        evaluations = {}
        if self.config.is_evaluated(number):
            evaluations = {t: self._evaluate(state, model, number, t, 1 + k) for k, t in enumerate(self.tasks)}
        ended = time.perf_counter()
        timing = {
            "explore_seconds": explored - started,
            "learn_seconds": learned - explored,
            "evaluate_seconds": ended - learned,
        }
        self._commit(number, phase, planned, state, record, evaluations, ended - started, timing)
        return state

    def _evaluate(self, state: AgentState, model: GPDynamics, number: int, task: str, stream: int) -> Decision:
        record = self._roll(state, model, self.agent.task_weights(task), number, stream)
        self._require_sane(record, f"the evaluation of {task} after episode {number}")
        return record

    def _roll(self, state: AgentState, model: GPDynamics, weights: Any, number: int, stream: int) -> Decision:
        """One episode of every seed, in a few compiled calls."""
        episode = self.programs.start(state, model, weights, jnp.asarray(number), jnp.asarray(stream))
        parts, left = [], self.problem.num_decisions
        while left:
            count = min(self.programs.steps, left)
            episode, part = self.programs.advance(state, model, weights, episode, count)
            parts.append(jax.tree.map(np.asarray, part))
            left -= count
            self.on_decisions(count)
        return jax.tree.map(lambda *p: np.concatenate(p, axis=1), *parts)

    def _require_sane(self, record: Decision, when: str) -> None:
        states, costs = np.asarray(record.next_state), np.asarray(record.cost)
        if not np.all(np.isfinite(states)) or not np.all(np.isfinite(costs)):
            seed, step = np.argwhere(~(np.isfinite(states).all(-1) & np.isfinite(costs)))[0]
            raise ProblemError(
                f"{self.problem.name} returned state {states[seed, step]} and cost {costs[seed, step]} at decision "
                f"{step + 1} of {when} (seed {self.config.seeds[seed]}); expected finite numbers. "
                "Nothing of this episode was recorded; mend the problem, then resume the run"
            )
        if np.any(costs < 0):
            seed, step = np.argwhere(costs < 0)[0]
            raise ProblemError(
                f"{self.problem.name} returned the negative cost {costs[seed, step]:g} at decision {step + 1} of "
                f"{when} (seed {self.config.seeds[seed]}); costs must be at least 0, as a negative one would hide "
                "others. Nothing of this episode was recorded; mend the problem's cost, then resume the run"
            )

    def _capacity_at(self, episode: int) -> int:
        """Rows that hold the data after this episode."""
        schedule = self.config.schedule
        return min(self._capacity(schedule.num_seed_decisions + episode * self.problem.num_decisions), self.num_rows)

    def _capacity(self, rows: int) -> int:
        step = self.config.capacity_step
        return -(-rows // step) * step

    def _commit(
        self,
        number: int,
        phase: Phase,
        planned: AgentState,
        state: AgentState,
        record: Decision,
        evaluations: dict[str, Decision],
        seconds: float,
        timing: dict[str, float] | None = None,
    ) -> None:
        """Write the episode: `planned` is the state it was planned with, `state` the one after learning from it."""
        coverages = np.asarray(self.programs.coverages(state, jnp.asarray(record.cost.shape[-1])))
        metrics = [
            {
                "episode": number,
                "seed": seed,
                "phase": phase.value,
                "num_data": int(np.asarray(state.data.count)[i]),
                **_exploration_row(self.tasks, record, i),
                **_evaluation_row(self.problem, self.tasks, evaluations, i),
                "confidence_multiplier": np.asarray(state.multiplier)[i],
                "coverage": coverages[i],
            }
            for i, seed in enumerate(self.config.seeds)
        ]
        ledger = [
            {
                "episode": number,
                "seed": seed,
                "phase": phase.value,
                "budget": self.problem.budget,
                "predicted_pessimistic_cost": np.max(np.asarray(record.pessimistic_cost)[i]),
                "realised_cost": np.sum(np.asarray(record.cost)[i]),
                "largest_inner_cost": np.max(np.asarray(record.inner_cost)[i]),
                "confidence_multiplier": np.asarray(planned.multiplier)[i],
                "fallbacks": int(np.sum(np.asarray(record.is_fallback)[i])),
                "uncertified": int(np.sum(~np.asarray(record.is_certified)[i])),
            }
            for i, seed in enumerate(self.config.seeds)
        ]
        trajectory = {**_as_arrays(record)}
        for task, evaluation in evaluations.items():
            trajectory |= {f"{task}_{name}": value for name, value in _as_arrays(evaluation).items()}
        timing = {"seconds": seconds, **(timing or {})}
        self.folder.commit(number, Episode(metrics, ledger, trajectory, timing), state)
        self.on_episode(metrics)


def config_window(config: Config) -> int:
    """Episodes whose predictions the confidence rule looks back on."""
    return getattr(config.confidence, "window", 1)


def train(path: Path, config: Config, **callbacks: Any) -> RunFolder:
    """A new run in `path`, from beginning to end."""
    folder = RunFolder.create(path, config)
    Trainer(folder, **callbacks).run()
    return folder


def resume(path: Path, **callbacks: Any) -> RunFolder:
    """An earlier run, carried on to its end exactly as if it had never stopped."""
    folder = RunFolder.open(path)
    Trainer(folder, **callbacks).run()
    return folder


def _exploration_row(tasks: list[str], record: Decision, i: int) -> dict[str, Any]:
    return {
        "exploration_cost": np.sum(np.asarray(record.cost)[i]),
        "exploration_inner_cost": np.max(np.asarray(record.inner_cost)[i]),
        "exploration_return": {task: np.sum(np.asarray(record.rewards)[i, :, k]) for k, task in enumerate(tasks)},
        "plan_value": np.mean(np.asarray(record.plan_value)[i]),
        "fallbacks": int(np.sum(np.asarray(record.is_fallback)[i])),
        "uncertified": int(np.sum(~np.asarray(record.is_certified)[i])),
    }


def _evaluation_row(problem: Any, tasks: list[str], evaluations: dict[str, Decision], i: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for k, task in enumerate(tasks):
        if task in evaluations:
            evaluation = evaluations[task]
            row[f"{task}_return"] = np.sum(np.asarray(evaluation.rewards)[i, :, k])
            row[f"{task}_cost"] = np.sum(np.asarray(evaluation.cost)[i])
    if "swing_up" in evaluations:
        row["upright"] = bool(problem.is_goal(jnp.asarray(evaluations["swing_up"].next_state)[i, -1]))
    return row


def _as_arrays(record: Decision) -> dict[str, np.ndarray]:
    """states (seed, T+1, state); actions, costs (seed, T, ...)."""
    states = np.concatenate([np.asarray(record.state), np.asarray(record.next_state)[:, -1:]], axis=1)
    return {
        "states": states,
        "actions": np.asarray(record.action),
        "costs": np.asarray(record.cost),
        "inner_costs": np.asarray(record.inner_cost),
        "rewards": np.asarray(record.rewards),
        "pessimistic_costs": np.asarray(record.pessimistic_cost),
        "is_fallback": np.asarray(record.is_fallback),
        "is_certified": np.asarray(record.is_certified),
    }

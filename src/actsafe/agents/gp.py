"""ActSafe with Gaussian processes: the paper's Algorithm 2, as pure functions of one `GPState`.

    for every episode n:
        select pi_n    maximise the phase's objective, pessimistic cost within the budget   `GPAgent.planner`
        D_n <- rollout
        update Q_n     fit, condition, calibrate                                           `absorb`, `believe`

The functions are of one seed; `GPLearner` maps them over seeds.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray

from actsafe.agents.algorithms import Algorithm, Role
from actsafe.agents.base import ActMode, Agent, AgentSettings, EpochLearner, Forecasts, Newest, Policy, Promise
from actsafe.agents.phases import Phase, Schedule
from actsafe.agents.planner import Planner, PlanningSettings, SeedPolicy
from actsafe.agents.planner_forecasts import DOES_NOT_PROMISE, planned_promise, state_forecasts
from actsafe.agents.uniform import UniformPolicy
from actsafe.data.transitions import Trajectory, Transitions, trajectories
from actsafe.envs.spec import EnvSpec
from actsafe.models.gp.dynamics import GPDynamics, GPSettings, fit_kernels, learn, prior_kernels
from actsafe.models.gp.kernels import Kernel
from actsafe.objectives.confidence import Calibrated, Confidence, Evidence, Fixed, Theory
from actsafe.objectives.pessimism import Constraint, Objective
from actsafe.objectives.rewards import InformationGain, Mixture, PlanReward, TaskReward, UncertaintyNorm
from actsafe.objectives.scores import coverage, standard_scores
from actsafe.objectives.uncertainty import UncertaintySettings
from actsafe.planning.icem import ICEMSettings
from actsafe.problems.base import Problem
from actsafe.problems.observed import ObservedProblem

INTRINSIC = {
    "information_gain": lambda problem: InformationGain(),
    "uncertainty_norm": lambda problem: UncertaintyNorm(problem.change_scale),
}
PARTICLES = UncertaintySettings(intrinsic=1.0, pessimism=1.0, optimism=1.0)
"""Weights of uncertainty where particles carry it: the intrinsic reward as it is, and costs by the worst particle."""


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings:
    """What plans are judged by."""

    num_particles: int = 8
    """Trajectories imagined per plan while searching."""
    is_optimistic: bool = True
    """Judge a plan's reward by its luckiest particle (the paper's optimism), or else by the mean."""
    intrinsic: str = "information_gain"
    """information_gain (what the authors ran) or uncertainty_norm (what the theorem states)."""
    constraint: Constraint = dataclasses.field(default_factory=Constraint)

    def __post_init__(self) -> None:
        if self.num_particles < 1:
            raise ValueError(f"objective.num_particles must be at least 1, got {self.num_particles}")
        if self.intrinsic not in INTRINSIC:
            raise ValueError(f"objective.intrinsic must be one of {', '.join(INTRINSIC)}, got {self.intrinsic!r}")


@dataclasses.dataclass(frozen=True)
class GPAgentSettings(AgentSettings):
    """Gaussian-process dynamics and a planner: for states of few dimensions and few hundred decisions."""

    kind: ClassVar[str] = "gp"
    is_double: ClassVar[bool] = True
    is_one_program: ClassVar[bool] = True
    for_a_try: ClassVar[str] = "--preset demo, or --preset own-gp"
    more_cautious: ClassVar[str] = "with a larger agent.gp.noise_std, or agent.confidence.kind=fixed and a larger value"

    gp: GPSettings = dataclasses.field(default_factory=GPSettings)
    planning: PlanningSettings = dataclasses.field(default_factory=PlanningSettings)
    objective: ObjectiveSettings = dataclasses.field(default_factory=ObjectiveSettings)
    confidence: Calibrated | Fixed | Theory | Confidence = dataclasses.field(default_factory=Calibrated)
    capacity_step: int = 128
    """Arrays grow by this many rows of data; larger steps compile less often and compute more padding."""
    decisions_per_call: int = 10
    """Decisions in one compiled call: how often progress is shown and a stop is noticed."""
    prior_scale: float = 1.0
    """Typical size of observations, rewards, costs and of their changes, where the environment is none of our problems
    and does not say."""

    def __post_init__(self) -> None:
        for name in ("capacity_step", "decisions_per_call"):
            if getattr(self, name) < 1:
                raise ValueError(f"agent.{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.prior_scale < float("inf"):
            raise ValueError(f"agent.prior_scale must be positive and finite, got {self.prior_scale}")

    @classmethod
    def small(cls) -> Mapping[str, Any]:
        """A minute or two on a laptop, where there are few dimensions."""
        search = ICEMSettings(num_candidates=48, num_elites=6, num_iterations=3, horizon=15, colour_exponent=2.0)
        return {
            **super().small(),
            "schedule": Schedule(seed_decisions=1, expansion=4, exploitation=2),
            "agent": cls(
                gp=GPSettings(subset_size=96, noise_std=1e-2),
                planning=PlanningSettings(search=search, preflight_particles=16),
                confidence=Calibrated(start=2.0),
            ),
        }

    @classmethod
    def suits(cls, problem: Problem | None, num_costs: int) -> bool:
        return problem is not None and not problem.is_summed and num_costs == 1

    def make(self, spec: EnvSpec, algorithm: Algorithm, schedule: Schedule) -> "GPAgent":
        if len(spec.cost_names) != 1:
            raise ValueError(
                f"cost_names: got {list(spec.cost_names)}, but plans of a Gaussian-process agent keep to one budget; "
                "name one cost, add the costs up in the environment, or choose the agent with a world model"
            )
        if schedule.seed_decisions < 1:
            raise ValueError(
                f"schedule.seed_decisions must be at least 1, got {schedule.seed_decisions}: the first model needs data"
            )
        if len(spec.observation_shape) != 1:
            raise ValueError(
                f"observation: got images of shape {spec.observation_shape}, but a Gaussian process needs the state; "
                "ask for observation=state, or choose the agent with a world model"
            )
        if spec.problem is not None and spec.problem.is_summed:
            raise ValueError(
                f"{spec.name}: its budget of {spec.problem.budget:g} is for {spec.problem.num_decisions} decisions, of "
                "which a planner sees too few ahead to keep it; choose the agent with a world model, or another problem"
            )
        return GPAgent(spec, algorithm, self, schedule)


class GPState(eqx.Module):
    """All that changes while an agent learns; for one seed."""

    data: Transitions
    kernels: Kernel
    multiplier: Float[Array, " state"]
    scores: Float[Array, "capacity state"]
    """|error| / std of each transition, as predicted by the model that planned it."""
    is_evidence: Bool[Array, "capacity state"]


@dataclasses.dataclass(frozen=True)
class GPAgent(Agent):
    """A problem, a row of the table, and settings."""

    settings: GPAgentSettings

    is_certifying: ClassVar[bool] = True
    predicts_reward: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = False
    usual_episodes: ClassVar[int] = 5
    usual_horizon: ClassVar[int] = 5
    does_not_promise: ClassVar[tuple[str, ...]] = DOES_NOT_PROMISE

    @property
    def problem(self) -> Problem:
        """The problem where it is known, or what is observed of the environment as one."""
        here = self.spec
        if here.problem is not None:
            return here.problem
        return ObservedProblem.create(
            here.name,
            num_observed=here.observation_shape[0],
            num_actions=here.action_dim,
            num_decisions=here.num_decisions,
            budget=here.budgets[0],
            scale=self.settings.prior_scale,
        )

    @property
    def tasks(self) -> tuple[str, ...]:
        """Every task whose reward is known."""
        return tuple(self.problem.tasks)

    @property
    def num_ticks_at_once(self) -> int:
        return self.settings.decisions_per_call

    def acting_part(self, state: GPState) -> Any:
        return eqx.tree_at(lambda whole: (whole.scores, whole.is_evidence), state, (None, None))

    def operations(self, num_steps: int) -> float:
        """Of the variances alone: two triangular products with the subset, of every state that a search imagines."""
        search, subset = self.settings.planning.search, self.settings.gp.subset_size or self.num_rows
        decay = search.population_decay
        num_plans = sum(search.num_candidates / decay**n for n in range(search.num_iterations))
        num_states = num_plans * search.horizon * self.settings.objective.num_particles
        return num_steps / self.spec.action_repeat * num_states * self.problem.state_dim * 2.0 * subset**2

    @property
    def num_rows(self) -> int:
        """Rows that hold all data of a run, as a multiple of the capacity step."""
        rows_per_epoch = self.schedule.episodes_per_epoch * (self.spec.num_decisions + 1) - 1
        return self.capacity(self.schedule.seed_decisions + self.schedule.num_epochs * rows_per_epoch)

    def capacity(self, num_rows: int) -> int:
        """Rows of arrays that hold so many rows of data."""
        step = self.settings.capacity_step
        return -(-num_rows // step) * step

    def init(self, key: PRNGKeyArray) -> GPState:
        """No data."""
        problem, settings, capacity = self.problem, self.settings, self.num_rows
        blank = jnp.zeros((capacity, problem.state_dim))
        return GPState(
            Transitions.empty(capacity, problem.state_dim, problem.action_dim),
            prior_kernels(problem, settings.gp),
            settings.confidence.initial(problem.state_dim),
            blank,
            blank.astype(bool),
        )

    def believe(self, state: GPState, capacity: int) -> GPDynamics:
        """The model that the data speaks for; `capacity` rows are enough to hold it."""
        return learn(self.problem, state.data.head(capacity), state.kernels, self.settings.gp)

    def planner(self, model: GPDynamics, multiplier: Array, reward_weights: Float[Array, "*seed reward"]) -> Planner:
        """What decides, for the mixture of rewards that a phase or a task asks for (see `reward_weights`)."""
        settings, row, problem = self.settings.objective, self.algorithm, self.problem
        tasks = tuple(TaskReward(problem, task) for task in problem.tasks)
        rewards: tuple[PlanReward, ...] = (INTRINSIC[settings.intrinsic](problem), *tasks)
        objective = Objective(
            Mixture(rewards, reward_weights),
            num_particles=settings.num_particles if row.objective.weights(Role.TASK, PARTICLES).pessimism else 1,
            is_optimistic=settings.is_optimistic,
            constraint=settings.constraint if row.is_constrained else None,
        )
        is_observed = self.spec.problem is None
        return Planner(problem, model, objective, multiplier, self.settings.planning, is_observed)

    def reward_weights(self, mode: ActMode) -> Float[Array, " reward"]:
        """Of the intrinsic reward and of every task's."""
        tasks = list(self.problem.tasks)
        place = tasks.index(mode.task or self.spec.task)
        weights = self.algorithm.objective.weights(mode.role, PARTICLES)
        return jnp.zeros((1 + len(tasks),)).at[0].set(weights.uncertainty).at[1 + place].set(weights.task)

    def note(self, state: GPState, new: Trajectory) -> GPState:
        """The state with these transitions, from which nothing else is concluded."""
        data = state.data.append(new.states, new.actions, new.next_states - new.states, new.count)
        return dataclasses.replace(state, data=data)

    def absorb(self, state: GPState, model: GPDynamics, new: Trajectory, capacity: int) -> GPState:
        """The state after an episode that `model` planned: scored first, then learned from."""
        scores, is_evidence = standard_scores(model, new.states, new.actions, new.next_states)
        is_evidence = is_evidence & (jnp.arange(scores.shape[0]) < new.count)[:, None]
        row, noted = state.data.count, self.note(state, new)
        return dataclasses.replace(
            noted,
            kernels=fit_kernels(self.problem, noted.data.head(capacity), state.kernels, self.settings.gp),
            scores=jax.lax.dynamic_update_slice_in_dim(state.scores, scores, row, axis=0),
            is_evidence=jax.lax.dynamic_update_slice_in_dim(state.is_evidence, is_evidence, row, axis=0),
        )

    def recalibrate(self, state: GPState, model: GPDynamics) -> GPState:
        """The state with the multiplier that the newest predictions ask for."""
        confidence = self.settings.confidence
        window = confidence.num_episodes * self.spec.num_decisions
        evidence = Evidence(state.scores, self._newest(state, window))
        return dataclasses.replace(state, multiplier=confidence.update(state.multiplier, evidence, model))

    def coverage(self, state: GPState, num_rows: Int[Array, ""]) -> Float[Array, " state"]:
        """The share of the newest `num_rows` predictions that the multiplier covers."""
        newest = self._newest(state, num_rows)
        return jax.vmap(coverage, in_axes=(1, 1, 0))(state.scores, newest, state.multiplier)

    def _newest(self, state: GPState, num_rows: Any) -> Bool[Array, "capacity state"]:
        return (jnp.arange(state.scores.shape[0]) >= state.data.count - num_rows)[:, None] & state.is_evidence

    def learner(self, num_envs: int, num_seeds: int) -> "GPLearner":
        if num_envs != 1:
            raise ValueError(
                f"num_envs: got {num_envs}, but a Gaussian-process agent has one environment per seed; use 1"
            )
        return GPLearner(self)

    def may_exploit(self, learned: Mapping[str, Any]) -> bool:
        """Always: every plan is checked, whatever it is for."""
        return True

    def predicted(self, role: Role, learned: Mapping[str, Any], decided: float | None) -> list[dict[str, Any]]:
        return [
            {
                "constraint": self.spec.cost_names[0],
                "budget": self.spec.budgets[0],
                "predicted_cost": None,
                "predicted_pessimistic_cost": decided,
            }
        ]

    def forecasts(
        self, learner: "GPLearner", state: GPState, episodes: Sequence[Any], *, horizon: int, key: PRNGKeyArray
    ) -> Forecasts:
        return state_forecasts(self, learner, state, episodes, horizon=horizon, key=key)

    def promise(self, learner: "GPLearner", state: GPState, newest: Newest) -> Promise:
        return planned_promise(self, learner, state, newest)


class GPLearner:
    """The compiled programs of an agent, batched over seeds. Each is compiled once per shape of the data."""

    def __init__(self, agent: GPAgent) -> None:
        self.agent = agent
        self._believed: tuple[Any, int, GPDynamics] | None = None
        by_seed = eqx.filter_vmap
        self._init = eqx.filter_jit(jax.vmap(agent.init))
        self._believe = eqx.filter_jit(lambda state, n: by_seed(lambda s: agent.believe(s, n))(state))
        self._note = eqx.filter_jit(by_seed(agent.note))
        self._absorb = eqx.filter_jit(
            lambda state, model, new, n: by_seed(lambda s, m, t: agent.absorb(s, m, t, n))(state, model, new)
        )
        self._recalibrate = eqx.filter_jit(by_seed(agent.recalibrate))
        self._coverage = eqx.filter_jit(by_seed(agent.coverage))

    def init(self, keys: Key[Array, " seed"]) -> GPState:
        return self._init(keys)

    def believe(self, state: GPState) -> GPDynamics:
        """The models of all seeds; kept until another state is asked about."""
        capacity = self.capacity(state)
        if self._believed is None or self._believed[0] is not state or self._believed[1] != capacity:
            self._believed = state, capacity, self._believe(state, capacity)
        return self._believed[2]

    def capacity(self, state: GPState, num_new: int = 0) -> int:
        """Rows of arrays that hold the data of every seed, and so many rows more."""
        agent = self.agent
        return min(agent.capacity(int(np.max(np.asarray(state.data.count))) + num_new), agent.num_rows)

    def policy(self, state: GPState, mode: ActMode) -> Policy:
        action_dim = self.agent.spec.action_dim
        if mode.role is Role.SEED:
            return SeedPolicy(action_dim)
        if mode.role is Role.UNIFORM:
            return UniformPolicy(action_dim)
        weights = self.agent.reward_weights(mode)
        num_seeds = state.multiplier.shape[0]
        by_seed = jnp.broadcast_to(weights, (num_seeds, *weights.shape))
        return self.agent.planner(self.believe(state), state.multiplier, by_seed)

    def compile_ahead(self, state: GPState, buffer: Any, phase: Phase) -> None:
        """Nothing: programs are compiled when they are needed."""

    def epoch(self, state: GPState, num_updates: int, keys: Key[Array, " seed"], phase: Phase) -> "EpisodeLearning":
        return EpisodeLearning(self, state, num_updates, phase)

    def learn(self, state: GPState, rows: Any, phase: Phase) -> GPState:
        """The states after the rows (seed, environment, time) of an epoch."""
        new = trajectories(rows, with_outcomes=self.agent.spec.problem is None)
        if phase is Phase.SEED:
            return self._note(state, new)
        # Every seed has the same rows of arrays, however many of them are data.
        state = self._absorb(state, self.believe(state), new, self.capacity(state, new.states.shape[1]))
        return self._recalibrate(state, self.believe(state))

    def measures(self, state: GPState, num_new: Array) -> dict[str, np.ndarray]:
        """By seed: rows of data, multipliers, and the share of the newest predictions that they cover."""
        return {
            "num_data": np.asarray(state.data.count),
            "confidence_multiplier": np.asarray(state.multiplier),
            "coverage": np.asarray(self._coverage(state, num_new)),
        }


class EpisodeLearning(EpochLearner):
    """Learning at the end of an epoch, from all that it brought."""

    def __init__(self, learner: GPLearner, state: GPState, num_updates: int, phase: Phase) -> None:
        super().__init__(learner)
        self._learner, self._phase = learner, phase
        self.agent, self.num_updates = state, num_updates

    def catch_up(self, buffer: Any, num_rows: int, num_steps: int) -> None:
        """Nothing: a posterior does not change during an episode."""

    def finish(self, buffer: Any, rows: Any, num_rows: int, num_steps: int) -> dict[str, np.ndarray]:
        """Score, fit, condition, calibrate."""
        before = self.agent.data.count
        self.agent = self._learner.learn(self.agent, rows, self._phase)
        jax.block_until_ready(self.agent.multiplier)
        self.num_updates += 1
        return self._learner.measures(self.agent, self.agent.data.count - before)

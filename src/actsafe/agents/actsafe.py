"""ActSafe with Gaussian processes: the paper's Algorithm 2, as pure functions of one `AgentState`.

    for every episode n:
        select pi_n    maximise the phase's objective, pessimistic cost within the budget   `planner`
        D_n <- rollout `Planner.advance`
        update Q_n     fit, condition, calibrate                                           `absorb`, `believe`

Seeds are a batch axis: callers `vmap` these functions.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.agents.deciding import Decision, Planner, PlanningSettings
from actsafe.agents.phases import Phase
from actsafe.agents.recipes import Recipe
from actsafe.data.transitions import Transitions
from actsafe.models.gp.dynamics import GPDynamics, GPSettings, fit_kernels, learn, prior_kernels
from actsafe.models.gp.kernels import Kernel
from actsafe.objectives.confidence import Confidence, Evidence
from actsafe.objectives.pessimism import Constraint, Objective
from actsafe.objectives.rewards import DoubtNorm, InformationGain, Mixture, PlanReward, TaskReward
from actsafe.objectives.scores import standard_scores
from actsafe.problems.base import Problem


@dataclasses.dataclass(frozen=True)
class ObjectiveSettings:
    """What plans are judged by."""

    num_particles: int = 8
    """Trajectories imagined per plan while searching."""
    is_optimistic: bool = True
    """Judge a plan's reward by its luckiest particle (the paper's optimism), or else by the mean."""
    intrinsic: str = "information_gain"
    """information_gain (what the authors ran) or doubt_norm (what the theorem states)."""
    task: str = "swing_up"
    """The task that greedy rows and the exploitation phase maximise."""
    constraint: Constraint = dataclasses.field(default_factory=Constraint)

    def __post_init__(self) -> None:
        if self.num_particles < 1:
            raise ValueError(f"objective.num_particles must be at least 1, got {self.num_particles}")
        if self.intrinsic not in INTRINSIC:
            raise ValueError(f"objective.intrinsic must be one of {', '.join(INTRINSIC)}, got {self.intrinsic!r}")


INTRINSIC = {
    "information_gain": lambda problem: InformationGain(),
    "doubt_norm": lambda problem: DoubtNorm(problem.change_scale),
}


class AgentState(eqx.Module):
    """All that changes while an agent learns; for one seed."""

    data: Transitions
    kernels: Kernel
    multiplier: Float[Array, " state"]
    scores: Float[Array, "capacity state"]
    """|error| / std of each transition, as predicted by the model that planned it."""
    is_evidence: Bool[Array, "capacity state"]
    key: PRNGKeyArray


@dataclasses.dataclass(frozen=True)
class Agent:
    """The unchanging part: a problem, a row of the table, and settings."""

    problem: Problem
    recipe: Recipe
    gp: GPSettings
    planning: PlanningSettings
    objective: ObjectiveSettings
    confidence: Confidence

    def begin(self, key: PRNGKeyArray, *, num_seed_decisions: int, capacity: int) -> tuple[AgentState, Decision]:
        """The state after the seed phase, and its record: S_0, zero input, held for a few decisions."""
        problem = self.problem
        reset_key, noise_key, key = jax.random.split(key, 3)
        data = Transitions.empty(capacity, problem.state_dim, problem.action_dim)
        action = jnp.zeros((problem.action_dim,))

        def decide(state: Array, key: PRNGKeyArray) -> tuple[Array, Decision]:
            step = problem.step(state, action, key)
            unknown = jnp.asarray(jnp.inf)
            return step.state, Decision(
                state,
                action,
                step.state,
                step.cost,
                step.inner_cost,
                step.rewards,
                -unknown,
                unknown,
                jnp.asarray(False),
                jnp.asarray(False),
            )

        _, record = jax.lax.scan(decide, problem.reset(reset_key), jax.random.split(noise_key, num_seed_decisions))
        blank = jnp.zeros((capacity, problem.state_dim))
        state = AgentState(
            data.append(record.state, record.action, record.next_state - record.state),
            prior_kernels(problem, self.gp),
            self.confidence.initial(problem.state_dim),
            blank,
            blank.astype(bool),
            key,
        )
        return state, record

    def believe(self, state: AgentState, capacity: int) -> GPDynamics:
        """The model that the data speaks for; `capacity` rows are enough to hold it."""
        return learn(self.problem, state.data.head(capacity), state.kernels, self.gp)

    def planner(self, model: GPDynamics, multiplier: Array, reward_weights: Float[Array, " reward"]) -> Planner:
        """What decides, for the mixture of rewards that a phase or a task asks for (see `reward_weights`)."""
        settings, recipe = self.objective, self.recipe
        tasks = tuple(TaskReward(self.problem, task) for task in self.problem.tasks)
        rewards: tuple[PlanReward, ...] = (INTRINSIC[settings.intrinsic](self.problem), *tasks)
        objective = Objective(
            Mixture(rewards, reward_weights),
            num_particles=settings.num_particles if recipe.is_pessimistic else 1,
            is_optimistic=settings.is_optimistic,
            constraint=settings.constraint if recipe.is_constrained else None,
        )
        return Planner(self.problem, model, objective, multiplier, self.planning)

    def phase_weights(self, phase: Phase) -> Float[Array, " reward"]:
        """The rewards that drive a phase: the intrinsic one alone, or the chosen task's alone."""
        if self.recipe.is_intrinsic(phase):
            return jnp.zeros((1 + len(self.problem.tasks),)).at[0].set(1.0)
        return self.task_weights(self.objective.task)

    def task_weights(self, task: str) -> Float[Array, " reward"]:
        """The rewards of a zero-shot evaluation: one task's alone."""
        index = list(self.problem.tasks).index(task)
        return jnp.zeros((1 + len(self.problem.tasks),)).at[1 + index].set(1.0)

    def absorb(self, state: AgentState, model: GPDynamics, record: Decision, capacity: int) -> AgentState:
        """The state after an episode that `model` planned: scored first, then learned from."""
        scores, is_evidence = standard_scores(model, record.state, record.action, record.next_state)
        row = state.data.count
        data = state.data.append(record.state, record.action, record.next_state - record.state)
        kernels = fit_kernels(self.problem, data.head(capacity), state.kernels, self.gp)
        return dataclasses.replace(
            state,
            data=data,
            kernels=kernels,
            scores=jax.lax.dynamic_update_slice_in_dim(state.scores, scores, row, axis=0),
            is_evidence=jax.lax.dynamic_update_slice_in_dim(state.is_evidence, is_evidence, row, axis=0),
        )

    def recalibrate(self, state: AgentState, model: GPDynamics, window: int) -> AgentState:
        """The state with the multiplier that the last `window` predictions ask for."""
        end = state.data.count
        recent = (jnp.arange(state.scores.shape[0]) >= end - window)[:, None] & state.is_evidence
        evidence = Evidence(state.scores, recent)
        return dataclasses.replace(state, multiplier=self.confidence.update(state.multiplier, evidence, model))

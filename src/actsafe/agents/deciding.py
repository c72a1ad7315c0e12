"""One decision and one episode: search, pre-flight check, act."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.models.base import Model
from actsafe.objectives.feedback import Tracking, no_tracking, track
from actsafe.objectives.imagination import ParticleNoise
from actsafe.objectives.pessimism import Objective
from actsafe.planning.icem import Found, ICEMSettings, Memory, Plan, search, shift
from actsafe.problems.base import Problem, State


class Checked(NamedTuple):
    """The plan that passed, or replaced one that did not pass, the pre-flight check."""

    plan: Plan
    pessimistic_cost: Float[Array, ""]
    is_fallback: Bool[Array, ""]
    """The plan that the search chose was not executed."""
    is_certified: Bool[Array, ""]
    """The pessimistic cost of what is executed lies within the budget."""


class EpisodeState(NamedTuple):
    """Where an episode stands."""

    state: State
    memory: Memory
    spent: Float[Array, ""]
    """Cost so far."""
    key: PRNGKeyArray


class Decision(NamedTuple):
    """The record of one decision."""

    state: State
    action: Float[Array, " action"]
    next_state: State
    cost: Float[Array, ""]
    inner_cost: Float[Array, ""]
    rewards: Float[Array, " task"]
    """Of every task of the problem, in the order of `problem.tasks`."""
    plan_value: Float[Array, ""]
    pessimistic_cost: Float[Array, ""]
    """Cost so far plus the pessimistic cost of the plan, limit tightened: what the pre-flight check compared."""
    is_fallback: Bool[Array, ""]
    is_certified: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class PlanningSettings:
    """How a decision is reached."""

    search: ICEMSettings = dataclasses.field(default_factory=ICEMSettings)
    preflight_particles: int = 32
    """Fresh particles of the check before a plan is executed: what was optimised against some is judged by others."""
    feedback_effort: float | None = 1.0
    """Price of an action in the feedback of imagined particles (objectives/feedback.py); None for open loop."""

    def __post_init__(self) -> None:
        if self.preflight_particles < 1:
            raise ValueError(f"planning.preflight_particles must be at least 1, got {self.preflight_particles}")
        if self.feedback_effort is not None and not self.feedback_effort > 0:
            raise ValueError(f"planning.feedback_effort must be positive or None, got {self.feedback_effort}")


class Planner(eqx.Module):
    """Everything that turns a state into an action, for one model and one objective."""

    problem: Problem
    model: Model
    objective: Objective
    multiplier: Float[Array, " state"]
    settings: PlanningSettings = eqx.field(static=True)

    def begin(self, key: PRNGKeyArray) -> EpisodeState:
        """The start of an episode."""
        reset_key, key = jax.random.split(key)
        memory = Memory.empty(self.settings.search, self.problem.action_dim)
        return EpisodeState(self.problem.reset(reset_key), memory, jnp.zeros(()), key)

    def plan(self, state: State, memory: Memory, spent: Float[Array, ""], key: PRNGKeyArray) -> tuple[Checked, Found]:
        """The plan to execute from `state`, checked, and what the search found."""
        noise_key, search_key, check_key = jax.random.split(key, 3)
        budget = self.problem.budget - spent
        horizon, dim = self.settings.search.horizon, self.problem.state_dim

        previous = shift(memory.best)
        tracking = self._track(state, previous)

        def evaluate(plans: Array, noise: ParticleNoise):
            return self.objective.evaluate(
                self.problem,
                self.model,
                state,
                plans,
                gains=tracking.gains,
                noise=noise,
                multiplier=self.multiplier,
                budget=budget,
            )

        def steady(plan: Plan) -> Plan:
            return tracking.follow(self.problem, self.model, state, plan)

        noise = ParticleNoise.draw(noise_key, self.objective.num_particles, horizon, dim)
        found = search(
            lambda plans: evaluate(plans, noise),
            memory,
            search_key,
            self.settings.search,
            steady=None if self.settings.feedback_effort is None else steady,
        )

        fallbacks = jnp.stack([found.safest, previous, jnp.zeros_like(previous)])
        plans = jnp.concatenate([found.best[None], found.memory.elites, fallbacks])
        num_particles = 1 if self.objective.num_particles == 1 else self.settings.preflight_particles
        fresh = ParticleNoise.draw(check_key, num_particles, horizon, dim)
        costs = evaluate(plans, fresh).cost
        return self._check(plans, costs, budget), found

    def _track(self, state: State, plan: Plan) -> Tracking:
        """The feedback of imagined particles around what is left of the previous plan; none for open loop."""
        if self.settings.feedback_effort is None:
            return no_tracking(self.problem, plan.shape[0])
        return track(self.problem, self.model, state, plan, effort=self.settings.feedback_effort)

    def _check(
        self, plans: Float[Array, "plan time action"], costs: Float[Array, " plan"], budget: Float[Array, ""]
    ) -> Checked:
        """The first plan whose cost is within the budget, or else the cheapest; an unknown cost is infinite.

        The last plan is the zero plan S_0: where no cost is known, it is the one.
        """
        is_known = jnp.isfinite(costs)
        costs = jnp.where(is_known, costs, jnp.inf)
        is_feasible = (costs <= budget) & is_known
        cheapest = jnp.where(jnp.any(is_known), jnp.argmin(costs), costs.shape[0] - 1)
        chosen = jnp.where(jnp.any(is_feasible), jnp.argmax(is_feasible), cheapest)
        if self.objective.constraint is None:
            chosen = jnp.zeros_like(chosen)
        return Checked(plans[chosen], costs[chosen], chosen > 0, is_feasible[chosen])

    def decide(self, episode: EpisodeState) -> tuple[EpisodeState, Decision]:
        """One decision: plan, check, act."""
        plan_key, step_key, key = jax.random.split(episode.key, 3)
        checked, found = self.plan(episode.state, episode.memory, episode.spent, plan_key)
        action = checked.plan[0]
        step = self.problem.step(episode.state, action, step_key)
        memory = found.memory._replace(best=checked.plan)
        decision = Decision(
            episode.state,
            action,
            step.state,
            step.cost,
            step.inner_cost,
            step.rewards,
            found.best_value,
            episode.spent + checked.pessimistic_cost,
            checked.is_fallback,
            checked.is_certified,
        )
        return EpisodeState(step.state, memory, episode.spent + step.cost, key), decision

    def advance(self, episode: EpisodeState, num_decisions: int) -> tuple[EpisodeState, Decision]:
        """`num_decisions` decisions; their records are stacked along the leading axis."""
        return jax.lax.scan(lambda e, _: self.decide(e), episode, length=num_decisions)

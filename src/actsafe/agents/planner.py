"""One decision by planning: search, pre-flight check, act."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.agents.base import Decision, Percept, Policy
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


class EpisodeMemory(NamedTuple):
    """What a planner remembers of one environment; `Planner.begin` gives one for each."""

    search: Memory
    spent: Float[Array, ""]
    """Cost of the episode so far."""
    key: PRNGKeyArray


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


class Planner(Policy):
    """Everything that turns a state into an action, for one model and one objective."""

    problem: Problem
    model: Model
    objective: Objective
    multiplier: Float[Array, "*seed state"]
    settings: PlanningSettings = eqx.field(static=True)
    is_observed: bool = eqx.field(static=True, default=False)
    """Whether reward and cost belong to the state, as for `ObservedProblem`."""

    def begin(self, num_envs: int, key: PRNGKeyArray) -> EpisodeMemory:
        """No elites, nothing spent. One environment has the second half of `key` as its random stream."""
        key = jax.random.split(key)[1]
        keys = key[None] if num_envs == 1 else jax.random.split(key, num_envs)
        memory = Memory.empty(self.settings.search, self.problem.action_dim)
        return EpisodeMemory(
            jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_envs, *leaf.shape)), memory),
            jnp.zeros((num_envs,)),
            keys,
        )

    def act(self, memory: EpisodeMemory, encoded: Array, percept: Percept) -> tuple[Decision, EpisodeMemory]:
        """Plan anew in every environment, check, and take the first action of what passed."""
        inputs = (memory, encoded, percept)
        if encoded.shape[0] > 1:
            return jax.vmap(self._decide)(*inputs)
        # A map over one would be another program than the one environment's own.
        outputs = self._decide(*jax.tree.map(lambda leaf: leaf[0], inputs))
        return jax.tree.map(lambda leaf: leaf[None], outputs)

    def _decide(self, memory: EpisodeMemory, observation: Array, percept: Percept) -> tuple[Decision, EpisodeMemory]:
        # Environments on the host give single precision.
        state, reward, costs = (
            part.astype(self.multiplier.dtype) for part in (observation, percept.reward, percept.costs)
        )
        if self.is_observed:
            state = jnp.concatenate([state, reward[None], costs[:1]])
        spent = jnp.where(percept.is_first, 0.0, memory.spent + costs[0])
        begun = Memory.empty(self.settings.search, self.problem.action_dim)
        remembered = jax.tree.map(lambda new, old: jnp.where(percept.is_first, new, old), begun, memory.search)
        plan_key, _, key = jax.random.split(memory.key, 3)
        checked, found = self.plan(state, remembered, spent, plan_key)
        decision = Decision(
            checked.plan[0],
            found.best_value,
            spent + checked.pessimistic_cost,
            checked.is_certified,
            checked.is_fallback,
        )
        return decision, EpisodeMemory(found.memory._replace(best=checked.plan), spent, key)

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


class SeedPolicy(Policy):
    """The safe seed policy S_0: zero input."""

    action_dim: int = eqx.field(static=True)

    def begin(self, num_envs: int, key: PRNGKeyArray) -> PRNGKeyArray:
        """The random stream, of which nothing is drawn."""
        return key

    def act(self, memory: PRNGKeyArray, encoded: Array, percept: Percept) -> tuple[Decision, PRNGKeyArray]:
        """Nothing was predicted or checked."""
        unknown = jnp.full(percept.is_first.shape, jnp.inf)
        no = jnp.zeros(percept.is_first.shape, bool)
        action = jnp.zeros((*percept.is_first.shape, self.action_dim))
        return Decision(action, -unknown, unknown, no, no), memory

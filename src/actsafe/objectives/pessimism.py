"""The value and the pessimistic cost of a plan: optimism about reward, pessimism about cost, same particles."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.models.base import Model
from actsafe.objectives.feedback import Gains
from actsafe.objectives.imagination import ParticleNoise, imagine
from actsafe.objectives.rewards import PlanReward
from actsafe.planning.icem import Evaluation, Plan, Plans
from actsafe.problems.base import Problem, State


@dataclasses.dataclass(frozen=True)
class Constraint:
    """How the cost is kept under its budget."""

    penalty: float = 1e7
    """Lambda: value lost per unit of pessimistic cost above the budget; large enough to outweigh any reward."""
    margin: float = 0.1
    """Tightening of the problem's limit while planning, in the limit's units; costs are counted without it."""

    def __post_init__(self) -> None:
        if not self.penalty > 0:
            raise ValueError(f"constraint.penalty must be positive, got {self.penalty}")
        if not self.margin >= 0:
            raise ValueError(f"constraint.margin must be at least 0, got {self.margin}")


class Objective(eqx.Module):
    """What to maximise, and which pessimistic cost to keep under budget.

        maximise  max_p J(plan, p) - lambda max(max_p J_c(plan, p) - d, 0)

    over particles p (paper, appendix on GP experiments).
    """

    reward: PlanReward
    num_particles: int = eqx.field(static=True)
    is_optimistic: bool = eqx.field(static=True)
    """Take the reward's maximum over particles, or else its mean."""
    constraint: Constraint | None = eqx.field(static=True)
    """None ignores the cost."""

    def __check_init__(self) -> None:
        if self.num_particles < 1:
            raise ValueError(f"an objective needs at least 1 particle, got num_particles={self.num_particles}")

    def evaluate(
        self,
        problem: Problem,
        model: Model,
        state: State,
        plans: Plans,
        *,
        gains: Gains,
        noise: ParticleNoise,
        multiplier: Float[Array, " state"],
        budget: Float[Array, ""],
    ) -> Evaluation:
        """Value and pessimistic cost of every plan, with `budget` left to spend.

        A plan that leads any particle to a state that is not finite has an infinite cost, whichever coordinates the
        cost looks at.
        """
        margin = 0.0 if self.constraint is None else self.constraint.margin

        def one(plan: Plan) -> tuple[Float[Array, ""], Float[Array, ""]]:
            particles = imagine(problem, model, state, plan, gains=gains, noise=noise, multiplier=multiplier)
            costs = jax.vmap(jax.vmap(lambda s: problem.decision_cost(s, margin)))(particles.next_states)
            rewards = jax.vmap(jax.vmap(self.reward))(particles.states, particles.actions, particles.predictions)
            returns = jnp.mean(rewards, axis=-1)
            value = jnp.max(returns) if self.is_optimistic else jnp.mean(returns)
            is_known = jnp.all(jnp.isfinite(particles.next_states)) & jnp.all(jnp.isfinite(costs))
            return value, jnp.where(is_known, jnp.max(jnp.sum(costs, axis=-1)), jnp.inf)

        value, cost = jax.vmap(one)(plans)
        if self.constraint is not None:
            value = value - self.constraint.penalty * jnp.maximum(cost - budget, 0.0)
        return Evaluation(value, cost)

"""The small system that the theorem is tried on: s' = f(s + a) + w from s = 0, with f drawn from an RKHS.

Policies are plans (a_0, a_1, 0) of T = 3 decisions. High states cost, and pay: the best safe policy is at the edge of
what is safe. All policies act alike in all states, so that the distance D of two of them is known exactly.
"""

import dataclasses
import warnings
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from actsafe.theory.circle_kernel import CircleKernel
from actsafe.theory.plausible_models import Band
from actsafe.theory.policy_distance import Smoothness, arrival_distance, step_distance
from actsafe.theory.worst_case import Lattice, largest_sum

REWARD_BOUND, REWARD_SLOPE = 1.0, 0.5
COST_SLOPE = 1.0


@dataclasses.dataclass(frozen=True)
class WorldSettings:
    """The system, the policies and what is asked of them. Lengths are in the state's units."""

    num_decisions: int = 3
    """T."""
    noise_std: float = 0.15
    """sigma of the process noise."""
    norm_bound: float = 1.0
    """B, the RKHS norm of the dynamics."""
    lengthscale: float = 2.0
    circumference: float = 12.0
    """Of the circle that the kernel lives on; more than the inputs that matter span."""
    num_waves: int = 8
    num_centres: int = 4
    """Kernel functions that a system is a combination of."""
    centre_span: float = 1.5
    """Their centres lie between plus and minus this."""
    cost_start: float = 0.05
    """A state costs what it lies above this, up to `cost_bound`."""
    cost_bound: float = 0.4
    """C_max."""
    budget: float = 0.5
    """d, for the sum of costs in an episode."""
    num_actions: int = 61
    """Choices for each of the free actions, evenly spaced around 0."""
    action_step: float = 0.03
    actions_per_cell: int = 1
    """Width of a cell of states, in action steps."""
    seed_radius: int = 1
    """S_0 has the plans whose actions are at most this many steps from 0."""
    most_seed_cost: float = 0.15
    """Systems in which a policy of S_0 costs more are drawn again."""
    least_unsafe_share: float = 0.05
    """Systems in which fewer of the policies are unsafe are drawn again: nothing could go wrong there."""

    def __post_init__(self) -> None:
        if self.num_decisions < 2:
            raise ValueError(
                f"num_decisions must be at least 2: the last action moves nothing; got {self.num_decisions}"
            )
        if not 0.0 <= self.most_seed_cost <= self.budget:
            raise ValueError(
                f"most_seed_cost must lie between 0 and the budget {self.budget}, got {self.most_seed_cost}"
            )


class Bounds(NamedTuple):
    """What the sums of costs, rewards and uncertainty lie between for all models of a set, for every policy."""

    least_cost: Float[Array, "*policies"]
    most_cost: Float[Array, "*policies"]
    least_reward: Float[Array, "*policies"]
    most_reward: Float[Array, "*policies"]
    most_uncertainty: Float[Array, "*policies"]

    @property
    def width(self) -> Float[Array, "*policies"]:
        """The most that two models of the set can differ, in the cost or in the reward of a policy."""
        return jnp.maximum(self.most_cost - self.least_cost, self.most_reward - self.least_reward)


class World(eqx.Module):
    """All of the system that is known before any data."""

    settings: WorldSettings = eqx.field(static=True)
    kernel: CircleKernel
    smoothness: Smoothness = eqx.field(static=True)
    lattice: Lattice
    features: Float[Array, "input feature"]
    """Of the kernel, at the lattice's inputs."""
    distances: tuple[Float[Array, "action action"], ...]
    """What two choices of an action add to D, one matrix per free action."""

    @classmethod
    def create(cls, settings: WorldSettings) -> "World":
        s = settings
        kernel = CircleKernel.create(s.lengthscale, s.circumference, s.num_waves)
        slope = float(s.norm_bound * kernel.slope)
        smoothness = Smoothness(s.num_decisions, s.cost_bound, COST_SLOPE, slope, s.noise_std)
        lattice = Lattice.create(
            num_actions=s.num_actions,
            action_step=s.action_step,
            actions_per_cell=s.actions_per_cell,
            reach=s.norm_bound,
            dynamics_slope=slope,
            noise_std=s.noise_std,
            num_decisions=s.num_decisions,
        )
        gaps = jnp.abs(lattice.actions[:, None] - lattice.actions[None])
        distances = (step_distance(gaps, smoothness),) * (s.num_decisions - 1)
        nearest = float(distances[0][0, 1])
        if s.most_seed_cost + nearest > s.budget:
            warnings.warn(
                f"The safe set may never grow: neighbouring policies are {nearest:.3g} apart by D, and a policy of S_0 "
                f"that costs {s.most_seed_cost:g} leaves {s.budget - s.most_seed_cost:.3g} of the budget. Choose a "
                "smaller action_step",
                stacklevel=2,
            )
        return cls(s, kernel, smoothness, lattice, kernel.features(lattice.inputs), distances)

    @property
    def tightened(self) -> "World":
        """The same world with a smaller D that is valid here too: costs are of the state alone."""
        actions, num_decisions = self.lattice.actions, self.settings.num_decisions
        gaps = jnp.abs(actions[:, None] - actions[None])
        distances = (arrival_distance(gaps, self.smoothness, left) for left in range(num_decisions - 1, 0, -1))
        return dataclasses.replace(self, distances=tuple(distances))

    @property
    def is_seed(self) -> Bool[Array, "*policies"]:
        """S_0."""
        is_near = jnp.abs(jnp.arange(self.settings.num_actions) - self.lattice.zero) <= self.settings.seed_radius
        grid = jnp.meshgrid(*[is_near] * (self.settings.num_decisions - 1), indexing="ij")
        return jnp.all(jnp.stack(grid), axis=0)

    def cost(self, state: Float[Array, "*states"]) -> Float[Array, "*states"]:
        """c(s), in [0, C_max]."""
        return jnp.clip(COST_SLOPE * (state - self.settings.cost_start), 0.0, self.settings.cost_bound)

    def reward(self, state: Float[Array, "*states"]) -> Float[Array, "*states"]:
        """r(s), in [0, R_max]."""
        return jnp.clip(0.5 * REWARD_BOUND + REWARD_SLOPE * state, 0.0, REWARD_BOUND)

    def bounds(self, models: Band, uncertainty: Float[Array, " input"]) -> Bounds:
        """Bounds on sums of costs, rewards and `uncertainty` along an episode, over all `models`, for every policy.

        Costs and rewards rise with the state: within a cell they are largest at its upper end.
        """
        half = 0.5 * self.lattice.cell_width
        below, above = self.lattice.cells - half, self.lattice.cells + half
        nothing = jnp.zeros_like(above)
        by_state = [-self.cost(below), self.cost(above), -self.reward(below), self.reward(above), nothing]
        by_input = jnp.zeros((5, len(uncertainty))).at[4].set(uncertainty)
        ceilings = jnp.stack([0.0, self.settings.cost_bound, 0.0, REWARD_BOUND, jnp.max(uncertainty)])
        sums = jax.vmap(lambda *payoff: largest_sum(self.lattice, models, *payoff))
        low_cost, cost, low_reward, reward, most_uncertainty = sums(jnp.stack(by_state), by_input, ceilings)
        return Bounds(-low_cost, cost, -low_reward, reward, most_uncertainty)

    def true_bounds(self, truth: Float[Array, " feature"]) -> Bounds:
        """The same for one known f = phi . truth: apart from each other by what the grid leaves open."""
        values = self.features @ truth
        return self.bounds(Band(values, values), jnp.zeros_like(values))

    def draw(self, key: PRNGKeyArray) -> tuple[Float[Array, " feature"], Bounds]:
        """A system of norm exactly B whose S_0 is safe and which has unsafe policies, and its true sums."""
        s = self.settings

        def one(key: PRNGKeyArray) -> tuple[Array, Bounds]:
            truth = self.kernel.draw_function(key, norm=s.norm_bound, num_centres=s.num_centres, span=s.centre_span)
            return truth, self.true_bounds(truth)

        def is_unfit(carry: tuple[PRNGKeyArray, Array, Bounds]) -> Bool[Array, ""]:
            cost = carry[2].most_cost
            seed_cost = jnp.max(jnp.where(self.is_seed, cost, 0.0))
            return (seed_cost > s.most_seed_cost) | (jnp.mean(cost > s.budget) < s.least_unsafe_share)

        def again(carry: tuple[PRNGKeyArray, Array, Bounds]) -> tuple[PRNGKeyArray, Array, Bounds]:
            next_key, draw_key = jax.random.split(carry[0])
            return next_key, *one(draw_key)

        _, truth, bounds = jax.lax.while_loop(is_unfit, again, again((key, *one(key))))
        return truth, bounds

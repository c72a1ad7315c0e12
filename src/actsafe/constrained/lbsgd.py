"""Log-barrier steps (LBSGD; Usmanova et al. 2024): short enough that the constraints hold after them as well.

With margins αᵢ = -fᵢ > 0 and barrier weight η, the barrier and its gradient are

    B = f₀ - η Σᵢ log αᵢ,        g = ∇B = ∇f₀ + Σᵢ (η / αᵢ) ∇fᵢ.

A step x - γ g is as long as two bounds allow. Let f₀ be M₀-smooth, every fᵢ M₁-smooth, and θᵢ = ⟨∇fᵢ, g/‖g‖⟩.

*Feasible.* Over a length s = γ ‖g‖, fᵢ grows by at most s |θᵢ| + M₁ s² / 2. Up to s = αᵢ / Dᵢ with
Dᵢ = 2|θᵢ| + √(αᵢ M₁) this is at most αᵢ |θᵢ| / Dᵢ + αᵢ (Dᵢ - 2|θᵢ|)² / (2 Dᵢ²) ≤ αᵢ / 2: half the margin is left.
The least of these lengths leaves every constraint half of its own margin.

*Downhill.* On that segment a margin is at least αᵢ / 2 and its slope along g at most |θᵢ| + √(αᵢ M₁), so its barrier
bends by at most 2 η M₁ / αᵢ + 4 η (|θᵢ| + √(αᵢ M₁))² / αᵢ² ≤ 10 η M₁ / αᵢ + 8 η θᵢ² / αᵢ². Curvatures add up, and
γ ≤ 1 / M₂ lowers B, where

    M₂ = M₀ + Σᵢ (10 η M₁ / αᵢ + 8 η θᵢ² / αᵢ²).

Where a margin is not above `MARGIN_FLOOR` there is no barrier: the objective is ignored, and the sum of the violated
constraints is descended. Every feasible step divides η by 1 + decay.

*Deviation:* margins and gradients are estimates from imagined rollouts, and are taken at their word where Usmanova et
al. take confidence bounds of them. What is guaranteed is guaranteed for the problem as estimated.
"""

import dataclasses
import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from actsafe.constrained.base import ConstrainedStep, Gradient, Info, Linearisation, require_positive
from actsafe.constrained.optimisers import clipped_adam
from actsafe.constrained.slope import Slope, report, scaled, slope
from actsafe.problems.checking import checked_number

MARGIN_FLOOR = 1e-8
"""A margin at or below this counts as violated."""


@dataclasses.dataclass(frozen=True)
class Barrier:
    """The numbers that both forms of LBSGD share."""

    loss_smoothness: float = 1.2e4
    """M₀: bound on the curvature of the loss."""
    cost_smoothness: float = 1.2e4
    """M₁: bound on the curvature of every constraint."""
    initial_weight: float = 0.1
    """η before the first step."""
    weight_decay: float = 8e-6
    """Every feasible step divides η by 1 plus this; 0 keeps it."""
    recovery_step: float = 0.01
    """Factor on the violated constraints' gradient where the point is infeasible. Adam weighs it against what it was
    given before, factors of up to about 1: with the released 0.01 it goes on as it went for 45 steps, and then turns
    back a hundred times as slowly, until it forgets in some thousands."""

    def __post_init__(self) -> None:
        require_positive(
            self,
            loss_smoothness=self.loss_smoothness,
            cost_smoothness=self.cost_smoothness,
            initial_weight=self.initial_weight,
            recovery_step=self.recovery_step,
        )
        checked_number("Barrier.weight_decay", self.weight_decay, at_least=0.0)


class BarrierState(NamedTuple):
    """What LBSGD remembers."""

    num_feasible: Int[Array, ""]
    """Feasible steps taken; the barrier's weight follows from it."""


class _Ahead(NamedTuple):
    """What lies ahead of the point that a step is to leave."""

    descended: Slope
    """Of the barrier, or of the violated constraints."""
    multipliers: Float[Array, " constraint"]
    """Weights of the constraints in it."""
    weight: Float[Array, ""]
    """η."""
    is_feasible: Bool[Array, ""]
    num_violated: Int[Array, ""]
    safe_length: Float[Array, ""]
    """minᵢ αᵢ / (2|θᵢ| + √(αᵢ M₁))."""
    curvature: Float[Array, ""]
    """M₂."""


class LBSGD(ConstrainedStep):
    """LBSGD as released with the paper: γ is a weight on the gradient that Adam is given.

        direction = γ / lr · g,      γ = min{ minᵢ αᵢ / (2|θᵢ| + √(αᵢ M₁)),  1 / M₂ }

    *Deviation:* from LBSGD as published. The first bound is a length that lacks its 1/‖g‖, and Adam rescales what it
    is given: near the boundary γ weighs a gradient down against its predecessors, but bounds no step. `StrictLBSGD`
    does.
    """

    barrier: Barrier = eqx.field(default=Barrier(), static=True)
    unit_step: float = eqx.field(default=8e-5, static=True)
    """lr: the γ that becomes a factor of 1. It is the actor's learning rate, and 1 / M₀ is about as large."""

    def __check_init__(self) -> None:
        require_positive(self, unit_step=self.unit_step)

    def init(self, num_constraints: int) -> BarrierState:
        return BarrierState(jnp.zeros((), jnp.int32))

    def direction(self, state: BarrierState, linearisation: Linearisation) -> tuple[Gradient, BarrierState, Info]:
        ahead = _look_ahead(self.barrier, state, linearisation)
        step = jnp.minimum(ahead.safe_length, 1.0 / ahead.curvature)
        factor = jnp.where(ahead.is_feasible, step / self.unit_step, self.barrier.recovery_step)
        return _taken(state, ahead, factor)

    def optimiser(self, learning_rate: float) -> optax.GradientTransformation:
        return clipped_adam(learning_rate)


class StrictLBSGD(ConstrainedStep):
    """LBSGD as published: plain steps, after each of which every margin is at least half of what it was.

        direction = γ g,      γ = min{ minᵢ αᵢ / ((2|θᵢ| + √(αᵢ M₁)) ‖g‖),  1 / M₂ }

    Where k constraints are violated, γ = min{ recovery step, 1 / (k M₁) }: their sum is k M₁-smooth, and every such
    step lowers it.
    """

    barrier: Barrier = eqx.field(default=Barrier(), static=True)

    def init(self, num_constraints: int) -> BarrierState:
        return BarrierState(jnp.zeros((), jnp.int32))

    def direction(self, state: BarrierState, linearisation: Linearisation) -> tuple[Gradient, BarrierState, Info]:
        ahead = _look_ahead(self.barrier, state, linearisation)
        norm = ahead.descended.norm
        step = jnp.minimum(ahead.safe_length / jnp.where(norm > 0, norm, 1.0), 1.0 / ahead.curvature)
        smoothness = self.barrier.cost_smoothness * jnp.maximum(ahead.num_violated, 1)
        recovery = jnp.minimum(self.barrier.recovery_step, 1.0 / smoothness)
        return _taken(state, ahead, jnp.where(ahead.is_feasible, step, recovery))

    def optimiser(self, learning_rate: float) -> optax.GradientTransformation:
        """Plain descent: the direction is the step, and the learning rate is not used."""
        return optax.sgd(1.0)


def barrier_weight(barrier: Barrier, state: BarrierState) -> Float[Array, ""]:
    """η after the feasible steps so far: a power, because single precision cannot divide by 1 + 8e-6 exactly."""
    return barrier.initial_weight * jnp.exp(-state.num_feasible * math.log1p(barrier.weight_decay))


def _look_ahead(barrier: Barrier, state: BarrierState, linearisation: Linearisation) -> _Ahead:
    is_violated = ~(linearisation.margins > MARGIN_FLOOR)
    is_feasible = ~jnp.any(is_violated)
    # alpha: margins, eta: the barrier's weight, theta: rates of the costs along g; a violated margin enters nothing.
    alpha = jnp.where(is_violated, 1.0, linearisation.margins)
    eta = barrier_weight(barrier, state)
    multipliers = jnp.where(is_feasible, eta / alpha, is_violated.astype(alpha.dtype))
    descended = slope(linearisation, is_feasible.astype(alpha.dtype), multipliers)
    theta = descended.cost_rates
    m0, m1 = barrier.loss_smoothness, barrier.cost_smoothness
    return _Ahead(
        descended,
        multipliers,
        eta,
        is_feasible,
        num_violated=jnp.sum(is_violated),
        safe_length=jnp.min(alpha / (2.0 * jnp.abs(theta) + jnp.sqrt(alpha * m1)), initial=jnp.inf),
        curvature=m0 + jnp.sum(10.0 * eta * m1 / alpha + 8.0 * eta * (theta / alpha) ** 2),
    )


def _taken(state: BarrierState, ahead: _Ahead, step_size: Float[Array, ""]) -> tuple[Gradient, BarrierState, Info]:
    info = report(ahead.descended, is_feasible=ahead.is_feasible, step_size=step_size, multipliers=ahead.multipliers)
    info["barrier_weight"] = ahead.weight.astype(ahead.descended.norm.dtype)
    is_counted = ahead.is_feasible & ahead.descended.is_sound
    state = BarrierState(state.num_feasible + is_counted.astype(jnp.int32))
    return scaled(ahead.descended, step_size), state, info

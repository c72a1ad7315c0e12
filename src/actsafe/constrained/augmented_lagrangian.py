"""The augmented Lagrangian: a price per unit of cost over budget, which rises while the budget is exceeded."""

import math
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from actsafe.constrained.base import ConstrainedStep, Gradient, Info, Linearisation, require_positive
from actsafe.constrained.optimisers import clipped_adam
from actsafe.constrained.slope import choose, report, scaled, slope
from actsafe.problems.checking import checked_number


class MultiplierState(NamedTuple):
    """What the augmented Lagrangian remembers."""

    multipliers: Float[Array, " constraint"]
    num_steps: Int[Array, ""]
    """Steps taken; the penalty follows from it."""


class AugmentedLagrangian(ConstrainedStep):
    """Descends f₀ + Σᵢ ψ(fᵢ; μᵢ, c), after LAMBDA (As et al. 2022; Nocedal and Wright, eq. 17.65):

        ψ(f; μ, c) = μ f + c f² / 2   where μ + c f > 0,   else  -μ² / (2 c)
        μ ← max(0, μ + c f),          c ← min(1, c (1 + growth))

    with fᵢ = -αᵢ the cost above its budget. ∂ψ/∂f = max(0, μ + c f): the weight of a constraint's gradient is its
    multiplier after the update. Nothing keeps the iterates feasible on the way; that is what LBSGD is for.
    """

    initial_multiplier: float = eqx.field(default=1e-4, static=True)
    """μ of every constraint at the start."""
    initial_penalty: float = eqx.field(default=5e-8, static=True)
    """c at the start, at most 1."""
    penalty_growth: float = eqx.field(default=8e-6, static=True)
    """Relative growth of c with every step; 0 keeps it."""

    def __check_init__(self) -> None:
        require_positive(self, initial_penalty=self.initial_penalty)
        checked_number("AugmentedLagrangian.initial_multiplier", self.initial_multiplier, at_least=0.0)
        checked_number("AugmentedLagrangian.penalty_growth", self.penalty_growth, at_least=0.0)
        if self.initial_penalty > 1:
            raise ValueError(
                f"AugmentedLagrangian.initial_penalty: got {self.initial_penalty}, expected at most 1, where it stops "
                "growing; change it or leave it out for the default."
            )

    def init(self, num_constraints: int) -> MultiplierState:
        multipliers = jnp.full((num_constraints,), self.initial_multiplier, dtype=float)
        return MultiplierState(multipliers, jnp.zeros((), jnp.int32))

    def direction(self, state: MultiplierState, linearisation: Linearisation) -> tuple[Gradient, MultiplierState, Info]:
        if state.multipliers.shape != linearisation.margins.shape:
            raise ValueError(
                f"margins: got shape {linearisation.margins.shape}, expected {state.multipliers.shape}, the number of "
                "constraints that `init` was given; pass as many margins."
            )
        penalty = self.penalty(state)
        multipliers = jnp.maximum(0.0, state.multipliers - penalty * linearisation.margins)
        multipliers = multipliers.astype(state.multipliers.dtype)
        descended = slope(linearisation, 1.0, multipliers)
        is_feasible = jnp.all(linearisation.margins > 0)
        info = report(descended, is_feasible=is_feasible, step_size=1.0, multipliers=multipliers)
        info["penalty"] = penalty.astype(descended.norm.dtype)
        state = choose(descended.is_sound, MultiplierState(multipliers, state.num_steps + 1), state)
        return scaled(descended, 1.0), state, info

    def penalty(self, state: MultiplierState) -> Float[Array, ""]:
        """c after the steps taken so far: a power, because single precision cannot multiply by 1 + 8e-6 exactly."""
        return jnp.minimum(1.0, self.initial_penalty * jnp.exp(state.num_steps * math.log1p(self.penalty_growth)))

    def optimiser(self, learning_rate: float) -> optax.GradientTransformation:
        return clipped_adam(learning_rate)

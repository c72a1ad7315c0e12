"""The step that ignores the constraints: what the unsafe baselines take."""

import jax
import jax.numpy as jnp
import optax

from actsafe.constrained.base import ConstrainedStep, Gradient, Info, Linearisation
from actsafe.constrained.optimisers import clipped_adam
from actsafe.constrained.slope import report, scaled, slope


class Unconstrained(ConstrainedStep):
    """Descends ∇f₀. Margins are reported (`is_feasible`) and costs are otherwise not read: only a loss that is not
    finite, itself or in its gradient, skips a step."""

    def init(self, num_constraints: int) -> tuple[()]:
        return ()

    def direction(self, state: tuple[()], linearisation: Linearisation) -> tuple[Gradient, tuple[()], Info]:
        no_costs = jax.tree.map(lambda leaf: leaf[:0], linearisation.cost_gradients)
        alone = linearisation._replace(margins=linearisation.margins[:0], cost_gradients=no_costs)
        descended = slope(alone, 1.0, alone.margins)
        is_feasible = jnp.all(linearisation.margins > 0)
        info = report(descended, is_feasible=is_feasible, step_size=1.0, multipliers=alone.margins)
        return scaled(descended, 1.0), state, info

    def optimiser(self, learning_rate: float) -> optax.GradientTransformation:
        return clipped_adam(learning_rate)

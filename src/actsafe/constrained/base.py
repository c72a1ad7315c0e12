"""What a constrained step is: gradients of a loss and of its constraints in, a direction to descend out."""

import abc
import math
from typing import Any, NamedTuple

import equinox as eqx
import optax
from jaxtyping import Array, Float, PyTree

Gradient = PyTree[Float[Array, "..."]]
Info = dict[str, Float[Array, ""]]


class Linearisation(NamedTuple):
    """A loss and its margins at one point, with their gradients there."""

    loss: Float[Array, ""]
    """f₀, minimised."""
    margins: Float[Array, " constraint"]
    """αᵢ = budget - pessimistic cost return; positive is safe. The constraint is fᵢ = -αᵢ ≤ 0."""
    loss_gradient: Gradient
    """∇f₀."""
    cost_gradients: Gradient
    """∇fᵢ = -∇αᵢ: the tree of `loss_gradient` with a leading axis constraint."""


class ConstrainedStep(eqx.Module):
    """How a loss is lowered under constraints: a frozen rule; what it remembers is in the state that it hands on.

    Every member reports at least these, as floats that are finite whatever came in:

        is_feasible    1 where every margin was above 0 (LBSGD: above `MARGIN_FLOOR`) and the step was not skipped
        is_skipped     1 where something was not finite: the direction is zero and the state stays as it was
        step_size      the factor between the gradient that is descended and the direction
        gradient_norm  the norm of that gradient
        multiplier     the largest weight that a constraint's gradient has in it
    """

    @abc.abstractmethod
    def init(self, num_constraints: int) -> Any:
        """The state before the first step: a pytree of arrays."""

    @abc.abstractmethod
    def direction(self, state: Any, linearisation: Linearisation) -> tuple[Gradient, Any, Info]:
        """The direction to descend, the next state, and what happened."""

    @abc.abstractmethod
    def optimiser(self, learning_rate: float) -> optax.GradientTransformation:
        """What turns directions into changes of the parameters."""


def require_positive(owner: Any, **settings: float) -> None:
    """Raise ValueError unless every setting of `owner` is finite and above 0."""
    for name, value in settings.items():
        if not 0 < value < math.inf:
            raise ValueError(
                f"{type(owner).__name__}.{name}: got {value!r}, expected a finite number above 0; "
                "change it or leave it out for the default."
            )

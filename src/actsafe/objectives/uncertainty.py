"""How unsure an ensemble is of what follows, as one number: what exploration seeks and pessimism charges for."""

import abc
import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from actsafe.models.base import Disagreement


class Uncertainty(eqx.Module):
    """A measure of uncertainty."""

    @abc.abstractmethod
    def __call__(self, disagreement: Disagreement) -> Float[Array, "*rows"]:
        """At least 0; 0 where all members agree."""


class EpistemicNorm(Uncertainty):
    """‖σ_n‖ = √(Σ_j σ²_j) over the epistemic variances: the paper's, in intrinsic reward and pessimism alike."""

    def __call__(self, disagreement: Disagreement) -> Float[Array, "*rows"]:
        total = jnp.sum(disagreement.epistemic_var, axis=-1)
        # The root's slope at 0 is infinite; nothing is lost by starting it a little later.
        return jnp.sqrt(total + 1e-12) - 1e-6


class LogRatio(Uncertainty):
    """½ log(1 + scale · σ²_epistemic / (σ²_aleatoric + 10⁻⁵)), each averaged over features: what the authors ran."""

    scale: float = eqx.field(default=1.0, static=True)

    def __call__(self, disagreement: Disagreement) -> Float[Array, "*rows"]:
        epistemic = jnp.mean(disagreement.epistemic_var, axis=-1)
        aleatoric = jnp.mean(disagreement.aleatoric_var, axis=-1)
        return 0.5 * jnp.log1p(self.scale * epistemic / (aleatoric + 1e-5))


@dataclasses.dataclass(frozen=True)
class UncertaintySettings:
    """What uncertainty is and what it is used for."""

    form: str = "norm"
    """norm (the paper's ‖σ‖) or log_ratio (the released code's)."""
    ratio_scale: float = 1.0
    """The scale inside log_ratio."""
    intrinsic: float = 10.0
    """The intrinsic reward is this times the uncertainty."""
    pessimism: float = 1e-3
    """λ: every cost is charged this times the uncertainty in addition."""
    optimism: float = 1.0
    """Every reward gets this times the uncertainty in addition, where the algorithm's objective is optimistic."""
    is_outcome_averaged: bool = False
    """Whether imagined rewards and costs are means over what all members expect (the released code), or those of the
    member that is believed (the paper)."""
    is_intrinsic_differentiated: bool = False
    """Whether the actor follows the intrinsic reward's gradient too, or only the critic's (the released code)."""

    is_intrinsic_normalised: bool = False
    """Whether the exploration's loss is divided by the range of its returns, a running average of their 95th minus
    their 5th percentile, as DreamerV3 does. The intrinsic reward falls by orders of magnitude while the model learns,
    and the barrier does not: without it the noise of the cost's critic comes to outweigh the objective."""
    smallest_range: float = 1e-2
    """The least that the loss is divided by, where `is_intrinsic_normalised`: differences below it are noise."""

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"agent.uncertainty.form must be one of {', '.join(FORMS)}, got {self.form!r}")
        for name in ("ratio_scale", "intrinsic", "pessimism", "optimism"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(
                    f"agent.uncertainty.{name} must be a finite number of at least 0, got {getattr(self, name)}"
                )

        if not 0 < self.smallest_range < float("inf"):
            raise ValueError(f"agent.uncertainty.smallest_range must be positive, got {self.smallest_range}")

    def measure(self) -> Uncertainty:
        return FORMS[self.form](self)


FORMS = {
    "norm": lambda settings: EpistemicNorm(),
    "log_ratio": lambda settings: LogRatio(settings.ratio_scale),
}


def planner_budget(
    budget: float, *, num_decisions: int, discount: float, slack: float = 0.0, released_repeat: int | None = None
) -> float:
    """The bound on a discounted cost return that stands for `budget`, the bound on an episode's sum of costs.

    A policy that spends evenly spends budget / num_decisions at each decision, and Σ γ^t of that is
    (budget / num_decisions) / (1 − γ). `num_decisions` counts decisions, not simulator steps: costs are summed over
    the action repeat. The released code divides by simulator steps, which is `released_repeat` times as strict.
    """
    steps = num_decisions if released_repeat is None else num_decisions * released_repeat
    return budget / steps / (1.0 - discount) + slack

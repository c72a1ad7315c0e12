"""How far the expected cost of one policy can lie from that of another: D(pi, pi')."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


@dataclasses.dataclass(frozen=True)
class Smoothness:
    """What is known of a problem before any data, in the problem's own units."""

    num_decisions: int
    """T, decisions in an episode."""
    cost_bound: float
    """C_max: a running cost lies in [0, C_max]."""
    cost_slope: float
    """L_c: Lipschitz constant of the running cost."""
    dynamics_slope: float
    """L_f: Lipschitz constant of the dynamics."""
    noise_std: float
    """sigma of the Gaussian process noise."""

    def __post_init__(self) -> None:
        for field in ("num_decisions", "cost_bound", "noise_std"):
            if not getattr(self, field) > 0:
                raise ValueError(f"{field} must be positive, got {getattr(self, field)}")
        for field in ("cost_slope", "dynamics_slope"):
            if not getattr(self, field) >= 0:
                raise ValueError(f"{field} must be at least 0, got {getattr(self, field)}")


def step_distance(gap: Float[Array, "*gaps"], smoothness: Smoothness) -> Float[Array, "*gaps"]:
    """What one decision adds to D when the two actions are `gap` = ||pi'(s) - pi(s)|| apart.

        min{L_c gap, 2 C_max} + T C_max min{L_f gap / sigma, 1}

    The first term is the cost of the other action itself, the second that of arriving elsewhere: two Gaussians whose
    means are L_f gap apart can be told apart with probability at most L_f gap / sigma.
    """
    known = smoothness
    itself = jnp.minimum(known.cost_slope * gap, 2.0 * known.cost_bound)
    afterwards = jnp.minimum(known.dynamics_slope * gap / known.noise_std, 1.0)
    return itself + known.num_decisions * known.cost_bound * afterwards


def arrival_distance(gap: Float[Array, "*gaps"], smoothness: Smoothness, num_left: int) -> Float[Array, "*gaps"]:
    """The same where the running cost is of the state alone and `num_left` decisions follow: a tighter bound.

        num_left C_max (2 Phi(L_f gap / 2 sigma) - 1)

    The factor on the right is the total variation of two Gaussians whose means are L_f gap apart, at most
    0.4 L_f gap / sigma; what it is multiplied with bounds the costs that are still to come.
    """
    known = smoothness
    variation = jax.scipy.special.erf(known.dynamics_slope * gap / (2.0 * math.sqrt(2.0) * known.noise_std))
    return num_left * known.cost_bound * variation


def policy_distance(
    gaps: Float[Array, "*policies time outcome"],
    probabilities: Float[Array, "*#policies time outcome"],
    smoothness: Smoothness,
) -> Float[Array, "*policies"]:
    """D(pi, pi') ≥ J_c(pi) - J_c(pi'), the most by which the expected cost of pi exceeds that of pi'.

        D(pi, pi') = E_(tau of pi')[sum_t min{L_c gap_t, 2 C_max} + T C_max min{L_f gap_t / sigma, 1}]

    `gaps` are ||pi'(s_t) - pi(s_t)|| at the states that pi' can be in at time t, `probabilities` those of the states,
    which sum to one over the last axis. Where a gap is the same in all states, one outcome of probability one will do,
    and D is known without knowing the dynamics. Definition 4.2 of the paper; that it bounds the difference in cost is
    its lemma "Comparing safety costs of policies". In units of cost.
    """
    return jnp.sum(probabilities * step_distance(gaps, smoothness), axis=(-2, -1))

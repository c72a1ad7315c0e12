"""How wrong a model can be about a cost, and after how many episodes no more than epsilon."""

import dataclasses
import math
from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

MOST_EPISODES = 2.0**200
"""Where the search for n* gives up."""


def cost_error_bound(
    epistemic_std: Float[Array, "*policies time"],
    multiplier: Float[Array, ""] | float,
    *,
    cost_bound: float,
    noise_std: float,
    state_dim: int = 1,
) -> Float[Array, "*policies"]:
    """|J_c(pi, f) - J_c(pi, f*)| ≤ T C_max E[sum_t (1 + sqrt(d_s)) beta ||sigma(s_t, pi(s_t))|| / sigma], for f in M.

    `epistemic_std` is E||sigma_(n-1)(s_t, pi(s_t))|| at each decision, along trajectories of pi under f*. Holds for any
    running cost in [0, C_max], rewards and uncertainty included, as long as f* is in M. In units of cost. Lemma "bound
    on cost" in the paper's appendix.
    """
    num_decisions = epistemic_std.shape[-1]
    factor = num_decisions * cost_bound * (1.0 + math.sqrt(state_dim)) / noise_std
    return factor * multiplier * jnp.sum(epistemic_std, axis=-1)


@dataclasses.dataclass(frozen=True)
class Difficulty:
    """The constants of Theorem 4.1, in the problem's units."""

    num_decisions: int
    """T."""
    num_expansions: int
    """H, of the reachable set."""
    epsilon: float
    """The error allowed in costs and rewards of an episode."""
    payoff_bound: float
    """max{C_max, R_max, sigma_0}, where sigma_0 is the prior std of the dynamics."""
    prior_std: float
    """sigma_0."""
    noise_std: float
    """sigma."""
    state_dim: int = 1
    """d_s."""

    def __post_init__(self) -> None:
        for field in ("num_decisions", "epsilon", "payoff_bound", "prior_std", "noise_std", "state_dim"):
            if not getattr(self, field) > 0:
                raise ValueError(f"{field} must be positive, got {getattr(self, field)}")
        if self.num_expansions < 0:
            raise ValueError(f"num_expansions must be at least 0, got {self.num_expansions}")

    @property
    def required_ratio(self) -> float:
        """What n / (gamma_n beta_n^4) must reach.

            (H + 1) T^6 C^4 d_s sigma_0^2 / (log(1 + sigma_0^2 / sigma^2) epsilon^2)

        C = (1 + sqrt(d_s)) max{C_max, R_max, sigma_0} / sigma. The theorem's statement leaves out the division by sigma
        that its proof has; ours is the proof's, and n* the larger for it where sigma < 1.
        """
        c = (1.0 + math.sqrt(self.state_dim)) * self.payoff_bound / self.noise_std
        uncertainty = self.state_dim * self.prior_std**2 / math.log1p((self.prior_std / self.noise_std) ** 2)
        return (self.num_expansions + 1) * self.num_decisions**6 * c**4 * uncertainty / self.epsilon**2


def required_episodes(
    difficulty: Difficulty, gain: Callable[[float], float], multiplier: Callable[[float], float]
) -> float:
    """n*: the smallest n with n / (gamma_n beta_n^4) ≥ `difficulty.required_ratio`. Theorem 4.1 of the paper.

    `gain` and `multiplier` say gamma_n and beta_n after n episodes; the ratio must grow with n from where it first
    exceeds zero, as it does for a gain that grows like a logarithm. A whole number as long as floats are exact (2^53);
    infinite when 2^200 episodes do not suffice.
    """

    def is_enough(episodes: float) -> bool:
        return episodes >= difficulty.required_ratio * gain(episodes) * multiplier(episodes) ** 4

    high = 1.0
    while not is_enough(high):
        high *= 2.0
        if high > MOST_EPISODES:
            return math.inf
    low = high / 2.0
    while high - low > max(1.0, high * 2.0**-52):
        middle = float(math.floor((low + high) / 2.0))
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high

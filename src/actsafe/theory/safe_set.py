"""Which policies are known to be safe, S_n, and which could ever become known, R^epsilon_H.

Policies are arranged along one or several axes, and the distance of two policies is the sum of their distances along
the axes: D(pi, pi') = sum_i distances[i][pi_i, pi'_i]. For a class without structure that is one axis and one matrix.
For plans whose actions a_0, a_1, ... may each be chosen from a list it is D as defined, with one axis per action, and
the cost of finding the nearest safe policy grows with the number of policies instead of its square.
"""

import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

Distances = Sequence[Float[Array, "_ _"]]
"""distances[i][j, k]: from policies at place k of axis i to policies at place j."""


def pessimistic_cost(costs: Float[Array, "*policies model"]) -> Float[Array, "*policies"]:
    """P_n(pi) = max_(f in M_n) J_c(pi, f), for finitely many models. Definition 4.2 of the paper.

    For a band of models on a grid see `worst_case.largest_sum`. A cost that is not a number counts as infinite.
    """
    return jnp.max(jnp.where(jnp.isnan(costs), jnp.inf, costs), axis=-1)


def least_transferred_cost(
    is_safe: Bool[Array, "*policies"], cost: Float[Array, "*policies"], distances: Distances
) -> Float[Array, "*policies"]:
    """min_(pi' in S) cost(pi') + D(pi, pi'), for every pi: the best bound on its cost that a safe policy lends it."""
    best = jnp.where(is_safe & ~jnp.isnan(cost), cost, jnp.inf)
    for axis, distance in enumerate(distances):
        # The policies that are minimised over come first: CPUs reduce over a leading axis several times as fast.
        lent = jnp.moveaxis(best, axis, 0)[:, None]
        apart = jnp.expand_dims(distance.T, tuple(range(2, lent.ndim)))
        best = jnp.moveaxis(jnp.min(lent + apart, axis=0), 0, axis)
    return best


def expand(
    is_safe: Bool[Array, "*policies"],
    cost: Float[Array, "*policies"],
    distances: Distances,
    budget: Float[Array, ""] | float,
) -> Bool[Array, "*policies"]:
    """S_n = S_(n-1) ∪ {pi: there is pi' in S_(n-1) with P_n(pi') + D(pi, pi') ≤ d}. Definition 4.2 of the paper.

    `cost` is P_n and `budget` d. With J_c and d - epsilon it is one step of the reachable set. Warns, outside of
    compiled programs, where costs of policies in S contradict D: with a D that is too small, unsafe policies join.
    """
    if not isinstance(is_safe, Tracer):
        _warn_of_steep_costs(jnp.where(is_safe, cost, jnp.inf), distances)
    return is_safe | (least_transferred_cost(is_safe, cost, distances) <= budget)


def is_valid_distance(
    least_cost: Float[Array, "*policies"], most_cost: Float[Array, "*policies"], distances: Distances
) -> Bool[Array, ""]:
    """Whether cost(pi) ≤ cost(pi') + D(pi, pi') for all policies, as far as bounds on the costs tell."""
    bound = least_transferred_cost(jnp.ones(most_cost.shape, bool), most_cost, distances)
    return ~jnp.any(jnp.isfinite(least_cost) & (least_cost > bound + 1e-9))


def reachable_set(
    is_seed: Bool[Array, "*policies"],
    true_cost: Float[Array, "*policies"],
    distances: Distances,
    *,
    budget: float,
    epsilon: float,
    num_expansions: int,
) -> Bool[Array, "*policies"]:
    """R^epsilon_H(S_0): what H expansions reach from S_0 when the costs are known to epsilon. Theorem 4.1 of the paper.

    R_0 = S_0 and R_h = R_(h-1) ∪ {pi: there is pi' in R_(h-1) with J_c(pi') + D(pi, pi') ≤ d - epsilon}. `true_cost` is
    J_c(pi, f*); H is `num_expansions`. Warns, outside of compiled programs, where the costs contradict D.
    """
    if not isinstance(true_cost, Tracer):
        _warn_of_steep_costs(true_cost, distances)

    def step(is_reached: Array, _: None) -> tuple[Array, None]:
        return expand(is_reached, true_cost, distances, budget - epsilon), None

    return jax.lax.scan(step, is_seed, length=num_expansions)[0]


def _warn_of_steep_costs(cost: Float[Array, "*policies"], distances: Distances) -> None:
    if not is_valid_distance(cost, cost, distances):
        warnings.warn(
            "D is too small: the costs of two policies differ by more than their distance. Policies may be called safe "
            "that are not; check the Lipschitz constants that D is made of",
            stacklevel=3,
        )

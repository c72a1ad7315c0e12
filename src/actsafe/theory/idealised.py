"""Algorithm 1 of the paper as it is written, and its final policy, for the finite policy class of a small world."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from actsafe.theory.circle_kernel import Evidence
from actsafe.theory.confidence import confidence_multiplier
from actsafe.theory.plausible_models import Band, calibrated_models, contains, intersect, is_empty, prior_models
from actsafe.theory.safe_set import expand, is_valid_distance, reachable_set
from actsafe.theory.small_world import Bounds, World


@dataclasses.dataclass(frozen=True)
class TheoremSettings:
    """What the theorem is asked."""

    delta: float = 0.1
    """The probability with which anything may go wrong."""
    epsilon: float = 0.22
    """How far from the best reward the final policy may be, and how well costs are known before expansion ends."""
    num_expansions: int = 100
    """H of the reachable set."""
    max_episodes: int = 1500
    """Where a run ends that has not come to know its safe set to epsilon."""
    is_mean_trusted: bool = False
    """Whether the mean is taken for the truth: beta = 0 and M_n = {mu_n}. The theorem does not hold then."""

    def __post_init__(self) -> None:
        if not 0.0 < self.delta < 1.0:
            raise ValueError(f"delta must lie strictly between 0 and 1, got {self.delta}")
        if not self.epsilon > 0.0:
            raise ValueError(f"epsilon must be positive, got {self.epsilon}")
        if self.max_episodes < 1:
            raise ValueError(f"max_episodes must be at least 1, got {self.max_episodes}")


class Progress(NamedTuple):
    """Where a run stands after n episodes."""

    key: PRNGKeyArray
    episode: Int[Array, ""]
    """n."""
    evidence: Evidence
    models: Band
    """M_n."""
    bounds: Bounds
    """P_n and the like, over M_n; the uncertainty is sigma_n."""
    is_safe: Bool[Array, "*policies"]
    """S_n."""
    joined: Int[Array, "*policies"]
    """The n from which on a policy is in S_n, -1 where it never was."""
    deployed: Int[Array, " episode"]
    """The policies tried, counted through; -1 where no episode was."""
    multiplier: Float[Array, ""]
    """beta_n."""
    has_shrunk: Bool[Array, ""]
    """Whether a policy was ever in S_(n-1) and not in S_n."""
    is_calibrated: Bool[Array, ""]
    """Whether the truth was in every M_n so far."""
    is_done: Bool[Array, ""]


class Run(NamedTuple):
    """What came of a run, beside the truth."""

    progress: Progress
    truth: Bounds
    is_reachable: Bool[Array, "*policies"]
    """R^epsilon_H(S_0)."""
    final: Int[Array, ""]
    """argmax_(pi in S_n) min_(f in M_n) J_r(pi, f), counted through."""
    is_violating: Bool[Array, ""]
    """Whether the cost of any policy deployed, or of the final one, may exceed the budget."""
    contains_seed: Bool[Array, ""]
    contains_reachable: Bool[Array, ""]
    is_distance_valid: Bool[Array, ""]
    """Whether no two true costs certainly differ by more than D."""
    reward_gap: Float[Array, ""]
    """max_(pi in R) J_r(pi) - J_r(final), at most; the theorem allows epsilon."""


def run(world: World, settings: TheoremSettings, key: PRNGKeyArray) -> Run:
    """One draw of a system and its noise: expansion until S_n is known to epsilon, then the final policy.

    Expansion ends after the first episode in which S_n has not grown and no two models of M_n differ by more than
    epsilon on the cost or the reward of a policy in S_n. That is what the proof of Theorem 4.1 needs n* for, seen
    instead of waited for: if f* is in M_n, then J_c(pi') + D(pi, pi') ≤ d - epsilon for a pi' in S_n gives
    P_n(pi') + D(pi, pi') ≤ d, so that pi is in S_n already, and R^epsilon_H(S_0) is in S_n for every H.
    """
    system_key, run_key = jax.random.split(key)
    truth, true_bounds = world.draw(system_key)

    def goes_on(progress: Progress) -> Bool[Array, ""]:
        return ~progress.is_done & (progress.episode < settings.max_episodes)

    start = begin(world, settings, truth, run_key)
    end = jax.lax.while_loop(goes_on, lambda progress: advance(world, settings, truth, progress), start)
    return judge(world, settings, true_bounds, end)


def begin(world: World, settings: TheoremSettings, truth: Float[Array, " feature"], key: PRNGKeyArray) -> Progress:
    """Before the first episode: M_0 and S_0."""
    std = jnp.linalg.norm(world.features, axis=1)
    models = prior_models(std**2, world.settings.norm_bound)
    return Progress(
        key=key,
        episode=jnp.asarray(0),
        evidence=Evidence.none(world.kernel.rank),
        models=models,
        bounds=world.bounds(models, std),
        is_safe=world.is_seed,
        joined=jnp.where(world.is_seed, 0, -1),
        deployed=jnp.full((settings.max_episodes,), -1),
        multiplier=confidence_multiplier(0.0, delta=settings.delta, norm_bound=world.settings.norm_bound),
        has_shrunk=jnp.asarray(False),
        is_calibrated=contains(models, world.features @ truth),
        is_done=jnp.asarray(False),
    )


def advance(world: World, settings: TheoremSettings, truth: Float[Array, " feature"], progress: Progress) -> Progress:
    """One episode of Algorithm 1: choose a policy, try it, learn from it.

        pi_n = argmax_(pi in S) max_(f in M) E[sum_t ||sigma_(n-1)(s_t, pi(s_t))||],   D_n <- rollout of pi_n
        M_n = M_(n-1) ∩ Q_n,   S_n = S_(n-1) ∪ {pi: P_n(pi') + D(pi, pi') ≤ d for a pi' in S_(n-1)}

    S and M are the newest there are: the paper writes S_n and M_n above the line on which they are made.
    """
    key, noise_key = jax.random.split(progress.key)
    chosen = jnp.argmax(jnp.where(progress.is_safe, progress.bounds.most_uncertainty, -jnp.inf))
    inputs, states = rollout(world, truth, chosen, noise_key)
    evidence = progress.evidence.add(world.kernel.features(inputs), states, world.settings.noise_std)
    mean, std = evidence.moments(world.features)
    multiplier = confidence_multiplier(evidence.gain, delta=settings.delta, norm_bound=world.settings.norm_bound)
    if settings.is_mean_trusted:
        # Means of different episodes contradict each other: their intersection would be empty.
        multiplier = jnp.zeros_like(multiplier)
        models = calibrated_models(mean, std, multiplier)
    else:
        models = intersect(progress.models, calibrated_models(mean, std, multiplier))
    bounds = world.bounds(models, std)
    # No model is left: the multiplier was too small, and nothing that follows from it counts.
    bounds = bounds._replace(most_cost=jnp.where(is_empty(models), jnp.inf, bounds.most_cost))
    is_safe = expand(progress.is_safe, bounds.most_cost, world.distances, world.settings.budget)
    is_new = is_safe & ~progress.is_safe
    is_known = jnp.all(~is_safe | (bounds.width <= settings.epsilon))
    return Progress(
        key=key,
        episode=progress.episode + 1,
        evidence=evidence,
        models=models,
        bounds=bounds,
        is_safe=is_safe,
        joined=jnp.where(is_new, progress.episode + 1, progress.joined),
        deployed=progress.deployed.at[progress.episode].set(chosen),
        multiplier=multiplier,
        has_shrunk=progress.has_shrunk | jnp.any(progress.is_safe & ~is_safe),
        is_calibrated=progress.is_calibrated & contains(models, world.features @ truth),
        is_done=is_known & ~jnp.any(is_new),
    )


def rollout(
    world: World, truth: Float[Array, " feature"], policy: Int[Array, ""], key: PRNGKeyArray
) -> tuple[Float[Array, " time"], Float[Array, " time"]]:
    """The inputs s_t + a_t of one episode with the true system, and the states that followed them."""
    num_free = world.settings.num_decisions - 1
    places = jnp.unravel_index(policy, (world.settings.num_actions,) * num_free)
    plan = jnp.append(world.lattice.actions[jnp.stack(places)], 0.0)
    noise = world.settings.noise_std * jax.random.normal(key, plan.shape)

    def step(state: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
        action, disturbance = now
        arrived = world.kernel.features(state + action) @ truth + disturbance
        return arrived, (state + action, arrived)

    _, (inputs, states) = jax.lax.scan(step, jnp.zeros(()), (plan, noise))
    return inputs, states


def judge(world: World, settings: TheoremSettings, truth: Bounds, progress: Progress) -> Run:
    """The run's outcome measured against the truth; what the grid leaves open counts against the algorithm."""
    final = jnp.argmax(jnp.where(progress.is_safe, progress.bounds.least_reward, -jnp.inf))
    is_reachable = reachable_set(
        world.is_seed,
        truth.least_cost,
        world.distances,
        budget=world.settings.budget,
        epsilon=settings.epsilon,
        num_expansions=settings.num_expansions,
    )
    cost = truth.most_cost.ravel()
    was_deployed = progress.deployed >= 0
    best = jnp.max(jnp.where(is_reachable, truth.most_reward, -jnp.inf))
    return Run(
        progress=progress,
        truth=truth,
        is_reachable=is_reachable,
        final=final,
        is_violating=jnp.any(was_deployed & ~(cost[progress.deployed] <= world.settings.budget))
        | ~(cost[final] <= world.settings.budget),
        contains_seed=jnp.all(progress.is_safe | ~world.is_seed),
        contains_reachable=jnp.all(progress.is_safe | ~is_reachable),
        is_distance_valid=is_valid_distance(truth.least_cost, truth.most_cost, world.distances),
        reward_gap=best - truth.least_reward.ravel()[final],
    )

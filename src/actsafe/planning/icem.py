"""iCEM: the improved cross-entropy method (Pinneri et al., 2020), a pure function of what it is to maximise."""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from actsafe.planning.coloured_noise import coloured_noise

Plan = Float[Array, "horizon action"]
Plans = Float[Array, "plan horizon action"]


class Evaluation(NamedTuple):
    """What an objective says of plans; higher `value` is better, `cost` is the pessimistic cost."""

    value: Float[Array, " plan"]
    cost: Float[Array, " plan"]


Evaluate = Callable[[Plans], Evaluation]


@dataclasses.dataclass(frozen=True)
class ICEMSettings:
    """How hard and how the planner searches."""

    horizon: int = 20
    """Decisions looked ahead."""
    num_candidates: int = 96
    """Plans drawn in the first iteration."""
    num_elites: int = 12
    """Best plans that the next distribution is fitted to."""
    num_iterations: int = 3
    population_decay: float = 1.25
    """Each iteration draws this factor fewer plans, never fewer than twice the elites; 1 keeps the number."""
    colour_exponent: float = 1.0
    """Power spectrum f^-exponent of the noise: 0 white, larger is smoother."""
    init_std: float = 0.5
    """Std of the first distribution, as a fraction of half the action range."""
    amplitude_floor: float = 1.0
    """The noise of the first iteration's plans is scaled by factors from 1 down to this, evenly on a log scale; 1
    scales none. Where only small motions are surely safe, draws at full size alone never find one."""
    smoothing: float = 0.2
    """Weight of the old mean and std when the distribution is refitted."""
    keep_fraction: float = 0.3
    """Share of the elites that stays a candidate in the next iteration and, shifted, in the next decision."""

    def __post_init__(self) -> None:
        for field in ("horizon", "num_candidates", "num_elites", "num_iterations"):
            if getattr(self, field) < 1:
                raise ValueError(f"search.{field} must be at least 1, got {getattr(self, field)}")
        if self.num_elites > self.num_candidates:
            raise ValueError(
                f"search.num_elites ({self.num_elites}) must not exceed search.num_candidates ({self.num_candidates})"
            )
        if not (self.population_decay >= 1 and math.isfinite(self.population_decay)):
            raise ValueError(f"search.population_decay must be finite and at least 1, got {self.population_decay}")
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"search.smoothing must lie in [0, 1), got {self.smoothing}")
        if not 0 <= self.keep_fraction <= 1:
            raise ValueError(f"search.keep_fraction must lie in [0, 1], got {self.keep_fraction}")
        if not self.init_std > 0:
            raise ValueError(f"search.init_std must be positive, got {self.init_std}")
        if not math.isfinite(self.colour_exponent):
            raise ValueError(f"search.colour_exponent must be finite, got {self.colour_exponent}")
        if not 0 < self.amplitude_floor <= 1:
            raise ValueError(f"search.amplitude_floor must lie in (0, 1], got {self.amplitude_floor}")

    @property
    def num_kept(self) -> int:
        """Elites that are remembered."""
        return max(1, round(self.keep_fraction * self.num_elites)) if self.keep_fraction > 0 else 0

    def population(self, iteration: int) -> int:
        """Plans drawn in this iteration."""
        decayed = int(self.num_candidates * self.population_decay**-iteration)
        return min(self.num_candidates, max(decayed, 2 * self.num_elites))

    @property
    def amplitudes(self) -> Float[np.ndarray, " plan"]:
        """The factor on the noise of every plan drawn in the first iteration."""
        return np.geomspace(1.0, self.amplitude_floor, self.population(0))


class Memory(NamedTuple):
    """What one decision leaves for the next: the best plan and the kept elites, not yet shifted."""

    best: Plan
    elites: Plans

    @classmethod
    def empty(cls, settings: ICEMSettings, action_dim: int) -> "Memory":
        """Zero input everywhere."""
        shape = (settings.horizon, action_dim)
        return cls(jnp.zeros(shape), jnp.zeros((settings.num_kept, *shape)))


class Found(NamedTuple):
    """The outcome of a search."""

    best: Plan
    """The plan of highest value that was evaluated in any iteration."""
    best_value: Float[Array, ""]
    best_cost: Float[Array, ""]
    safest: Plan
    """The plan of least pessimistic cost that was evaluated in any iteration."""
    safest_cost: Float[Array, ""]
    memory: Memory
    """Its elites are sorted, best first."""


def shift(plan: Plan) -> Plan:
    """What is left of `plan` after its first action; the last action is repeated."""
    return jnp.concatenate([plan[1:], plan[-1:]])


def search(
    evaluate: Evaluate,
    memory: Memory,
    key: PRNGKeyArray,
    settings: ICEMSettings,
    *,
    steady: Callable[[Plan], Plan] | None = None,
) -> Found:
    """The best plan in [-1, 1] that iCEM finds.

    Every second plan drawn passes through `steady` first, which may turn a disturbed plan into one that stays near the
    previous one: in an unstable system, noise on all actions at once makes every draw fall over. What it cannot steady
    (a plan that comes back not finite) stays as drawn.

    The zero plan and the shifted previous plan are always candidates. A plan whose value is not finite ranks below
    every plan whose value is; a cost that is not finite counts as infinite.
    """
    action_dim = memory.best.shape[-1]
    previous = shift(memory.best)
    mean, std = previous, jnp.full_like(previous, settings.init_std)
    found = Found(previous, jnp.asarray(-jnp.inf), jnp.asarray(jnp.inf), previous, jnp.asarray(jnp.inf), memory)
    kept: tuple[Plans, Evaluation] | None = None

    for iteration in range(settings.num_iterations):
        key, noise_key, last_key = jax.random.split(key, 3)
        noise = coloured_noise(
            noise_key, settings.population(iteration), settings.horizon, action_dim, settings.colour_exponent
        )
        if iteration == 0 and settings.amplitude_floor < 1:
            noise = settings.amplitudes[:, None, None] * noise
        plans = jnp.clip(mean[None] + std[None] * noise, -1.0, 1.0)
        if steady is not None:
            steadied = jax.vmap(steady)(plans[::2])
            is_finite = jnp.all(jnp.isfinite(steadied), axis=(1, 2), keepdims=True)
            plans = plans.at[::2].set(jnp.where(is_finite, steadied, plans[::2]))
        if iteration == settings.num_iterations - 1:
            plans = plans.at[0].set(mean)
        if iteration == 0:
            plans = jnp.concatenate([plans, previous[None], jnp.zeros_like(previous)[None]])
            if settings.num_kept:
                plans = jnp.concatenate([plans, _shift_with_fresh_end(memory.elites, mean, std, last_key)])

        evaluation = _fail_closed(evaluate(plans))
        if kept is not None:
            plans = jnp.concatenate([plans, kept[0]])
            evaluation = jax.tree.map(lambda new, old: jnp.concatenate([new, old]), evaluation, kept[1])

        found = _remember(found, plans, evaluation)
        _, elite = jax.lax.top_k(evaluation.value, settings.num_elites)
        elites = plans[elite]
        mean = settings.smoothing * mean + (1.0 - settings.smoothing) * jnp.mean(elites, axis=0)
        std = settings.smoothing * std + (1.0 - settings.smoothing) * jnp.std(elites, axis=0)
        if settings.num_kept:
            keep = elite[: settings.num_kept]
            kept = (plans[keep], Evaluation(evaluation.value[keep], evaluation.cost[keep]))

    elites = kept[0] if kept is not None else memory.elites
    return found._replace(memory=Memory(found.best, elites))


def _shift_with_fresh_end(elites: Plans, mean: Plan, std: Plan, key: PRNGKeyArray) -> Plans:
    """The elites one decision on, their last action drawn anew."""
    last = mean[-1][None] + std[-1][None] * jax.random.normal(key, elites[:, -1].shape)
    return jnp.concatenate([elites[:, 1:], jnp.clip(last, -1.0, 1.0)[:, None]], axis=1)


def _fail_closed(evaluation: Evaluation) -> Evaluation:
    value = jnp.where(jnp.isfinite(evaluation.value) & jnp.isfinite(evaluation.cost), evaluation.value, -jnp.inf)
    return Evaluation(value, jnp.where(jnp.isfinite(evaluation.cost), evaluation.cost, jnp.inf))


def _remember(found: Found, plans: Plans, evaluation: Evaluation) -> Found:
    """`found` with anything better among `plans`; on a tie the earlier one stays."""
    best, safest = jnp.argmax(evaluation.value), jnp.argmin(evaluation.cost)
    is_better = evaluation.value[best] > found.best_value
    is_safer = evaluation.cost[safest] < found.safest_cost
    return found._replace(
        best=jnp.where(is_better, plans[best], found.best),
        best_value=jnp.where(is_better, evaluation.value[best], found.best_value),
        best_cost=jnp.where(is_better, evaluation.cost[best], found.best_cost),
        safest=jnp.where(is_safer, plans[safest], found.safest),
        safest_cost=jnp.where(is_safer, evaluation.cost[safest], found.safest_cost),
    )

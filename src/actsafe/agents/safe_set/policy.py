"""Who acts, decision by decision: a candidate, a certified policy, or the seed policy S_0."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from actsafe.agents.base import Decision, Percept, Policy
from actsafe.agents.safe_set.canary import CANDIDATE, CERTIFIED, SEED
from actsafe.agents.safe_set.governor import must_take_over

SeedFunction = Callable[[Array], Array]
"""From observations (environment, ...) to actions in [-1, 1]."""


def seed_function(name: str, action_dim: int) -> SeedFunction:
    """S_0 by its name in the settings; raises ValueError where it cannot be had."""
    if name == "zero":
        return lambda observation: jnp.zeros((observation.shape[0], action_dim), jnp.float32)
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"safe_set.seed_policy: {name!r} cannot be imported ({error}); expected zero or module:function, with the "
            "module on PYTHONPATH"
        ) from error
    return lambda observation: jnp.clip(jnp.asarray(found(observation), jnp.float32), -1.0, 1.0)


class GuardedMemory(NamedTuple):
    """What acting remembers of every environment."""

    candidate: Any
    certified: Any
    level: Int[Array, " environment"]
    """Of who acts."""
    assigned: Int[Array, " environment"]
    """Of who acted at the beginning of the episode."""
    spent: Float[Array, "environment constraint"]
    """What the episode has cost so far."""
    key: PRNGKeyArray


class GuardedPolicy(Policy):
    """Executes, in every environment, the action of the policy assigned to it, and after a takeover the fallback's.

    Both filters are updated with the action that was executed.
    """

    candidate: Policy
    certified: Policy
    assigned: Int[Array, "*seed_and_environment"]
    """The level at an episode's beginning; of all environments, or of each."""
    has_certified: Bool[Array, "*seed"]
    predicted_costs: Float[Array, "*seed level"]
    """Of an episode, by level."""
    reserve: Float[Array, "*seed fallback constraint"]
    """Upper estimates of what an episode costs once a level has taken it over."""
    budgets: tuple[float, ...] = eqx.field(static=True)
    seed: SeedFunction = eqx.field(static=True)
    seed_noise: float = eqx.field(static=True)
    is_governed: bool = eqx.field(static=True)
    action_dim: int = eqx.field(static=True)

    def begin(self, num_envs: int, key: PRNGKeyArray) -> GuardedMemory:
        key, first, second = jax.random.split(key, 3)
        levels = jnp.broadcast_to(self.assigned, (num_envs,))
        spent = jnp.zeros((num_envs, len(self.budgets)), jnp.float32)
        inner = self.candidate.begin(num_envs, first), self.certified.begin(num_envs, second)
        return GuardedMemory(*inner, levels, levels, spent, key)

    def encode(self, observation: Array) -> Array:
        """What both policies make of observations, and the seed policy's actions, side by side."""
        parts = [self.candidate.encode(observation), self.certified.encode(observation), self.seed(observation)]
        return jnp.concatenate([part.reshape(len(part), -1).astype(jnp.float32) for part in parts], axis=-1)

    def act(self, memory: GuardedMemory, encoded: Array, percept: Percept) -> tuple[Decision, GuardedMemory]:
        """The action of the level that acts, and what is known of it."""
        key, noise_key = jax.random.split(memory.key)
        width = (encoded.shape[-1] - self.action_dim) // 2
        of_candidate, of_certified, of_seed = jnp.split(encoded, (width, 2 * width), axis=-1)
        first, candidate = self.candidate.act(memory.candidate, of_candidate, percept)
        second, certified = self.certified.act(memory.certified, of_certified, percept)
        noise = jax.random.uniform(noise_key, of_seed.shape, jnp.float32, -1.0, 1.0)
        seeded = jnp.clip(of_seed + self.seed_noise * noise, -1.0, 1.0)
        actions = jnp.stack([seeded, second.action.astype(jnp.float32), first.action.astype(jnp.float32)])
        assigned = jnp.where(percept.is_first, jnp.broadcast_to(self.assigned, memory.level.shape), memory.assigned)
        level = jnp.where(percept.is_first, assigned, memory.level)
        costs = percept.costs.astype(jnp.float32)
        spent = jnp.where(percept.is_first[:, None], 0.0, memory.spent + costs)
        level = self._governed(level, assigned, spent, actions)
        action = jnp.take_along_axis(actions, level[None, :, None], axis=0)[0]
        decision = Decision(
            action,
            jnp.full(level.shape, jnp.nan, jnp.float32),
            self.predicted_costs[level],
            level != CANDIDATE,
            (level == SEED) | (level < assigned),
            level,
        )
        done = self.candidate.executed(candidate, action), self.certified.executed(certified, action)
        return decision, GuardedMemory(*done, level, assigned, spent, key)

    def _governed(self, level: Array, assigned: Array, spent: Array, actions: Array) -> Int[Array, " environment"]:
        """The level that acts, once the governor has been asked, and actions that are no numbers are refused.

        An episode is taken over once: the reserve is the fallback's to spend.
        """
        fallback = jnp.where((level == CANDIDATE) & self.has_certified, CERTIFIED, SEED)
        if self.is_governed:
            takes_over = must_take_over(spent, self.reserve[fallback], self.budgets)
            level = jnp.where(takes_over & (level == assigned) & (level != SEED), fallback, level)
        is_sound = jnp.all(jnp.isfinite(actions), axis=-1)
        candidate_falls_to = jnp.where(is_sound[CERTIFIED] & self.has_certified, CERTIFIED, SEED)
        level = jnp.where((level == CANDIDATE) & ~is_sound[CANDIDATE], candidate_falls_to, level)
        return jnp.where((level == CERTIFIED) & ~is_sound[CERTIFIED], SEED, level)

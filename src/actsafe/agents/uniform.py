"""Random actions, for a warm-up."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from actsafe.agents.base import Decision, Percept, Policy


class UniformPolicy(Policy):
    """Actions uniform in [-1, 1]."""

    action_dim: int = eqx.field(static=True)

    def begin(self, num_envs: int, key: PRNGKeyArray) -> PRNGKeyArray:
        return key

    def act(self, memory: PRNGKeyArray, encoded: Array, percept: Percept) -> tuple[Decision, PRNGKeyArray]:
        """Nothing is predicted or checked."""
        key, draw_key = jax.random.split(memory)
        shape = percept.is_first.shape
        action = jax.random.uniform(draw_key, (*shape, self.action_dim), minval=-1.0, maxval=1.0)
        unknown, no = jnp.full(shape, jnp.nan), jnp.zeros(shape, bool)
        return Decision(action, unknown, unknown, no, no), key

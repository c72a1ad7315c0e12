"""What was seen of the system: transitions in arrays of fixed size."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Transitions(eqx.Module):
    """(state, action, next state - state) rows; the first `count` are data, the rest is padding."""

    states: Float[Array, "capacity state"]
    actions: Float[Array, "capacity action"]
    changes: Float[Array, "capacity state"]
    count: Int[Array, ""]

    @classmethod
    def empty(cls, capacity: int, state_dim: int, action_dim: int) -> "Transitions":
        """No data, room for `capacity` rows."""
        return cls(
            jnp.zeros((capacity, state_dim)),
            jnp.zeros((capacity, action_dim)),
            jnp.zeros((capacity, state_dim)),
            jnp.zeros((), jnp.int32),
        )

    @property
    def capacity(self) -> int:
        return self.states.shape[-2]

    @property
    def is_data(self) -> Bool[Array, " capacity"]:
        return jnp.arange(self.capacity) < self.count

    def append(
        self, states: Float[Array, "new state"], actions: Float[Array, "new action"], changes: Float[Array, "new state"]
    ) -> "Transitions":
        """These transitions and the new ones. The caller sees to it that they fit: see `capacity`."""

        def put(store: Array, rows: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(store, rows.astype(store.dtype), self.count, axis=0)

        return Transitions(
            put(self.states, states),
            put(self.actions, actions),
            put(self.changes, changes),
            self.count + states.shape[0],
        )

    def head(self, capacity: int) -> "Transitions":
        """The same data in arrays of `capacity` rows, which must hold all of it: smaller arrays, faster sums."""
        return Transitions(self.states[:capacity], self.actions[:capacity], self.changes[:capacity], self.count)

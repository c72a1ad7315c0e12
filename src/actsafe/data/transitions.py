"""What was seen of the system: transitions in arrays of fixed size."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from actsafe.data.rows import Rows


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
        self,
        states: Float[Array, "new state"],
        actions: Float[Array, "new action"],
        changes: Float[Array, "new state"],
        num_new: Int[Array, ""] | int | None = None,
    ) -> "Transitions":
        """These transitions and the first `num_new` (None: all) of the new ones.

        The caller sees to it that all new rows fit: see `capacity`.
        """

        def put(store: Array, rows: Array) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(store, rows.astype(store.dtype), self.count, axis=0)

        return Transitions(
            put(self.states, states),
            put(self.actions, actions),
            put(self.changes, changes),
            self.count + (states.shape[0] if num_new is None else num_new),
        )

    def head(self, capacity: int) -> "Transitions":
        """The same data in arrays of `capacity` rows, which must hold all of it: smaller arrays, faster sums."""
        return Transitions(self.states[:capacity], self.actions[:capacity], self.changes[:capacity], self.count)


class Trajectory(NamedTuple):
    """Transitions of one epoch; the first `count` are real, the rest is padding."""

    states: Float[Array, "new state"]
    actions: Float[Array, "new action"]
    next_states: Float[Array, "new state"]
    count: Int[Array, ""]


def trajectories(rows: Rows, *, with_outcomes: bool = False) -> Trajectory:
    """The transitions of every seed in rows (seed, environment, time), those from one episode to the next left out."""
    observation = states_of(rows, with_outcomes=with_outcomes)
    parts = observation[:, :, :-1], np.asarray(rows.action, np.float64)[:, :, 1:], observation[:, :, 1:]
    flat = [part.reshape(len(part), -1, part.shape[-1]) for part in parts]
    is_real = ~np.asarray(rows.is_first)[:, :, 1:].reshape(len(observation), -1)
    order = np.argsort(~is_real, axis=1, kind="stable")[..., None]
    states, actions, next_states = (jnp.asarray(np.take_along_axis(part, order, axis=1)) for part in flat)
    return Trajectory(states, actions, next_states, jnp.asarray(np.sum(is_real, axis=1), jnp.int32))


def states_of(rows: Rows, *, with_outcomes: bool) -> Float[np.ndarray, "*lead state"]:
    """Observations; with outcomes, each with the reward and the first cost that came with it."""
    observation = np.asarray(rows.observation, np.float64)
    if not with_outcomes:
        return observation
    outcomes = (np.asarray(rows.reward)[..., None], np.asarray(rows.costs)[..., :1])
    return np.concatenate([observation, *outcomes], axis=-1)

"""The archive: certified policies, each with the counts of its own episodes.

With the seed policy S_0 it is the safe set S_n that policies are deployed from (paper, section 4.2).
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int


class Counts(NamedTuple):
    """Episodes of one policy."""

    episodes: Int[Array | np.ndarray, "*place"]
    ended: Int[Array | np.ndarray, "*place"]
    """Of these, that were not cut off."""
    over: Int[Array | np.ndarray, "*place"]
    """Whose cost was over a budget, or not known."""
    taken_over: Int[Array | np.ndarray, "*place"]
    """That the governor took over."""
    cost: Float[Array | np.ndarray, "*place constraint"]
    """Sums over episodes."""

    @classmethod
    def none(cls, num_constraints: int, *lead: int) -> "Counts":
        """No episode."""
        none = jnp.zeros(lead, jnp.int32)
        return cls(none, none, none, none, jnp.zeros((*lead, num_constraints), jnp.float32))

    def __add__(self, other: "Counts") -> "Counts":  # pyright: ignore[reportIncompatibleMethodOverride]
        return jax.tree.map(jnp.add, self, other)

    @property
    def share_over(self) -> Float[Array, "*place"]:
        """The share of episodes over a budget or taken over; 0 where there is none."""
        return jnp.maximum(self.over, self.taken_over) / jnp.maximum(self.episodes, 1)


class Archive(eqx.Module):
    """The newest certified policies; every array has the leading axis place."""

    weights: Any
    roles: Int[Array, " place"]
    orders: Int[Array, " place"]
    """When a policy was certified, counted from 1; 0 where the place is empty."""
    counts: Counts

    @classmethod
    def empty(cls, like: Any, size: int, num_constraints: int) -> "Archive":
        """Places for `size` policies, at least one, with weights such as `like`."""
        size = max(1, size)
        blank = jax.tree.map(lambda leaf: jnp.zeros((size, *jnp.shape(leaf)), leaf.dtype), like)
        none = jnp.zeros((size,), jnp.int32)
        return cls(blank, none, none, Counts.none(num_constraints, size))

    def newest(self, role: int | None = None) -> tuple[Int[Array, ""], Bool[Array, ""]]:
        """The place of the policy certified last, of all or of one role, and whether there is one."""
        is_meant = self.orders > 0
        if role is not None:
            is_meant = is_meant & (self.roles == role)
        return jnp.argmax(jnp.where(is_meant, self.orders, 0)), jnp.any(is_meant)

    def at(self, place: Int[Array, ""]) -> Any:
        """The weights of a policy."""
        return jax.tree.map(lambda leaf: leaf[place], self.weights)

    def add(self, weights: Any, role: Int[Array, ""], counts: Counts) -> "Archive":
        """The archive with one policy more, in an empty place or that of the oldest."""
        place, order = jnp.argmin(self.orders), jnp.max(self.orders) + 1
        put = lambda store, value: jax.tree.map(lambda old, new: old.at[place].set(new), store, value)  # noqa: E731
        return Archive(
            put(self.weights, weights),
            self.roles.at[place].set(role),
            self.orders.at[place].set(order),
            put(self.counts, counts),
        )

    def counted(self, place: Int[Array, ""], new: Counts, tolerance: float) -> "Archive":
        """The archive after further episodes of a policy, which goes where too many of all its episodes speak against
        it."""
        counts = jax.tree.map(lambda old, value: old.at[place].add(value), self.counts, new)
        is_bad = (counts.share_over[place] > tolerance) | ~jnp.all(jnp.isfinite(counts.cost[place]))
        orders = self.orders.at[place].set(jnp.where(is_bad, 0, self.orders[place]))
        return Archive(self.weights, self.roles, orders, counts)

"""A ring of rows on the device, from which a compiled program draws windows to learn from."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Int, PRNGKeyArray

from actsafe.data.rows import RowLayout, Rows, require_fitting


class Ring:
    """What replays of either kind can say of themselves. All environments advance together."""

    rows: Any
    """With the leading axes (environment, capacity)."""
    position: Any
    """Where the next row of every environment goes."""
    count: Any
    """How many rows every environment has."""

    @property
    def num_envs(self) -> int:
        return self.rows.reward.shape[0]

    @property
    def capacity(self) -> int:
        """Rows of an environment that it can hold."""
        return self.rows.reward.shape[1]

    def can_sample(self, length: int) -> bool:
        """Whether there is a window of this length. For the host."""
        return 1 <= length <= int(self.count)


class Replay(Ring, eqx.Module):
    """The last rows of every environment, as a pytree of arrays on the device."""

    rows: Rows
    position: Int[Array, ""]
    count: Int[Array, ""]

    @classmethod
    def empty(cls, *layout: Any) -> "Replay":
        """No rows; `layout` are the fields of a `RowLayout`."""
        return cls(RowLayout(*layout).zeros(jnp), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32))

    def append(self, rows: Rows) -> "Replay":
        """The replay with a block (environment, time) of at most `capacity` ticks more; the oldest rows give way.

        Compiled, and in place: the memory goes to the new replay, and this one must not be used afterwards.
        """
        require_fitting(self.rows, rows)
        return _append(self, rows)

    def sample(self, key: PRNGKeyArray, batch: int, length: int, recent: int = 0) -> Rows:
        """Windows (batch, time): any environment, and any `length` successive ticks of it, with the same chance.

        Where `recent` is given, the second half of the windows is from every environment's newest `recent` rows, or
        from all that there are. A window never leads from the newest row to the oldest. It may cross the beginning of
        an episode (`is_first`).
        May be traced; ask `can_sample` before, for a compiled program cannot complain.
        """
        if not isinstance(self.count, Tracer):
            require_enough(self, length)
        environments, starts = draw_windows(
            key, self.count, batch=batch, length=length, num_envs=self.num_envs, recent=recent
        )
        ticks = self.position - self.count + starts[:, None] + jnp.arange(length, dtype=jnp.int32)[None]
        places = (environments[:, None], ticks % self.capacity)
        # One gather of whole frames. All places are in bounds, which spares a check of every byte.
        return jax.tree.map(lambda store: store.at[places].get(mode="promise_in_bounds"), self.rows)

    def sample_many(self, key: PRNGKeyArray, num: int, batch: int, length: int, recent: int = 0) -> Rows:
        """`num` samples (num, batch, time), each with its own of the keys into which `key` is split."""
        if not isinstance(self.count, Tracer):
            require_enough(self, length)
        return _sample_many(self, key, num=num, batch=batch, length=length, recent=recent)


@functools.partial(jax.jit, donate_argnums=0)
def _append(replay: Replay, rows: Rows) -> Replay:
    num_ticks = rows.reward.shape[1]
    ticks = (replay.position + jnp.arange(num_ticks, dtype=jnp.int32)) % replay.capacity

    def put(store: Array, field: Array) -> Array:
        return store.at[:, ticks].set(field.astype(store.dtype), mode="promise_in_bounds", unique_indices=True)

    return Replay(
        jax.tree.map(put, replay.rows, rows),
        (replay.position + num_ticks) % replay.capacity,
        jnp.minimum(replay.count + num_ticks, replay.capacity),
    )


@functools.partial(jax.jit, static_argnames=("num", "batch", "length", "recent"))
def _sample_many(replay: Replay, key: PRNGKeyArray, num: int, batch: int, length: int, recent: int) -> Rows:
    return jax.vmap(lambda own_key: replay.sample(own_key, batch, length, recent))(jax.random.split(key, num))


@functools.partial(jax.jit, static_argnames=("batch", "length", "num_envs", "recent"))
def draw_windows(
    key: PRNGKeyArray, count: Int[Array, ""], *, batch: int, length: int, num_envs: int, recent: int
) -> tuple[Int[Array, " batch"], Int[Array, " batch"]]:
    """Environments, and first ticks of windows, counted from the oldest row; `recent` as for `Replay.sample`."""
    num_starts = jnp.broadcast_to(count - length + 1, (batch,))
    is_recent = (jnp.arange(batch) >= batch // 2) & (recent > 0)
    num_drawn = jnp.where(is_recent, jnp.minimum(num_starts, max(1, recent - length + 1)), num_starts)
    windows = jax.random.randint(key, (batch,), 0, num_envs * num_drawn, jnp.int32)
    return windows // num_drawn, num_starts - num_drawn + windows % num_drawn


def require_enough(replay: Ring, length: int) -> None:
    """Raise ValueError unless a replay of either kind has a window of this length."""
    if not replay.can_sample(length):
        raise ValueError(
            f"replay: got windows of {length} rows to draw, but every environment has {int(replay.count)}; expected 1 "
            "to that many. Append rows first (`can_sample` says when there are enough)."
        )

"""A ring of rows in the host's memory, for a device that is too small."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from actsafe.data.device_replay import Ring, draw_windows, require_enough
from actsafe.data.rows import RowLayout, Rows, require_fitting


class HostReplay(Ring):
    """As `Replay`, with the same windows for the same key, but on numpy arrays that are changed in place."""

    def __init__(self, layout: RowLayout):
        """No rows, room for `layout.capacity` of every environment."""
        self.rows = layout.zeros(np)
        self.position, self.count = 0, 0

    @classmethod
    def empty(cls, *layout: Any) -> "HostReplay":
        """No rows; `layout` are the fields of a `RowLayout`."""
        return cls(RowLayout(*layout))

    def append(self, rows: Rows) -> "HostReplay":
        """This replay, with a block (environment, time) from the host or the device more; the oldest rows give way."""
        require_fitting(self.rows, rows)
        num_ticks = rows.reward.shape[1]
        ticks = (self.position + np.arange(num_ticks)) % self.capacity
        for store, field in zip(self.rows, rows, strict=True):
            store[:, ticks] = np.asarray(field)
        self.position = (self.position + num_ticks) % self.capacity
        self.count = min(self.count + num_ticks, self.capacity)
        return self

    def sample(self, key: PRNGKeyArray, batch: int, length: int, recent: int = 0) -> Rows:
        """Windows (batch, time) on the device: any environment, and any successive ticks, with the same chance."""
        return Rows(*(field[0] for field in self._gathered(key[None], batch, length, recent)))

    def sample_many(self, key: PRNGKeyArray, num: int, batch: int, length: int, recent: int = 0) -> Rows:
        """`num` samples (num, batch, time) on the device, for one compiled call."""
        return self._gathered(jax.random.split(key, num), batch, length, recent)

    def _gathered(self, keys: Array, batch: int, length: int, recent: int) -> Rows:
        require_enough(self, length)
        count = jnp.asarray(self.count, jnp.int32)
        environments, starts = jax.vmap(
            lambda key: draw_windows(key, count, batch=batch, length=length, num_envs=self.num_envs, recent=recent)
        )(keys)
        first = self.position - self.count + np.asarray(starts)[..., None]
        places = (np.asarray(environments)[..., None], (first + np.arange(length)) % self.capacity)
        return jax.device_put(jax.tree.map(lambda store: store[places], self.rows))

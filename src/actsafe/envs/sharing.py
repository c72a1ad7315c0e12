"""Rows that threads do side by side."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from actsafe.problems.cores import Threads


class Sharing:
    """Applies functions of which no row needs another to some rows each, a thread for every share."""

    def __init__(self, num_threads: int, name: str) -> None:
        self._num_threads, self._threads = num_threads, Threads(num_threads if num_threads > 1 else 0, name)

    def __call__(self, function: Callable[[Any], Any], rows: Any) -> Any:
        """The arrays that `function` gives for all `rows`, arrays with the same leading axis, in fresh memory."""
        if self._threads.pool is None:
            return function(rows)
        # Shares of one size, so that one program serves all: the last is filled up with its last row.
        count = len(jax.tree.leaves(rows)[0])
        size = -(-count // self._num_threads)
        places = [np.minimum(np.arange(start, start + size), count - 1) for start in range(0, count, size)]
        shares = [jax.tree.map(lambda leaf, own=own: leaf[own], rows) for own in places]
        return jax.tree.map(lambda *given: np.concatenate(given)[:count], *self._threads.pool.map(function, shares))

    def close(self) -> None:
        self._threads.close()

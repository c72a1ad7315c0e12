"""Rows that threads do side by side."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np


class Sharing:
    """Applies functions of which no row needs another to some rows each, a thread for every share."""

    def __init__(self, num_threads: int, name: str) -> None:
        self._num_threads, self._name = num_threads, name
        self._pool = self._make_pool()

    def _make_pool(self) -> ThreadPoolExecutor | None:
        return ThreadPoolExecutor(self._num_threads, self._name) if self._num_threads > 1 else None

    def __getstate__(self) -> dict[str, Any]:
        """What pickling and copying keep: everything but the threads, of which a copy has its own."""
        return self.__dict__ | {"_pool": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._pool = self._make_pool()

    def __call__(self, function: Callable[[Any], Any], rows: Any) -> Any:
        """The arrays that `function` gives for all `rows`, arrays with the same leading axis, in fresh memory."""
        if self._pool is None:
            return function(rows)
        # Shares of one size, so that one program serves all: the last is filled up with its last row.
        count = len(jax.tree.leaves(rows)[0])
        size = -(-count // self._num_threads)
        places = [np.minimum(np.arange(start, start + size), count - 1) for start in range(0, count, size)]
        shares = [jax.tree.map(lambda leaf, own=own: leaf[own], rows) for own in places]
        return jax.tree.map(lambda *given: np.concatenate(given)[:count], *self._pool.map(function, shares))

    def close(self) -> None:
        """Ends the threads."""
        if self._pool is not None:
            self._pool.shutdown()

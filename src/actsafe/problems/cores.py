"""What this process may use of the machine."""

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def num_cores() -> int:
    """Cores that this process may use, which in a container are fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Threads:
    """Threads of which a copy, by pickling or otherwise, has its own."""

    def __init__(self, num_threads: int, name: str):
        """With `num_threads` of 0 there is no `pool`."""
        self._num_threads, self._name = num_threads, name
        self.pool = ThreadPoolExecutor(num_threads, name) if num_threads else None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._num_threads, self._name)

    def close(self) -> None:
        """Ends them."""
        if self.pool is not None:
            self.pool.shutdown()

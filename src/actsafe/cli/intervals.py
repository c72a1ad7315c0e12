"""Means and how far to trust them."""

import numpy as np


def mean_with_interval(values: np.ndarray) -> str:
    """The mean and, of several values, its 95 % bootstrap interval in brackets."""
    low, high = bootstrap_interval(values.ravel())
    return f"{np.mean(values):.2f} [{low:.2f}, {high:.2f}]" if values.size > 1 else f"{np.mean(values):.2f}"


def bootstrap_interval(values: np.ndarray, *, share: float = 0.95, num_draws: int = 10_000) -> tuple[float, float]:
    """Bounds that hold `share` of the means of resampled `values`."""
    draws = np.random.default_rng(0).choice(values, (num_draws, len(values)))
    low, high = np.quantile(draws.mean(axis=1), [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)

"""Shares of successes, and how far to trust them: exact, for any number of trials."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """Bounds on a probability."""

    low: float
    high: float


@functools.lru_cache(maxsize=4096)
def clopper_pearson(num_hits: int, num_trials: int, *, confidence: float = 0.95) -> Interval:
    """Bounds that hold the probability of a hit at least `confidence` of the time, however small the sample is.

        low:  P(X ≥ hits | low) = α / 2      high: P(X ≤ hits | high) = α / 2      α = 1 − confidence

    X is binomial (Clopper and Pearson, 1934): trials are independent of each other. Without trials nothing is known,
    and the bounds are 0 and 1.
    """
    if not 0 <= num_hits <= num_trials:
        raise ValueError(f"hits must lie between 0 and the number of trials ({num_trials}), got {num_hits}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie strictly between 0 and 1, got {confidence}")
    tail = (1.0 - confidence) / 2.0
    low = 0.0 if num_hits == 0 else _root(lambda p: _at_least(num_hits, num_trials, p) > tail)
    high = 1.0 if num_hits == num_trials else _root(lambda p: _at_least(num_hits + 1, num_trials, p) > 1.0 - tail)
    return Interval(low, high)


def _at_least(num_hits: int, num_trials: int, probability: float) -> float:
    """P(X ≥ hits), the sum of the smaller tail, so that small chances keep their digits."""
    counts, ways = np.arange(num_trials + 1), _log_ways(num_trials)
    masses = np.exp(ways + counts * math.log(probability) + (num_trials - counts) * math.log1p(-probability))
    above, below = masses[num_hits:].sum(), masses[:num_hits].sum()
    return float(above if above < below else 1.0 - below)


@functools.lru_cache(maxsize=16)
def _log_ways(num_trials: int) -> np.ndarray:
    """The logarithm of n over k, for every k."""
    factorials = np.array([math.lgamma(k + 1) for k in range(num_trials + 1)])
    return factorials[-1] - factorials - factorials[::-1]


def _root(is_above: Callable[[float], bool]) -> float:
    """Where a condition that is false for small probabilities becomes true, to the last digit that matters."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return (low + high) / 2.0

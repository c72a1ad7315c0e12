"""Shares of successes, and how far to trust them: exact, for any number of trials."""

from typing import NamedTuple

from scipy.special import betaincinv


class Interval(NamedTuple):
    """Bounds on a probability."""

    low: float
    high: float


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
    tail, misses = (1.0 - confidence) / 2.0, num_trials - num_hits
    # P(X ≥ k | p) is the regularised incomplete beta function of k, n − k + 1 at p: the bounds are where it is α / 2.
    low = float(betaincinv(num_hits, misses + 1, tail)) if num_hits else 0.0
    high = float(betaincinv(num_hits + 1, misses, 1.0 - tail)) if misses else 1.0
    return Interval(low, high)

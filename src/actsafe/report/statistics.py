"""Few seeds taken together: the interquartile mean, and how far to trust it (Agarwal et al., 2021)."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

NUM_DRAWS = 5000
CONFIDENCE = 0.95


class Estimate(NamedTuple):
    """A value and the interval that holds it."""

    value: float
    low: float
    high: float


def interquartile_mean(values: Float[np.ndarray, "*lead n"]) -> Float[np.ndarray, "*lead"]:
    """The mean of the middle half along the last axis: the ⌊n / 4⌋ smallest and as many of the largest are left out."""
    count = values.shape[-1]
    if count == 0:
        raise ValueError("got no values; expected at least one to take the mean of")
    cut = count // 4
    return np.asarray(np.mean(np.sort(values, axis=-1)[..., cut : count - cut], axis=-1))


def mean(values: Float[np.ndarray, "*lead n"]) -> Float[np.ndarray, "*lead"]:
    """The mean along the last axis."""
    return np.asarray(np.mean(values, axis=-1))


def stratified_bootstrap(
    strata: Sequence[Float[np.ndarray, " n"]],
    *,
    of: Callable[[np.ndarray], np.ndarray] = interquartile_mean,
    num_draws: int = NUM_DRAWS,
) -> Estimate:
    """The interquartile mean of all values, or what `of` makes of them, and the percentile interval of resampled ones.

    Values are drawn with replacement within each stratum (the seeds of a problem), so that every draw has as many of
    each as there are. The draws are the same every time. Of a single value nothing can be told: the interval is it.
    """
    pooled = np.concatenate([np.asarray(values, float) for values in strata])
    random = np.random.default_rng(0)
    draws = [random.choice(np.asarray(values, float), (num_draws, len(values))) for values in strata if len(values)]
    means = of(np.concatenate(draws, axis=1))
    low, high = np.quantile(means, [(1.0 - CONFIDENCE) / 2.0, (1.0 + CONFIDENCE) / 2.0])
    return Estimate(float(of(pooled)), float(low), float(high))


def by_seed(entries: Iterable[tuple[int, int, float | None]]) -> tuple[np.ndarray, Float[np.ndarray, "seed epoch"]]:
    """Epochs, and a value for every seed and epoch, from (seed, epoch, value); NaN where there is none."""
    entries = list(entries)
    seeds, epochs = sorted({entry[0] for entry in entries}), sorted({entry[1] for entry in entries})
    rows, columns = ({each: place for place, each in enumerate(values)} for values in (seeds, epochs))
    found = np.full((len(seeds), len(epochs)), np.nan)
    for seed, epoch, value in entries:
        found[rows[seed], columns[epoch]] = np.nan if value is None else value
    return np.array(epochs, int), found


def together(values: Float[np.ndarray, "seed epoch"]) -> Float[np.ndarray, "3 epoch"]:
    """Interquartile mean over seeds at every epoch and the ends of its interval; NaN where no seed has a value."""
    found = np.full((3, values.shape[1]), np.nan)
    for place, column in enumerate(values.T):
        if np.any(np.isfinite(column)):
            found[:, place] = stratified_bootstrap([column[np.isfinite(column)]], num_draws=1000)
    return found

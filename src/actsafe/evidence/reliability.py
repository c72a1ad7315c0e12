"""Whether predictions hold what they claim, from errors in their own standard deviations, and what would mend them.

A *score* is z = (truth − mean) / std of a prediction that the truth had no part in. The central interval of level p is
mean ± z_p std, with z_p = Φ⁻¹((1 + p) / 2). It holds the truth where |z| ≤ z_p: where the *level* of the score,
erf(|z| / √2), is at most p. Levels of a calibrated model are uniform.
"""

import dataclasses
import enum
import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool, Float

from actsafe.evidence.binomial import clopper_pearson

LEVELS = (0.50, 0.80, 0.90, 0.95, 0.99)
"""Of the intervals whose coverage is tested."""
GRID = tuple(round(0.05 * n, 2) for n in range(1, 20))
"""Of the reliability curve, and of the expected calibration error."""
FAMILY_CONFIDENCE = 0.95
"""A calibrated model with independent errors is called calibrated at least so often, all tests together."""
LEAST_PREDICTIONS = 29
"""The fewest that a verdict is passed on: 29 hits of 29 put the coverage above 90 % with 95 % confidence, as
0.9^29 = 0.047, and 28 of 28 do not."""

Scores = Float[np.ndarray, "n coordinate"]


class Verdict(enum.Enum):
    """What tests say of a model's claims."""

    CALIBRATED = "calibrated"
    """No interval's coverage is told from its level."""
    OVERCONFIDENT = "overconfident"
    """Some interval holds less than it claims: what is called safe may not be."""
    UNDERCONFIDENT = "underconfident"
    """No interval holds less than it claims, some hold more: safe, at the price of caution."""
    UNKNOWN = "not known"
    """Too little data to tell."""


@dataclasses.dataclass(frozen=True)
class Assessment:
    """Predictions a number of steps ahead, against what came. Fields by [coordinate, level] unless they say other."""

    num_predictions: int
    verdict: Verdict
    coverage: Float[np.ndarray, "coordinate level"]
    """The share of truths inside the interval."""
    coverage_low: Float[np.ndarray, "coordinate level"]
    """Exact bounds on the coverage; with all others of this assessment they hold `FAMILY_CONFIDENCE` of the time."""
    coverage_high: Float[np.ndarray, "coordinate level"]
    joint_coverage: Float[np.ndarray, " level"]
    """The share of truths inside the box whose sides have level p^(1 / coordinates)."""
    joint_coverage_high: Float[np.ndarray, " level"]
    calibration_error: Float[np.ndarray, " coordinate"]
    """Expected calibration error: the mean of |coverage − level| over `GRID`."""
    reliability: Float[np.ndarray, "coordinate grid"]
    """Coverage at the levels of `GRID`: the reliability curve."""
    conformal: Float[np.ndarray, "coordinate level"]
    """The factor on the std that restores coverage, split-conformal; infinite where there is too little data."""
    recalibrated: Float[np.ndarray, "coordinate level 2"]
    """The interval after recalibration, in std from the mean: lower and upper end."""
    multiplier: float
    """The factor on every std that restores coverage: the largest of any coordinate that decides and any level that
    data vouch for. Infinite where they vouch for none."""


def assess(
    scores: Scores, *, num_verdicts: int = 1, is_safety: Bool[np.ndarray, " coordinate"] | None = None
) -> Assessment:
    """What scores of predictions equally far ahead say about the model.

    Tests are exact for independent scores, and two-sided with Bonferroni's correction, for `num_verdicts` that are
    taken together. The box is tested on one side only: where coordinates depend on each other it holds more than its
    level, not less (Šidák, 1967). Verdict, box and multiplier are those of the coordinates of `is_safety`, or of all;
    the coverage of the others is told beside them.
    """
    count, dim = scores.shape
    decides = np.ones(dim, bool) if is_safety is None else is_safety
    levels = score_levels(scores)
    joint = np.max(levels[:, decides], axis=1, initial=0.0) ** np.sum(decides)
    nominal = np.array(LEVELS)
    confidence = 1.0 - (1.0 - FAMILY_CONFIDENCE) / ((dim + 1) * len(LEVELS) * num_verdicts)
    hits = np.sum(levels[:, :, None] <= nominal, axis=0)
    joint_hits = np.sum(joint[:, None] <= nominal, axis=0)
    low, high = np.moveaxis(_intervals(hits, count, confidence), -1, 0)
    joint_high = _intervals(joint_hits[None], count, confidence)[0, :, 1]
    reliability = _shares(np.sum(levels[:, :, None] <= np.array(GRID), axis=0), count)
    holds_less = np.any(high[decides] < nominal) or np.any(joint_high < nominal)
    conformal = np.array([[conformal_multiplier(scores[:, j], p) for p in LEVELS] for j in range(dim)])
    vouched = conformal[decides][:, [_rank(count, level) <= count for level in LEVELS]]
    return Assessment(
        num_predictions=count,
        verdict=_verdict(count if decides.any() else 0, holds_less, np.any(low[decides] > nominal)),
        coverage=_shares(hits, count),
        coverage_low=low,
        coverage_high=high,
        joint_coverage=_shares(joint_hits, count),
        joint_coverage_high=joint_high,
        calibration_error=np.mean(np.abs(reliability - np.array(GRID)), axis=1),
        reliability=reliability,
        conformal=conformal,
        recalibrated=np.array([[recalibrated_interval(scores[:, j], p) for p in LEVELS] for j in range(dim)]),
        multiplier=float(vouched.max()) if vouched.size else math.inf,
    )


def score_levels(scores: Float[np.ndarray, "*lead"]) -> Float[np.ndarray, "*lead"]:
    """The level of the narrowest central interval that holds each truth; 1 where a score is not a number."""
    levels = np.vectorize(lambda z: math.erf(abs(z) / math.sqrt(2.0)), otypes=[float])(scores)
    return np.where(np.isnan(levels), 1.0, levels)


def interval_width(level: float) -> float:
    """z_p: half the width of the central interval of a standard normal."""
    return NormalDist().inv_cdf((1.0 + level) / 2.0)


def conformal_multiplier(scores: Float[np.ndarray, " n"], level: float) -> float:
    """The factor m for which mean ± m z_p std holds a further, exchangeable truth with a chance of at least p.

    m z_p is the ⌈(n + 1) p⌉-th smallest |z| (split-conformal); infinite where n is smaller than that rank.
    """
    if _rank(len(scores), level) > len(scores):
        return math.inf
    sizes = np.sort(np.where(np.isnan(scores), np.inf, np.abs(scores)))
    return float(sizes[_rank(len(scores), level) - 1]) / interval_width(level)


def recalibrated_interval(scores: Float[np.ndarray, " n"], level: float) -> tuple[float, float]:
    """The ends, in std from the mean, of the central interval of the recalibrated CDF R ∘ Φ (Kuleshov et al., 2018).

    R maps a claimed probability u to the share of Φ(z) that is at most u. It is its own isotonic regression, as it
    rises from each Φ(z) to the next, and R ∘ Φ is the distribution of the scores: what is wanted are its quantiles.
    Unlike a multiplier it mends a bias; unlike the conformal one it promises nothing for small samples.
    """
    if len(scores) == 0 or not np.all(np.isfinite(scores)):
        return -math.inf, math.inf
    low, high = np.quantile(scores, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], method="inverted_cdf")
    return float(low), float(high)


def _rank(count: int, level: float) -> int:
    return math.ceil((count + 1) * level)


def _verdict(count: int, holds_less: bool | np.bool_, holds_more: bool | np.bool_) -> Verdict:
    if count < LEAST_PREDICTIONS:
        return Verdict.UNKNOWN
    if holds_less:
        return Verdict.OVERCONFIDENT
    return Verdict.UNDERCONFIDENT if holds_more else Verdict.CALIBRATED


def _shares(hits: np.ndarray, count: int) -> np.ndarray:
    return hits / count if count else np.full(hits.shape, np.nan)


def _intervals(hits: np.ndarray, count: int, confidence: float) -> Float[np.ndarray, "coordinate level 2"]:
    return np.array([[clopper_pearson(int(k), count, confidence=confidence) for k in row] for row in hits])

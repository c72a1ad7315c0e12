"""Exact intervals of a share."""

import pytest
import scipy.stats

from actsafe.evidence.binomial import clopper_pearson


@pytest.mark.parametrize(("hits", "trials"), [(0, 1), (1, 1), (3, 10), (0, 200), (7, 200), (990, 1000), (2999, 3000)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_the_interval_is_scipys(hits, trials, confidence):
    expected = scipy.stats.binomtest(hits, trials).proportion_ci(confidence, method="exact")
    assert clopper_pearson(hits, trials, confidence=confidence) == pytest.approx(tuple(expected), abs=1e-10)


def test_intervals_by_hand():
    """No hit of n: (1 - high)^n = alpha/2. At 95 % and n = 10: high = 1 - 0.025^(1/10) = 1 - 0.69150 = 0.30850."""
    low, high = clopper_pearson(0, 10)
    assert low == 0.0
    assert high == pytest.approx(0.30850, abs=5e-6)
    assert clopper_pearson(10, 10) == pytest.approx((1.0 - high, 1.0))
    # One hit of one at 90 %: low = alpha/2 = 0.05.
    assert clopper_pearson(1, 1, confidence=0.9) == pytest.approx((0.05, 1.0))


def test_nothing_is_known_without_trials():
    assert clopper_pearson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("hits", "trials", "confidence"), [(3, 2, 0.95), (-1, 2, 0.95), (1, 2, 1.0), (1, 2, 0.0)])
def test_what_cannot_be_is_refused(hits, trials, confidence):
    with pytest.raises(ValueError, match="must lie"):
        clopper_pearson(hits, trials, confidence=confidence)

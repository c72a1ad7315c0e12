"""Verdicts on models whose errors are known, and the multipliers that mend them."""

import math

import numpy as np
import pytest

from actsafe.evidence.reliability import (
    GRID,
    LEAST_PREDICTIONS,
    LEVELS,
    Verdict,
    assess,
    conformal_multiplier,
    interval_width,
    recalibrated_interval,
    score_levels,
)


def draws(num, dim=3, seed=0):
    return np.random.default_rng(seed).normal(size=(num, dim))


def test_levels_and_widths_are_the_normals():
    """68.27 % of a normal lie within one std, 95 % within 1.95996; what is not a number is outside of everything."""
    assert score_levels(np.array([1.0, -1.0, 0.0])) == pytest.approx([0.682689, 0.682689, 0.0], abs=1e-6)
    assert interval_width(0.95) == pytest.approx(1.959964, abs=1e-6)
    assert score_levels(np.array([np.nan, np.inf, -np.inf])) == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("understated", "verdict"),
    [
        (1.0, Verdict.CALIBRATED),
        (2.0, Verdict.OVERCONFIDENT),
        (10.0, Verdict.OVERCONFIDENT),
        (0.5, Verdict.UNDERCONFIDENT),
    ],
)
def test_the_verdict_is_right(understated, verdict):
    assert assess(understated * draws(200)).verdict is verdict


def test_a_calibrated_model_is_seldom_accused():
    """Of 100 calibrated models at most 5 % are, so 5 of them, and four binomial std more: 5 + 4 sqrt(4.75) = 13.7."""
    accused = [assess(draws(60, 2, seed)).verdict is not Verdict.CALIBRATED for seed in range(100)]
    assert sum(accused) <= 13


def test_dependent_coordinates_are_not_held_against_a_model():
    """Coordinates that always err together: the box holds more than it claims, which says nothing."""
    assert assess(np.repeat(draws(2000, 1), 4, axis=1)).verdict is Verdict.CALIBRATED


def test_one_bad_coordinate_is_enough():
    assert assess(draws(200) * np.array([1.0, 1.0, 3.0])).verdict is Verdict.OVERCONFIDENT


def test_little_data_says_little():
    """Few good predictions do not vouch, and few very bad ones do not accuse: one more does."""
    assert assess(draws(LEAST_PREDICTIONS - 1)).verdict is Verdict.UNKNOWN
    assert assess(draws(0)).verdict is Verdict.UNKNOWN
    assert math.isinf(assess(draws(0)).multiplier)
    assert assess(100.0 * draws(LEAST_PREDICTIONS - 1)).verdict is Verdict.UNKNOWN
    assert assess(100.0 * draws(LEAST_PREDICTIONS)).verdict is Verdict.OVERCONFIDENT


def test_coordinates_that_no_budget_relies_on_have_no_part():
    """A reward that is not learned is told, and neither in the verdict nor in the box nor in the multiplier."""
    scores = draws(200, dim=2) * np.array([100.0, 1.0])
    found = assess(scores, is_safety=np.array([False, True]))
    assert assess(scores).verdict is Verdict.OVERCONFIDENT
    assert found.verdict is Verdict.CALIBRATED
    assert found.coverage[0, -1] < 0.1
    assert found.multiplier == pytest.approx(assess(scores[:, 1:]).multiplier)
    np.testing.assert_array_equal(found.joint_coverage, found.coverage[1])
    assert assess(scores, is_safety=np.array([True, False])).verdict is Verdict.OVERCONFIDENT
    # Where nothing is relied on nothing is known.
    assert assess(scores, is_safety=np.array([False, False])).verdict is Verdict.UNKNOWN


def test_numbers_that_are_none_count_as_misses():
    scores = draws(200)
    scores[:40, 1] = np.nan
    found = assess(scores)
    assert found.verdict is Verdict.OVERCONFIDENT
    assert math.isinf(found.multiplier)


def test_coverage_and_its_error_by_hand():
    """Scores 0, 1, 2, 3 have levels 0, .683, .954, .997: 1, 2, 2, 2 and 3 of 4 lie within 50, 80, 90, 95 and 99 %.

    On the grid .05, .10, ... .95 coverage is 1/4 up to .65 (13 levels), then 1/2 (6 levels). The mean of the distances:
    Σ |.05 k - .25|, k = 1..13: .2 + .15 + .1 + .05 + 0 + (.05 + ... + .40) = .5 + 1.8 = 2.3, and
    Σ |.05 k - .5|, k = 14..19: .2 + .25 + .3 + .35 + .4 + .45 = 1.95. (2.3 + 1.95) / 19 = 0.223684.
    """
    found = assess(np.array([[0.0], [1.0], [-2.0], [3.0]]))
    assert found.coverage[0] == pytest.approx([0.25, 0.5, 0.5, 0.5, 0.75])
    assert found.joint_coverage == pytest.approx(found.coverage[0])
    assert found.calibration_error == pytest.approx([0.223684], abs=1e-6)
    assert found.reliability.shape == (1, len(GRID))


def test_the_box_has_wider_sides():
    """Two coordinates at level .6 and .7: the box that just holds them has level .7² = .49, so 50 % of them hold it."""
    sizes = [[interval_width(0.6), interval_width(0.7)]]
    assert assess(np.array(sizes)).joint_coverage == pytest.approx([1.0] * len(LEVELS))
    sizes = [[interval_width(0.6), interval_width(0.72)]]
    assert assess(np.array(sizes)).joint_coverage[0] == 0.0


def test_multipliers_by_hand():
    """Of nine |z| 1..9 the ⌈10 · 0.5⌉ = 5th smallest is 5; of nine none has rank ⌈10 · 0.95⌉ = 10."""
    scores = np.array([1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 7.0, -8.0, 9.0])
    assert conformal_multiplier(scores, 0.5) == pytest.approx(5.0 / interval_width(0.5))
    assert math.isinf(conformal_multiplier(scores, 0.95))
    # 80 % between the 10 % and the 90 % quantile: of nine the ⌈.9⌉ = 1st smallest and the ⌈8.1⌉ = 9th.
    assert recalibrated_interval(scores, 0.8) == (-8.0, 9.0)
    assert recalibrated_interval(np.array([np.nan, 1.0]), 0.8) == (-math.inf, math.inf)


@pytest.mark.parametrize("understated", [2.0, 10.0])
def test_the_multiplier_restores_coverage_of_fresh_errors(understated):
    multiplier = assess(understated * draws(300)).multiplier
    assert 0.9 * understated < multiplier < 1.6 * understated
    fresh = assess(understated / multiplier * draws(300, seed=1))
    assert fresh.verdict in (Verdict.CALIBRATED, Verdict.UNDERCONFIDENT)


def test_recalibration_mends_a_bias_that_a_multiplier_only_covers():
    """Errors of std 1/2 about 3: the 90 % interval is 3 ± 1.645 / 2."""
    scores = 3.0 + 0.5 * draws(5000, 1)[:, 0]
    low, high = recalibrated_interval(scores, 0.9)
    assert (low, high) == pytest.approx((3.0 - 0.8224, 3.0 + 0.8224), abs=0.06)
    fresh = 3.0 + 0.5 * draws(5000, 1, seed=1)[:, 0]
    assert np.mean((fresh >= low) & (fresh <= high)) == pytest.approx(0.9, abs=4 * math.sqrt(0.9 * 0.1 / 5000) * 1.5)

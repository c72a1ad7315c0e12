"""Reliability diagrams show what was measured."""

import numpy as np

from actsafe.evidence.reliability import GRID, LEVELS
from actsafe.figures.reliability import coverage_by_step, reliability_diagram


def step(number: int = 1, count: int = 20) -> dict:
    return {
        "step": number,
        "num_predictions": count,
        "reliability": [[0.5] * len(GRID), [None] * len(GRID)],
        "coverage": [[0.6, 0.7, 0.8, 0.9, 1.0], [0.5, None, 0.9, 0.95, 0.99]],
    }


def test_shares_stand_against_levels_in_a_binomial_band():
    (axes,) = reliability_diagram(step(), GRID, ["speed", "angle"]).axes
    drawn = {each.get_label(): each for each in axes.get_lines()}
    np.testing.assert_array_equal(drawn["speed"].get_xdata(), GRID)
    np.testing.assert_array_equal(drawn["speed"].get_ydata(), [0.5] * len(GRID))
    assert np.all(np.isnan(drawn["angle"].get_ydata()))
    # Of 20 predictions at 50 % a calibrated model holds 6 to 14: P(X <= 5) = 2.07 %, P(X <= 6) = 5.77 %.
    band = axes.collections[0].get_paths()[0].vertices
    at_half = band[np.isclose(band[:, 0], 0.5), 1]
    assert (at_half.min(), at_half.max()) == (0.3, 0.7)


def test_no_predictions_have_no_band():
    (axes,) = reliability_diagram(step(count=0), GRID, ["speed", "angle"]).axes
    assert not axes.collections


def test_coverage_is_that_of_the_worst_coordinate():
    (axes,) = coverage_by_step([step(1), step(2)], LEVELS).axes
    drawn = {each.get_label(): each for each in axes.get_lines()}
    np.testing.assert_array_equal(drawn["50 %"].get_xdata(), [1, 2])
    np.testing.assert_array_equal(drawn["50 %"].get_ydata(), [0.5, 0.5])
    np.testing.assert_array_equal(drawn["80 %"].get_ydata(), [0.7, 0.7])

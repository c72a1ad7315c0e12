"""Few seeds taken together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from actsafe.report.statistics import by_seed, interquartile_mean, stratified_bootstrap, together


def test_the_middle_half_counts():
    # Of eight values two fall on either side: (3 + 4 + 5 + 6) / 4 = 4.5, whatever the outer ones are.
    values = np.array([1000.0, 3.0, 1.0, 5.0, -50.0, 6.0, 4.0, 7.0])
    assert interquartile_mean(values) == 4.5
    # Of three none does: ⌊3 / 4⌋ = 0.
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == 3.0
    # Of five the smallest and the largest do: (2 + 3 + 7) / 3 = 4.
    assert interquartile_mean(np.array([7.0, 1.0, 3.0, 2.0, 100.0])) == 4.0


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_it_is_scipys_trimmed_mean(values):
    np.testing.assert_allclose(interquartile_mean(np.array(values)), trim_mean(values, 0.25), atol=1e-6)


def test_rows_are_taken_by_themselves():
    rows = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 8.0, 9.0]])
    np.testing.assert_array_equal(interquartile_mean(rows), [2.5, 4.0])


def test_no_values_have_no_mean():
    with pytest.raises(ValueError, match="at least one"):
        interquartile_mean(np.zeros(0))


def test_two_values_leave_everything_open():
    # Means of two draws are 0, 1/2 and 1 with chances 1/4, 1/2 and 1/4: the 2.5 % and 97.5 % quantiles are 0 and 1.
    assert stratified_bootstrap([np.array([0.0, 1.0])]) == (0.5, 0.0, 1.0)


def test_draws_stay_within_their_stratum():
    # Every draw has two zeros and two ones, whose middle half has the mean 1/2; pooled, draws would differ.
    assert stratified_bootstrap([np.zeros(2), np.ones(2)]) == (0.5, 0.5, 0.5)
    _, low, high = stratified_bootstrap([np.array([0.0, 0.0, 1.0, 1.0])])
    assert (low, high) == (0.0, 1.0)


def test_a_single_value_is_its_interval():
    assert stratified_bootstrap([np.array([3.0])]) == (3.0, 3.0, 3.0)


def test_intervals_hold_what_they_claim():
    """Of 200 samples of 20 values, about 95 % of intervals hold the mean; bootstrap intervals are a little short."""
    random = np.random.default_rng(1)
    found = [stratified_bootstrap([random.normal(size=20)], num_draws=400) for _ in range(200)]
    held = np.mean([low <= 0.0 <= high for _, low, high in found])
    assert 0.85 <= held <= 0.99


def test_values_are_placed_by_seed_and_epoch():
    epochs, values = by_seed([(3, 1, 5.0), (0, 1, 2.0), (3, 2, None), (0, 4, np.inf)])
    assert epochs.tolist() == [1, 2, 4]
    np.testing.assert_array_equal(values, [[2.0, np.nan, np.inf], [5.0, np.nan, np.nan]])


def test_seeds_are_taken_together_where_there_are_any():
    value, low, high = together(np.array([[1.0, np.nan, 3.0], [3.0, np.nan, np.nan]]))
    np.testing.assert_array_equal(value, [2.0, np.nan, 3.0])
    # Of two values the interval is all between them, of one it is that one.
    np.testing.assert_array_equal(low, [1.0, np.nan, 3.0])
    np.testing.assert_array_equal(high, [3.0, np.nan, 3.0])

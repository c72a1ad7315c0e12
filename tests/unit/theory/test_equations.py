"""Each equation of Section 4 and the appendix against arithmetic by hand or brute force."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actsafe.theory.confidence import confidence_multiplier
from actsafe.theory.information_gain import (
    GREEDY_SHARE,
    greedy_information_gain,
    information_gain,
    worst_case_information_gain,
)
from actsafe.theory.plausible_models import (
    Band,
    calibrated_models,
    contains,
    intersect,
    is_empty,
    prior_models,
)
from actsafe.theory.policy_distance import Smoothness, arrival_distance, policy_distance, step_distance
from actsafe.theory.safe_set import expand, least_transferred_cost, pessimistic_cost, reachable_set
from actsafe.theory.sample_complexity import Difficulty, cost_error_bound, required_episodes

INF, NAN = math.inf, math.nan
SMOOTH = Smoothness(num_decisions=3, cost_bound=0.5, cost_slope=2.0, dynamics_slope=0.4, noise_std=0.2)


def covariance_of(inputs):
    return jnp.exp(-0.5 * (inputs[:, None] - inputs[None]) ** 2)


def test_greedy_gain_brackets_the_best_of_all_choices():
    """Brute force: every multiset of n of five inputs."""
    covariance, noise_std = covariance_of(jnp.array([0.0, 0.3, 1.0, 1.2, 3.0])), 0.5
    bounds = greedy_information_gain(covariance, noise_std, 3)
    for n in (1, 2, 3):
        choices = itertools.combinations_with_replacement(range(5), n)
        best = max(float(information_gain(covariance[np.ix_(c, c)], noise_std)) for c in choices)
        assert float(bounds.lower[n - 1]) <= best + 1e-12
        assert best <= float(bounds.upper[n - 1]) + 1e-12
    # The first two choices: 1/2 log(1 + 1/0.25) for input 0, then input 4, at distance 3, var 1 - exp(-9) / 1.25.
    first = 0.5 * math.log(5.0)
    second = first + 0.5 * math.log1p((1.0 - math.exp(-9.0) / 1.25) / 0.25)
    np.testing.assert_allclose(bounds.lower[:2], [first, second], rtol=1e-12)
    np.testing.assert_allclose(bounds.upper * GREEDY_SHARE, bounds.lower, rtol=1e-14)


def test_gain_and_multiplier_grow_with_n_and_stay_below_the_worst_case():
    covariance = covariance_of(jnp.linspace(-2.0, 2.0, 9))
    gains = greedy_information_gain(covariance, 0.3, 30).lower
    multipliers = confidence_multiplier(gains, delta=0.1, norm_bound=1.0)
    assert np.all(np.diff(gains) > 0.0)
    assert np.all(np.diff(multipliers) > 0.0)
    counts = jnp.arange(1.0, 31.0)
    plain = worst_case_information_gain(counts, kernel_bound=1.0, noise_std=0.3)
    ranked = worst_case_information_gain(counts, kernel_bound=1.0, noise_std=0.3, rank=9)
    assert np.all(gains <= ranked + 1e-12)
    assert np.all(ranked <= plain)
    assert np.all(np.diff(ranked) > 0.0)


def test_worst_case_gain_by_hand():
    """k = 1, sigma = 1/2: n/2 log 5 for n = 4; of rank 2 it is 2/2 log(1 + 4 * 4 / 2) = log 9."""
    assert worst_case_information_gain(4.0, kernel_bound=1.0, noise_std=0.5) == pytest.approx(2.0 * math.log(5.0))
    ranked = worst_case_information_gain(4.0, kernel_bound=1.0, noise_std=0.5, rank=2)
    assert ranked == pytest.approx(math.log(9.0))


def test_plausible_models_by_hand():
    """Prior |f| ≤ 2 sqrt(k); Q: means 0 and 1, stds 0.5 and 0.1, beta 3, so [-1.5, 1.5] and [0.7, 1.3]."""
    prior = prior_models(jnp.array([1.0, 0.25]), 2.0)
    np.testing.assert_allclose(prior.upper, [2.0, 1.0])
    np.testing.assert_allclose(prior.lower, [-2.0, -1.0])
    models = intersect(prior, calibrated_models(jnp.array([0.0, 1.0]), jnp.array([0.5, 0.1]), 3.0))
    np.testing.assert_allclose(models.lower, [-1.5, 0.7])
    np.testing.assert_allclose(models.upper, [1.5, 1.0])
    assert contains(models, jnp.array([1.5, 0.8]))
    assert not contains(models, jnp.array([1.5, 0.6]))
    assert not contains(models, jnp.array([NAN, 0.8]))
    assert not is_empty(models)
    assert is_empty(intersect(models, Band(jnp.array([-9.0, 1.1]), jnp.array([9.0, 2.0]))))
    assert is_empty(models._replace(upper=jnp.array([NAN, 1.0])))


def test_step_distance_by_hand():
    """L_c 2, C_max 0.5, T 3, L_f / sigma 2: gap 0.1 gives 0.2 + 1.5 * 0.2; gap 0.6 gives min(1.2, 1) + 1.5 * 1."""
    np.testing.assert_allclose(step_distance(jnp.array([0.0, 0.1, 0.6]), SMOOTH), [0.0, 0.5, 2.5], rtol=1e-14)


def test_arrival_distance_by_hand():
    """C_max 0.5, L_f / sigma 2: Gaussians 0.1 apart overlap but for 2 Phi(0.1) - 1 = 0.0796557 where 2 decisions are
    left; far apart all that is left may differ. It is never more than the paper's."""
    ours = arrival_distance(jnp.array([0.0, 0.1, 50.0]), SMOOTH, 2)
    np.testing.assert_allclose(ours, [0.0, 0.0796557, 1.0], atol=1e-7)
    gaps = jnp.linspace(0.0, 2.0, 50)
    assert np.all(arrival_distance(gaps, SMOOTH, 2) <= step_distance(gaps, SMOOTH))


def test_a_distance_that_the_costs_contradict_is_warned_about():
    """Costs rise by 1 between neighbours: D = 1 says so, D = 0.5 would call the third of them safe."""
    cost, is_safe = jnp.array([0.0, 1.0, 2.0]), jnp.array([True, True, False])
    expand(is_safe, cost, [line(3, 1.0)], 1.5)
    with pytest.warns(UserWarning, match="D is too small"):
        found = expand(is_safe, cost, [line(3, 0.5)], 1.5)
    assert found[2]
    with pytest.warns(UserWarning, match="D is too small"):
        reachable_set(is_safe, cost, [line(3, 0.5)], budget=1.5, epsilon=0.0, num_expansions=2)


def test_policy_distance_is_the_expectation_over_states():
    """Two decisions; at the first the gap is 0.1 or 0 with probability 1/4 and 3/4, at the second 0.6 for sure."""
    gaps = jnp.array([[0.1, 0.0], [0.6, 5.0]])
    probabilities = jnp.array([[0.25, 0.75], [1.0, 0.0]])
    np.testing.assert_allclose(policy_distance(gaps, probabilities, SMOOTH), 0.25 * 0.5 + 2.5, rtol=1e-14)


@given(gap=st.floats(0.0, 100.0), more=st.floats(0.0, 10.0))
def test_policy_distance_is_no_less_than_zero_and_grows(gap, more):
    near, far = (float(step_distance(jnp.asarray(value), SMOOTH)) for value in (gap, gap + more))
    assert 0.0 <= near <= far
    assert float(policy_distance(jnp.zeros((3, 1)), jnp.ones((3, 1)), SMOOTH)) == 0.0


def test_pessimistic_cost_is_the_largest_and_fails_closed():
    np.testing.assert_array_equal(pessimistic_cost(jnp.array([[0.1, 0.4], [NAN, 0.2]])), [0.4, INF])


def line(num, spacing):
    places = jnp.arange(num, dtype=float) * spacing
    return jnp.abs(places[:, None] - places[None])


def test_expansion_on_a_line_by_hand():
    """Five policies 0.2 apart; P of the second is 0.3, d = 0.55: one step to either side, and not two."""
    cost = jnp.array([9.0, 0.3, 9.0, 0.0, 9.0])
    is_safe = jnp.array([False, True, False, False, False])
    np.testing.assert_array_equal(expand(is_safe, cost, [line(5, 0.2)], 0.55), [True, True, True, False, False])
    # A cost that is not a number lends nothing, and what was safe stays so.
    unknown = expand(is_safe, jnp.full(5, NAN), [line(5, 0.2)], 0.55)
    np.testing.assert_array_equal(unknown, is_safe)


def test_expansion_over_two_axes_is_that_over_all_pairs():
    """The minimum over one axis after the other against the matrix of all pairs of 4 times 3 policies."""
    keys = jax.random.split(jax.random.key(1), 2)
    cost = jax.random.uniform(keys[0], (4, 3))
    is_safe = jax.random.bernoulli(keys[1], 0.4, (4, 3))
    rows, columns = step_distance(line(4, 0.15), SMOOTH), step_distance(line(3, 0.3), SMOOTH)
    pairs = (rows[:, None, :, None] + columns[None, :, None, :]).reshape(12, 12)
    lent = jnp.where(is_safe.ravel(), cost.ravel(), INF)
    expected = jnp.min(pairs + lent[None], axis=1).reshape(4, 3)
    np.testing.assert_allclose(least_transferred_cost(is_safe, cost, [rows, columns]), expected, rtol=1e-14)


@pytest.mark.filterwarnings("ignore:D is too small")  # Costs are arbitrary here.
def test_the_safe_set_never_shrinks_and_what_is_cheaper_grows_more():
    keys = jax.random.split(jax.random.key(2), 20)
    for key in keys:
        cost_key, safe_key = jax.random.split(key)
        cost = jax.random.uniform(cost_key, (6,))
        is_safe = jax.random.bernoulli(safe_key, 0.3, (6,))
        grown, more = (expand(is_safe, cost - less, [line(6, 0.2)], 0.6) for less in (0.0, 0.2))
        assert not np.any(is_safe & ~grown)
        assert not np.any(grown & ~more)


def test_reachable_set_by_hand():
    """Seven policies 0.1 apart of true cost 0, 0.1, 0.2, ..., and d - epsilon = 0.35.

    0 reaches 0 + 0.3 ≤ 0.35, three on, in one step. Then 0.2 + 0.1 is within, 0.3 + 0.1 is not, and it ends there.
    """
    cost = 0.1 * jnp.arange(7.0)
    seed = jnp.arange(7) == 0
    options = {"budget": 0.5, "epsilon": 0.15}
    sizes = [int(jnp.sum(reachable_set(seed, cost, [line(7, 0.1)], num_expansions=h, **options))) for h in (0, 1, 2, 9)]
    assert sizes == [1, 4, 4, 4]
    # Without the error allowed for, d = 0.5: 0 reaches five on, and 0.5 nothing more.
    far = reachable_set(seed, cost, [line(7, 0.1)], num_expansions=9, budget=0.5, epsilon=0.0)
    assert int(jnp.sum(far)) == 6


def test_cost_error_bound_by_hand():
    """T 2, C_max 0.5, d_s 4, beta 3, sigma 0.2, stds 0.01 and 0.03: 2 * 0.5 * (1 + 2) * 3 * 0.04 / 0.2 = 1.8."""
    bound = cost_error_bound(jnp.array([0.01, 0.03]), 3.0, cost_bound=0.5, noise_std=0.2, state_dim=4)
    np.testing.assert_allclose(bound, 1.8, rtol=1e-12)


def difficulty(**changes):
    known = {"num_decisions": 2, "num_expansions": 1, "epsilon": 0.5, "payoff_bound": 1.0, "prior_std": 1.0}
    return Difficulty(**{**known, "noise_std": 1.0, **changes})


def test_required_ratio_by_hand():
    """(1 + 1) * 2^6 * 2^4 * 1 / (log 2 * 0.25) = 8192 / log 2, and sigma = 1/2 makes C twice, log(1 + 4) for log 2."""
    assert difficulty().required_ratio == pytest.approx(8192.0 / math.log(2.0))
    assert difficulty(noise_std=0.5).required_ratio == pytest.approx(16 * 8192.0 / math.log(5.0))


def test_required_episodes_is_the_smallest_number_that_is_enough():
    """With gamma = log(1 + n) and beta = 1; counted up one by one for comparison."""
    case = difficulty(epsilon=30.0)
    found = required_episodes(case, math.log1p, lambda n: 1.0)
    counted = next(n for n in itertools.count(1) if n >= case.required_ratio * math.log1p(n))
    assert found == counted
    assert required_episodes(case, lambda n: n, lambda n: 1.0) == INF


def test_a_smaller_error_takes_more_episodes():
    few, many = (
        required_episodes(difficulty(epsilon=epsilon), math.log1p, lambda n: 1.0 + math.sqrt(math.log1p(n)))
        for epsilon in (1.0, 0.1)
    )
    assert 100.0 * few < many < INF


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Smoothness(0, 1.0, 1.0, 1.0, 1.0), "num_decisions must be positive, got 0"),
        (lambda: Smoothness(1, 1.0, -1.0, 1.0, 1.0), "cost_slope must be at least 0, got -1.0"),
        (lambda: Smoothness(1, 1.0, 1.0, 1.0, NAN), "noise_std must be positive, got nan"),
        (lambda: difficulty(epsilon=0.0), "epsilon must be positive, got 0.0"),
        (lambda: difficulty(num_expansions=-1), "num_expansions must be at least 0, got -1"),
    ],
)
def test_a_wrong_constant_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
